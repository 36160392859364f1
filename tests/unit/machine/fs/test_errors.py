"""The mapping of failures: total, and never a bare error of the operating system."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable

import pytest

from execworld.machine.base import Machine
from execworld.machine.batch import (
    Batch,
    BatchFailed,
    Results,
    StepError,
)
from execworld.machine.fs import MachineFileSystem
from execworld.machine.fs.errors import error_class, error_text
from execworld.machine.local.machine import LocalMachine
from execworld.machine.values import CheckStatus
from execworld.seams import (
    AccessDenied,
    FileError,
    FileMissing,
    FileTarget,
    InvalidPath,
    NoSpace,
    NotRegularFile,
    OutcomeUnknown,
    Unsupported,
    WorldClosed,
    WorldLost,
    WorldMismatch,
)
from execworld.testing.forwarding import ForwardingMachine

pytestmark = pytest.mark.anyio

NUMBERS = sorted({*errno.errorcode, 0, 4095, *(int(status) for status in CheckStatus)})

Operation = Callable[[MachineFileSystem], Awaitable[object]]


async def first_event(fs: MachineFileSystem) -> object:
    async with fs.watch("d") as events:
        return await anext(events)


async def read_stream(fs: MachineFileSystem) -> object:
    async with fs.open_reader("f") as chunks:
        return [chunk async for chunk in chunks]


async def walk(fs: MachineFileSystem) -> object:
    return [entry async for entry in fs.walk("d")]


OPERATIONS: dict[str, Operation] = {
    "resolve": lambda fs: fs.resolve("f"),
    "stat": lambda fs: fs.stat("f"),
    "lstat": lambda fs: fs.lstat("f"),
    "read_link": lambda fs: fs.read_link("f"),
    "space": lambda fs: fs.space("f"),
    "read_bytes": lambda fs: fs.read_bytes("f"),
    "read_range": lambda fs: fs.read_range("f", offset=0, size_bytes=1),
    "read_text": lambda fs: fs.read_text("f"),
    "open_reader": read_stream,
    "list_directory": lambda fs: fs.list_directory("d"),
    "walk": walk,
    "glob": lambda fs: fs.glob("*"),
    "watch": first_event,
    "write_bytes": lambda fs: fs.write_bytes("f", b""),
    "write_text": lambda fs: fs.write_text("f", "", expected="absent"),
    "edit_text": lambda fs: fs.edit_text("f", "a", "b"),
    "make_directory": lambda fs: fs.make_directory("d"),
    "remove": lambda fs: fs.remove("f"),
    "rename": lambda fs: fs.rename("f", "g"),
    "copy": lambda fs: fs.copy("f", "g"),
    "make_symlink": lambda fs: fs.make_symlink("l", "f"),
    "set_mode": lambda fs: fs.set_mode("f", 0o600),
}


class FailingMachine(ForwardingMachine):
    """The first step of every batch fails with a number, or the whole machine with an error."""

    def __init__(self, inner: Machine, status: int, error: Exception | None = None) -> None:
        super().__init__(inner)
        self.status = status
        self.error = error

    async def run(self, batch: Batch) -> Results:
        if self.error is not None:
            raise self.error
        raise BatchFailed(0, StepError(self.status), Results(()))

    async def release(self, handle: int) -> None:
        return


def file_system(machine: Machine) -> MachineFileSystem:
    return MachineFileSystem(machine, world_id="w", view_id="v", cwd="/somewhere", check=lambda op: None)


@pytest.mark.parametrize("number", NUMBERS)
def test_every_number_has_a_class_and_a_text(number: int) -> None:
    assert issubclass(error_class(number), FileError)
    assert error_text(number)


@pytest.mark.parametrize("name", OPERATIONS)
async def test_every_failure_is_a_file_error(machine: LocalMachine, name: str) -> None:
    """Whatever number the first step fails with: a coded error that names the operation, the world and the
    path.
    """
    for number in NUMBERS[1:]:
        caught: FileError | Unsupported | None = None
        try:
            await OPERATIONS[name](file_system(FailingMachine(machine, number)))
        except (FileError, Unsupported) as error:
            caught = error
        if caught is None:
            continue  # what was asked for is there already, or gone
        assert (caught.op, caught.world) == (f"fs.{name}", "w"), number
        if isinstance(caught, FileError):
            assert caught.path
            assert caught.path in caught.message
            assert caught.errno is None or caught.errno in NUMBERS[:-4], number


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("kind", [WorldLost, OutcomeUnknown, WorldClosed])
async def test_a_lost_world_is_told_as_such(machine: LocalMachine, name: str, kind: type[WorldLost]) -> None:
    """Errors of the world pass through unchanged, and nothing is tried again."""
    error = kind("gone")
    with pytest.raises(kind) as caught:
        await OPERATIONS[name](file_system(FailingMachine(machine, 0, error)))
    assert caught.value is error


@pytest.mark.parametrize("name", OPERATIONS)
async def test_every_operation_asks_the_world_first(machine: LocalMachine, name: str) -> None:
    """The check runs with the name of the operation before anything reaches the machine."""
    asked: list[str] = []

    def check(op: str) -> None:
        asked.append(op)
        raise WorldClosed("closed", op=op)

    unreachable = FailingMachine(machine, 0, AssertionError("the machine was reached"))
    fs = MachineFileSystem(unreachable, world_id="w", view_id="v", cwd="/", check=check)
    with pytest.raises(WorldClosed):
        await OPERATIONS[name](fs)
    assert asked == [f"fs.{name}"]


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, FileMissing),
        (errno.ENOTDIR, FileMissing),
        (errno.EACCES, AccessDenied),
        (errno.EPERM, AccessDenied),
        (errno.EROFS, AccessDenied),
        (errno.ENOSPC, NoSpace),
        (errno.EDQUOT, NoSpace),
        (errno.ENAMETOOLONG, InvalidPath),
        (errno.EISDIR, NotRegularFile),
        (errno.ENXIO, NotRegularFile),
        (errno.EIO, FileError),
        (errno.EMFILE, FileError),
    ],
)
async def test_what_a_number_means_to_a_reader(
    machine: LocalMachine, number: int, kind: type[FileError]
) -> None:
    fs = file_system(FailingMachine(machine, number))
    with pytest.raises(FileError) as caught:
        await fs.read_bytes("a\nb")
    error = caught.value
    assert type(error) is kind
    assert error.path == "a\nb"
    assert "'a\\nb'" in error.message, "a control character must not reach a terminal"
    assert (error.retryable is True) == (number == errno.EMFILE)
    assert error.__cause__ is not None


@pytest.mark.parametrize("path", ["", " ", "\n\t", b"", b"  "])
async def test_a_blank_path_names_nothing(machine: LocalMachine, path: str | bytes) -> None:
    fs = file_system(FailingMachine(machine, 0, AssertionError("the machine was reached")))
    with pytest.raises(FileMissing):
        await fs.read_bytes(path)
    with pytest.raises(FileMissing):
        await fs.resolve("f", cwd=path)


@pytest.mark.parametrize("path", ["a\0b", b"a\0b", "a\ud800b"])
async def test_an_unusable_path_is_refused(machine: LocalMachine, path: str | bytes) -> None:
    """A NUL would cut the path short, and a surrogate that stands for no byte names no file."""
    fs = file_system(FailingMachine(machine, 0, AssertionError("the machine was reached")))
    with pytest.raises(InvalidPath):
        await fs.write_bytes(path, b"")
    with pytest.raises(InvalidPath):
        await fs.make_symlink("link", path)


async def test_a_target_of_another_world_is_refused(machine: LocalMachine) -> None:
    target = FileTarget("/f", "/f", "key", "another")
    fs = file_system(FailingMachine(machine, 0, AssertionError("the machine was reached")))
    with pytest.raises(WorldMismatch):
        await fs.read_bytes(target)
    with pytest.raises(WorldMismatch):
        fs.contains(target, target)
    with pytest.raises(WorldMismatch):
        fs.file_url(target)
