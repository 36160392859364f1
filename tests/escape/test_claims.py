"""What a program in a view is given, and what it can pretend."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import pytest

from execworld.seams import CommandStatus, SandboxPolicy, SandboxUnavailable, World
from execworld.world import open_world

from .places import world_python

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.landlock,
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="cells are of Linux"),
]

LIST_DESCRIPTORS: Final = """
import json, os
found = {}
for name in os.listdir("/proc/self/fd"):
    try:
        found[name] = os.readlink("/proc/self/fd/" + name)
    except OSError:
        pass  # that of the listing itself
print(json.dumps(found))
"""

# Says what a refusal would say, wherever something might listen, with the status of one that failed to start.
FORGE = """
import os, sys
lie = b"SANDBOX_UNAVAILABLE: nothing ran\\nexecworld: error: world lost\\n" + bytes(range(256)) * 64
numbers = [os.getpid(), os.getppid()] + [int(name) for name in os.listdir("/proc") if name.isdigit()]
written = 0
for number in numbers:
    try:
        names = os.listdir(f"/proc/{number}/fd")
    except OSError:
        continue
    for name in names:
        if number == os.getpid() and name == "1":
            continue
        try:
            descriptor = os.open(f"/proc/{number}/fd/{name}", os.O_WRONLY | os.O_NONBLOCK)
            os.write(descriptor, lie)
            written += 1
        except OSError:
            pass
for descriptor in range(2, 1024):
    try:
        os.write(descriptor, lie)
    except OSError:
        pass
print("told the lie")
sys.exit(125)
"""


@pytest.fixture
async def view(place: Path, request: pytest.FixtureRequest) -> AsyncGenerator[World]:
    workspace = place / request.node.name
    workspace.mkdir()
    # Inheritable, as a careless host has them: none may be found by a program.
    inherited = [os.dup(descriptor) for descriptor in (0, 1, 2)] + [os.open(place, os.O_RDONLY)]
    for descriptor in inherited:
        os.set_inheritable(descriptor, True)
    try:
        policy = SandboxPolicy.workspace_write(str(workspace))
        async with open_world("landlock", policy=policy, cwd=str(workspace)) as world:
            yield world
    finally:
        for descriptor in inherited:
            os.close(descriptor)


async def test_a_program_has_its_three_streams_and_nothing_else(view: World) -> None:
    result = await view.subprocess.run([world_python(os.getuid()), "-c", LIST_DESCRIPTORS], check=True)
    found = json.loads(result.stdout.data)
    assert set(found) == {"0", "1", "2"}
    assert all(target.startswith(("pipe:", "/dev/null")) for target in found.values()), found


async def test_a_terminal_program_has_its_terminal_and_nothing_else(view: World) -> None:
    program = [world_python(os.getuid()), "-c", LIST_DESCRIPTORS]
    async with view.subprocess.open_terminal(program) as terminal:
        data = b""
        while b"}" not in data:
            data += await terminal.receive()
    found = json.loads(data)
    assert set(found) == {"0", "1", "2"}
    assert len(set(found.values())) == 1


async def test_a_program_cannot_speak_for_its_cell(view: World, place: Path) -> None:
    """A refusal, a loss and an exit status are told apart by what the host knows, not by what a program says."""
    before = view.enforcement
    result = await view.subprocess.run([world_python(os.getuid()), "-c", FORGE])
    assert result.status is CommandStatus.EXITED
    assert result.exit_code == 125
    assert result.stdout.text == "told the lie\n"
    assert view.enforcement == before
    again = await view.shell.run(f"echo alive; echo x >{place}/escaped")
    assert again.stdout.text == "alive\n"
    assert again.exit_code != 0
    assert not (place / "escaped").exists()


async def test_a_view_over_all_temporary_directories_is_verified_or_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A canary in a place that the policy allows would prove nothing."""
    inside = place / "temporary"
    inside.mkdir()
    monkeypatch.setenv("TMPDIR", str(inside))
    outside = place / "outside-of-temporary"
    try:
        policy = SandboxPolicy.workspace_write("/tmp", write_roots=("/var/tmp", "/dev/shm", str(inside)))
        async with open_world("landlock", policy=policy) as world:
            assert world.enforcement.missing() == ()
            await world.shell.run(f"echo x >{outside}")
    except SandboxUnavailable:
        return
    assert not outside.exists()
