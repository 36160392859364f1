"""What a program in a view is given, and what it can pretend."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
import pytest

from execworld.confinement.namespaces import PRIVATE_TEMP_BYTES
from execworld.machine.world import MachineWorld
from execworld.seams import CommandStatus, SandboxPolicy, SandboxUnavailable, World
from execworld.world import open_world

from .places import open_confined, world_python
from .plans import NAMESPACES, READ_ONLY, Plan

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


USE_TEMP = """
set -e
[ "$TMPDIR" = %s ]
[ -z "$(ls -A "$TMPDIR")" ]
echo 'int main(void) { return 7; }' >"$TMPDIR/program.c"
cc -o "$TMPDIR/program" "$TMPDIR/program.c"
"$TMPDIR/program" || [ $? = 7 ]
printf 'b\na\n' | sort -S 1b -o "$TMPDIR/sorted"
cat <<END
$(cat "$TMPDIR/sorted")
END
mknod "$TMPDIR/device" c 1 3 2>/dev/null && exit 9
head -c %d /dev/zero >"$TMPDIR/full" && exit 8
rm "$TMPDIR/full"
mkdir "$TMPDIR/left"
! touch /tmp/%s
"""


async def test_a_read_only_view_has_a_temp_that_is_nobody_elses(place: Path) -> None:
    """Compilers, sort and here-documents want one; it is small, in memory, and gone with the view."""
    async with open_world("landlock", policy=SandboxPolicy.full_access()) as world:
        view = await world.sandbox.confine(SandboxPolicy.read_only())
        (temp,) = view.facts.temp_roots
        assert "temp" in view.facts.not_shared
        script = USE_TEMP % (temp, PRIVATE_TEMP_BYTES + 1, Path(temp).parent.name)
        result = await view.shell.run(script, timeout_s=60)
        assert (result.exit_code, result.stdout.text) == (0, "a\nb\n"), result.stderr.text
        await view.fs.write_text(f"{temp}/new", "text")
        assert await view.fs.read_text(f"{temp}/new") == "text"
        with pytest.raises(PermissionError, match=f"nothing may be written under it but in {temp}"):
            await view.fs.write_text(f"{place}/new", "text")
        assert [entry.name async for entry in anyio.Path(temp).iterdir()] == []
        writer = await world.sandbox.confine(SandboxPolicy.workspace_write(str(place)))
        assert (await writer.shell.run('ls -A "$TMPDIR"')).stdout.text == ""
        other = await world.sandbox.confine(replace(SandboxPolicy.read_only(), hidden=(str(place),)))
        assert (await other.shell.run('ls -A "$TMPDIR"')).stdout.text == ""
    assert not await anyio.Path(temp).exists()


async def test_without_mounts_a_read_only_view_has_no_temp_and_says_so(place: Path) -> None:
    """What Landlock alone could grant would have no limit, and would be seen by others."""
    plan = Plan(os.getuid(), policy=READ_ONLY, without=(NAMESPACES,))
    async with open_confined(plan, SandboxPolicy.read_only()) as world:
        assert world.facts.temp_roots == ()
        assert isinstance(world, MachineWorld)
        assert "private temp: it needs the mount namespace" in world.explanation
        assert (await world.shell.run("mktemp")).exit_code != 0


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
