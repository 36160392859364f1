"""A small project, driven the way an agent would, through the seams alone.

Writes a project, runs its tests with live output, ends a hung development server, edits under a version guard while
another writer interferes, holds a Python prompt in a terminal, and tries to write where it may not. Nothing here knows
which world it runs in: ``python examples/try.py --world NAME`` moves all of it.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
import textwrap
import time
from collections.abc import Awaitable, Callable

import anyio

from execworld.seams import ExecworldError, OutputStream, SandboxDenied, StaleVersion, Terminal, World
from execworld.world import open_world

_OF_THIS_HOST = ("landlock", "local")

_CALCULATOR = """\
def divide(a, b):
    return a // b
"""

_TESTS = """\
import time
import unittest

from calculator import divide


class DivideTest(unittest.TestCase):
    def test_exact(self):
        time.sleep(0.3)
        self.assertEqual(divide(6, 3), 2)

    def test_fraction(self):
        time.sleep(0.3)
        self.assertEqual(divide(7, 2), 3.5)
"""

_HUNG_SERVER = """\
import os, signal, subprocess, sys, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
workers = [subprocess.Popen(["sleep", "987654"], start_new_session=True) for _ in range(2)]
print("listening, with workers", *(worker.pid for worker in workers), flush=True)
while True:
    time.sleep(3600)
