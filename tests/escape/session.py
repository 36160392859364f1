"""The host side of one session, in a process of its own, because it takes the uid of its plan for good.

    python -m tests.escape.session BASE < PLAN > OUTCOME

It imports all that it needs before it takes another uid, under which it may not even read the interpreter's library.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio

from execworld.seams import OutputLimits, OutputStream, SandboxPolicy, SandboxUnavailable, World
from execworld.world import open_world

from .hardship import hardship
from .mutants import mutated
from .outside import Outside, chosen, unlimited_core
from .places import open_confined, world_python
from .plans import Outcome, Plan, Result, sandbox_policy
from .probes import CONTROLS, PROBES, Twin
from .users import take_uid

_HERE = Path(__file__).parent
_LIMITS = OutputLimits(head_bytes=8 * 1024 * 1024, tail_bytes=0)
_TIMEOUT_S = 100
_SETUID_SOURCE = "/usr/bin/id"

Open = Callable[[], AbstractAsyncContextManager[World]]


def main() -> None:
    base, plan = Path(sys.argv[1]), _read_plan()
    python = world_python(plan.uid)
    program = base / "program"
    shutil.copytree(_HERE / "probes", program / "probes", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(_HERE / "victim.py", program)
    anyio.run(_warm_up, plan)
    setuid_program = _make_setuid_program(base) if plan.uid and os.getuid() == 0 else ""
    if plan.uid != os.getuid():
        take_uid(plan.uid, base)
    os.chdir("/")
    unlimited_core()
    table = {**PROBES, **CONTROLS}
    names = list(plan.probes) or [name for name in table if _concerns(plan, name)]
    outside = Outside(base, python, program, chosen(names))
    outside.prepare(setuid_program)
    try:
        outcome = anyio.run(_session, plan, outside, names)
    finally:
        outside.close()
    sys.stdout.write(outcome.encoded())


def _read_plan() -> Plan:
    values = json.load(sys.stdin)
    values["answers"] = tuple((name, error) for name, error in values["answers"])
    for name in ("without", "probes"):
        values[name] = tuple(values[name])
    return Plan(**values)


def _concerns(plan: Plan, name: str) -> bool:
    """A world of a policy runs all probes, a twin those that are meant for it."""
    twins = {"local": Twin.LOCAL, "direct": Twin.DIRECT, "namespace": Twin.NAMESPACE}
    if plan.world not in twins:
        return True
    if name in CONTROLS:
        return plan.world == "local"
    return PROBES[name].twin is twins[plan.world]


async def _warm_up(plan: Plan) -> None:
    """Import what is imported late, and find out what is looked up once."""
    "localhost".encode("idna")
    async with open_world("local") as world:
        await world.subprocess.run(["/bin/true"])
    if plan.world == "landlock":
        try:
            async with open_confined(plan, SandboxPolicy.read_only()) as world:
                await world.subprocess.run(["/bin/true"])
        except SandboxUnavailable:
            pass


def _make_setuid_program(base: Path) -> str:
    path = base / "setuid-id"
    shutil.copy(_SETUID_SOURCE, path)
    path.chmod(0o4755)
    return str(path)


async def _session(plan: Plan, outside: Outside, names: list[str]) -> Outcome:
    program, order = outside.command, json.dumps(outside.order(names)).encode()
    outcome = Outcome()
    if plan.world in ("direct", "namespace"):
        text = await _run_directly(plan, program, order, outside)
    else:
        policy = SandboxPolicy.full_access()
        if plan.world == "landlock":
            policy = sandbox_policy(
                plan.policy,
                outside.base,
                allowed_port=int(outside.servers["allowed"]),
                write_roots=outside.write_roots,
                readable=outside.readable,
            )
        try:
            manager = open_confined(plan, policy) if plan.world == "landlock" else open_world("local")
            with hardship(plan, outside.base), mutated(plan.mutant):
                async with manager as world:
                    outcome.enforcement = world.enforcement.as_dict()
                    text = await _run_in_world(world, program, order, outside)
        except SandboxUnavailable as error:
            outcome.refused = f"{error.code}: {error}"
            return outcome
    outcome.results = {name: Result(**result) for name, result in outside.results(names, text).items()}
    return outcome


async def _run_in_world(world: World, program: list[str], order: bytes, outside: Outside) -> str:
    pending = b""

    async def on_output(stream: OutputStream, data: bytes) -> None:
        nonlocal pending
        if stream is OutputStream.STDOUT:
            pending += data
            *lines, pending = pending.split(b"\n")
            for line in lines:
                if b'"listening"' in line:
                    found = json.loads(line)
                    await anyio.to_thread.run_sync(outside.visit, found["listening"], found["token"])

    result = await world.subprocess.run(
        program, stdin=order, limits=_LIMITS, timeout_s=_TIMEOUT_S, on_output=on_output, cwd="/"
    )
    if result.stderr.data:
        raise RuntimeError(f"the program of the probes said {result.stderr.text[-4000:]}")
    return result.stdout.text


async def _run_directly(plan: Plan, program: list[str], order: bytes, outside: Outside) -> str:
    prefix: list[str] = []
    if plan.world == "namespace":
        user = [] if plan.uid == 0 else ["--user", "--map-root-user"]
        prefix = ["/usr/bin/unshare", *user, "--mount", "--uts", "--ipc", "--net", "--"]

    def run() -> str:
        return subprocess.run(
            [*prefix, *program],
            input=order,
            stdout=subprocess.PIPE,
            pass_fds=outside.inherited if plan.world == "direct" else [],
            timeout=_TIMEOUT_S,
            check=False,
        ).stdout.decode("utf-8", "replace")

    return await anyio.to_thread.run_sync(run)


if __name__ == "__main__":
    main()
