"""A directory of a world that is there is never swept away, and one of a world that is gone always is."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from execworld.machine.base import Machine
from execworld.machine.batch import Batch, Results
from execworld.machine.local.machine import LocalMachine
from execworld.machine.operations import RemoveDirectory
from execworld.machine.owned import Use, disown, make_owned, remove_tree, sweep_owned
from execworld.seams import Leftover, LeftoverState

pytestmark = pytest.mark.anyio

OF_A_WORLD = "execworld-world-0123456789abcdef"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that the machine of the test takes for temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
async def machine(temporary: Path, anyio_backend: str) -> AsyncGenerator[LocalMachine]:
    machine = LocalMachine()
    yield machine
    await machine.aclose()


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def exists(path: Path) -> bool:
    return path.exists()


def content_of(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


async def swept(machine: Machine, directory: Path, *, dry_run: bool = False) -> dict[str, Leftover]:
    """What was found in *directory*: a sweep looks at what others have in /tmp too, and here only tells of it."""
    found = await sweep_owned(machine, dry_run=dry_run)
    return {Path(item.name).name: item for item in found if Path(item.name).parent == directory}


async def test_it_is_kept_while_it_is_held(machine: LocalMachine, temporary: Path) -> None:
    made = await make_owned(machine, os.fsencode(temporary), Use.SPILL, (b"inner",))
    path = Path(os.fsdecode(made.path))
    assert path.parent == temporary
    assert mode_of(path) == 0o700
    assert mode_of(path / "inner") == 0o700
    other = LocalMachine()
    assert (await swept(other, temporary))[path.name].state is LeftoverState.KEPT
    assert exists(path)
    await disown(machine, made)
    assert (await swept(other, temporary, dry_run=True))[path.name].state is LeftoverState.REMOVABLE
    assert exists(path)
    assert (await swept(other, temporary))[path.name].state is LeftoverState.REMOVED
    assert not exists(path)
    assert await swept(other, temporary) == {}
    await other.aclose()


HOLDER = """
import sys
import anyio
from execworld.machine.local.machine import LocalMachine
from execworld.machine.owned import Use, make_owned

async def main():
    machine = LocalMachine()
    made = await make_owned(machine, sys.argv[1].encode(), Use.WORLD, (b"temp",))
    print(made.path.decode(), flush=True)
    await anyio.sleep_forever()

anyio.run(main)
"""


@pytest.fixture
def holder(temporary: Path) -> Generator[subprocess.Popen[str]]:
    """Another process with a machine of its own. It prints the path of the directory that it holds."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(temporary)], stdout=subprocess.PIPE, text=True
    )
    with process:
        yield process
        process.kill()


async def test_a_killed_holder_holds_nothing(
    machine: LocalMachine, temporary: Path, holder: subprocess.Popen[str]
) -> None:
    assert holder.stdout is not None
    path = Path(holder.stdout.readline().strip())
    (path / "temp" / "shut").mkdir()
    (path / "temp" / "shut" / "file").write_text("x")
    (path / "temp" / "shut").chmod(0)
    (temporary / "not ours").mkdir()
    (path / "temp" / "out").symlink_to(temporary / "not ours")
    assert (await swept(machine, temporary))[path.name].state is LeftoverState.KEPT
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (await swept(machine, temporary))[path.name].state is LeftoverState.REMOVED
    assert content_of(temporary) == [temporary / "not ours"]


async def test_what_only_looks_alike_is_left_alone(machine: LocalMachine, temporary: Path) -> None:
    (temporary / "execworld-world-short").mkdir()
    (temporary / "execworld-0123456789abcdef").mkdir()
    (temporary / "execworld-other-0123456789abcdef").mkdir()
    (temporary / f"{OF_A_WORLD}0").mkdir()
    (temporary / "execworld-world-00000000000000ff").write_text("a file")
    target = temporary / "target"
    target.mkdir()
    (temporary / "execworld-spill-0123456789abcdef").symlink_to(target)
    before = content_of(temporary)
    assert await swept(machine, temporary) == {}
    assert content_of(temporary) == before


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what belongs to another user")
async def test_what_belongs_to_others_is_left_alone(machine: LocalMachine, temporary: Path) -> None:
    path = temporary / OF_A_WORLD
    path.mkdir()
    os.chown(path, 1000, 1000)
    assert (await swept(machine, temporary))[path.name].state is LeftoverState.KEPT
    assert exists(path)


async def test_what_cannot_be_removed_is_told(
    machine: LocalMachine, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (temporary / OF_A_WORLD / "inner").mkdir(parents=True)

    class Stubborn(LocalMachine):
        """Its file system is full of errors."""

        async def run(self, batch: Batch) -> Results:
            if any(isinstance(step.operation, RemoveDirectory) for step in batch.steps):
                raise OSError(5, "Input/output error")
            return await super().run(batch)

    stubborn = Stubborn()
    found = (await swept(stubborn, temporary))[OF_A_WORLD]
    await stubborn.aclose()
    assert found.state is LeftoverState.FAILED
    assert "Input/output error" in found.reason
    assert (await swept(machine, temporary))[OF_A_WORLD].state is LeftoverState.REMOVED


@pytest.mark.parametrize("sweep", ["has the lock", "has removed it"])
async def test_a_sweep_at_the_moment_it_is_made(
    machine: LocalMachine, temporary: Path, monkeypatch: pytest.MonkeyPatch, sweep: str
) -> None:
    """Whoever gets the lock first has it: either the sweep finds it taken, or another directory is made."""
    met: list[Path] = []
    descriptors: list[int] = []
    lock = fcntl.flock

    def interfering(descriptor: int, operation: int) -> None:
        if not met:
            met.extend(temporary.iterdir())
            if sweep == "has the lock":
                descriptors.append(os.open(met[0], os.O_RDONLY | os.O_DIRECTORY))
                lock(descriptors[0], fcntl.LOCK_EX)
            else:
                met[0].rmdir()
        lock(descriptor, operation)

    monkeypatch.setattr("fcntl.flock", interfering)
    made = await make_owned(machine, os.fsencode(temporary), Use.SPILL)
    assert len(met) == 1
    assert [os.fsencode(path) for path in content_of(temporary)] == [made.path]
    assert met[0] != Path(os.fsdecode(made.path))
    assert (await swept(machine, temporary)).popitem()[1].state is LeftoverState.KEPT
    for descriptor in descriptors:
        os.close(descriptor)
    await remove_tree(machine, made.path)
    await disown(machine, made)