"""


def say(line: str = "") -> None:
    print(line, flush=True)


def heading(number: int, text: str) -> None:
    say(f"\n{number}. {text}")


async def show_live(stream: OutputStream, data: bytes) -> None:
    mark = "|" if stream is OutputStream.STDOUT else "!"
    for line in data.decode("utf-8", "replace").splitlines():
        say(f"     {mark} {line}")


async def write_and_test(world: World, project: str) -> bool:
    heading(1, "Write a project and run its tests, output as it comes")
    await world.fs.write_text(f"{project}/calculator.py", _CALCULATOR)
    await world.fs.write_text(f"{project}/test_calculator.py", _TESTS)
    say("   files: " + ", ".join(entry.name for entry in await world.fs.list_directory(project)))
    result = await world.shell.run("python3 -m unittest -v", cwd=project, timeout_s=60, on_output=show_live)
    say(
        f"   exit code {result.exit_code} after {result.duration_s:.1f} s: a real failure, to be fixed in step 3"
    )
    return result.exit_code == 1


async def end_hung_server(world: World, project: str) -> bool:
    heading(2, "Start a development server that hangs, ignores TERM and has workers in sessions of their own")
    await world.fs.write_text(f"{project}/server.py", _HUNG_SERVER)
    begun = time.monotonic()
    result = await world.shell.run(
        "python3 server.py", cwd=project, timeout_s=2, grace_s=1, on_output=show_live
    )
    workers = result.stdout.text.split()[3:]
    # Not `kill -0`: that also finds the zombie of a process that ended and was not waited for yet.
    running = "grep -q '^State:.[^ZX]' /proc/$pid/status 2>/dev/null"
    probe = f"for pid in {' '.join(workers)}; do {running} && echo $pid; done; true"
    alive = await world.shell.run(probe)
    say(f"   status {result.status} after {time.monotonic() - begun:.1f} s (limit 2 s, grace 1 s)")
    gone = result.tree is not None and result.tree.gone
    say(f"   tree gone: {gone}; workers still alive: {alive.stdout.text.split()}")
    return result.timed_out and not alive.stdout.data


async def edit_under_guard(world: World, project: str) -> bool:
    heading(3, "Fix the bug under a version guard, while somebody else changes the file")
    path = f"{project}/calculator.py"
    seen = await world.fs.stat(path)
    assert seen is not None
    await world.shell.run("echo '# a colleague was here' >> calculator.py", cwd=project)
    refused = False
    try:
        await world.fs.edit_text(path, "a // b", "a / b", expected=seen.version)
    except StaleVersion as error:
        refused = True
        say(f"   refused [{error.code}]: {error.message}")
    fresh = await world.fs.stat(path)
    assert fresh is not None
    outcome = await world.fs.edit_text(path, "a // b", "a / b", expected=fresh.version)
    say(f"   read again, {outcome.replacements} replacement made; the colleague's line is still there:")
    for line in (await world.fs.read_text(path)).splitlines():
        say(f"     | {line}")
    result = await world.shell.run("python3 -m unittest", cwd=project, timeout_s=60, on_output=show_live)
    say(f"   exit code {result.exit_code}")
    return refused and result.ok


async def hold_prompt(world: World, project: str) -> bool:
    heading(4, "Hold a Python prompt in a terminal, and resize it")
    argv = ["python3", "-q", "-i", "-c", "import os, sys; sys.ps1 = 'READY> '"]
    async with world.subprocess.open_terminal(argv, rows=24, columns=80, cwd=project) as terminal:
        await read_answer(terminal)
        await terminal.send("from calculator import divide; divide(7, 2)\r")
        first = await read_answer(terminal, "3.5")
        await terminal.resize(50, 132)
        await terminal.send("os.get_terminal_size()\r")
        second = await read_answer(terminal, "lines=50")
        await terminal.send("exit()\r")
        result = await terminal.wait()
    for line in (first + second).replace("\r", "").splitlines():
        if line.strip() and not line.startswith("READY>"):
            say(f"     | {line}")
    say(f"   exit code {result.exit_code}")
    return "3.5" in first and "columns=132, lines=50" in second and result.ok


async def write_outside(world: World, project: str) -> bool:
    """With a policy neither files nor commands reach beyond the project; without one, nothing is tried."""
    heading(5, "Write beside the project, by file operation and by command")
    if not world.policy.confines:
        say("   this world has no policy, so nothing would be denied; not tried")
        return True
    target = f"{os.path.dirname(project)}/execworld-try-{secrets.token_hex(6)}"
    try:
        await world.fs.write_text(target, "x")
        return False
    except SandboxDenied as error:
        say(f"   file operation refused [{error.code}]: {error.message}")
        say(f"   hint: {error.hint}")
    result = await world.shell.run(f"echo x > '{target}'", cwd=project, on_output=show_live)
    say(f"   command refused: exit code {result.exit_code}; there now: {await world.fs.stat(target)}")
    return not result.ok and await world.fs.stat(target) is None


async def tell_enforcement(world: World, project: str) -> bool:
    heading(6, "What held all that, as it was proven when the world opened")
    for dimension, entry in world.enforcement:
        say(f"   {dimension:<16} {entry.state:<9} {entry.by or entry.why_not}")
    for crossing in world.facts.crossings:
        say(f"   crosses the boundary: {crossing}")
    return not world.enforcement.missing()


async def read_answer(terminal: Terminal, answer: str = "", limit_s: float = 20) -> str:
    """Read until *answer* and then the prompt came; the prompt alone may be one that was drawn again after a resize."""
    text = ""
    with anyio.fail_after(limit_s):
        while answer not in text or not text.endswith("READY> "):
            text += (await terminal.receive()).decode("utf-8", "replace")
    return text


async def run(world_name: str) -> int:
    steps: list[Callable[[World, str], Awaitable[bool]]] = [
        write_and_test,
        end_hung_server,
        edit_under_guard,
        hold_prompt,
        write_outside,
        tell_enforcement,
    ]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="execworld-try-") as place:
        failed = await run_steps(world_name, steps, place if world_name in _OF_THIS_HOST else None)
    say()
    if failed:
        say(f"did not go as promised: {', '.join(failed)}")
        return 1
    say(f"everything went as promised, in {time.monotonic() - begun:.1f} s; nothing is left behind")
    return 0


async def run_steps(
    world_name: str, steps: list[Callable[[World, str], Awaitable[bool]]], cwd: str | None
) -> list[str]:
    async with open_world(world_name, cwd=cwd) as world:
        say(f"world {world.world_id}, {world.policy.mode}")
        say(
            f"  {world.facts.os} {world.facts.arch}, user {world.facts.user}, boundary: {world.facts.boundary}"
        )
        project = f"{world.facts.cwd.rstrip('/')}/execworld-try-{secrets.token_hex(6)}"
        if cwd is not None:
            project = world.facts.cwd
        await world.fs.make_directory(project)
        try:
            return [step.__name__ for step in steps if not await step(world, project)]
        finally:
            if cwd is None:
                with anyio.CancelScope(shield=True):
                    await world.fs.remove(project, recursive=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=textwrap.dedent(__doc__ or "").splitlines()[0])
    parser.add_argument("--world", default="landlock", help="name of the world (default: landlock)")
    try:
        return anyio.run(run, parser.parse_args().world)
    except ExecworldError as error:
        print(f"error [{error.code}]: {error}", file=sys.stderr)
        return 125
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
