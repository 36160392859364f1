"""Each file operation against the kernel, where the layers above cannot see the difference."""

from __future__ import annotations

import errno
import os
import random
import socket
import stat
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TypeVar

import anyio
import pytest

from execworld.machine.batch import Batch, BatchFailed
from execworld.machine.local import calls
from execworld.machine.local.executables import find_executable
from execworld.machine.local.files import LocalFiles
from execworld.machine.operations import (
    CopyRange,
    FindExecutable,
    ListDirectory,
    Lock,
    Open,
    OpenWalk,
    Operation,
    Read,
    ReadAt,
    ReadWalk,
    RealPath,
    Rename,
    Seek,
    SetMode,
    SetOwner,
    SetTimes,
    Stat,
    StatFileSystem,
    StatHandle,
    Write,
)
from execworld.machine.values import (
    MAX_LIST_ENTRIES,
    MAX_TRANSFER_BYTES,
    KindMask,
    ListedEntry,
    LockMode,
    OpenFlag,
    RenameMode,
)

pytestmark = pytest.mark.anyio

ResultT = TypeVar("ResultT")

DIRECTORY = OpenFlag.READ | OpenFlag.DIRECTORY


@pytest.fixture
async def files(anyio_backend: str) -> AsyncGenerator[LocalFiles]:
    files = LocalFiles()
    yield files
    files.close()


async def do(files: LocalFiles, operation: Operation[ResultT]) -> ResultT:
    batch = Batch()
    step = batch.add(operation)
    return (await files.run(batch))[step]


async def status_of(files: LocalFiles, operation: Operation[ResultT]) -> int:
    try:
        await do(files, operation)
    except BatchFailed as failure:
        return failure.error.status
    return 0


def at(directory: Path, name: str) -> bytes:
    return os.fsencode(directory / name)


# Opening


async def test_opening_never_blocks(files: LocalFiles, tmp_path: Path) -> None:
    """A FIFO without a writer opens at once, one without a reader is ENXIO, a socket too."""
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener, anyio.fail_after(5):
        listener.bind(str(tmp_path / "socket"))
        reading = await do(files, Open(at(tmp_path, "fifo")))
        files.release(reading)
        assert await status_of(files, Open(at(tmp_path, "fifo"), OpenFlag.WRITE)) == errno.ENXIO
        assert await status_of(files, Open(at(tmp_path, "socket"))) == errno.ENXIO


async def test_nothing_is_inherited(files: LocalFiles, tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    await do(files, Open(os.fsencode(tmp_path), DIRECTORY))
    new = set(os.listdir("/proc/self/fd")) - before
    inheritable: list[str] = []
    for descriptor in new:
        try:
            if os.get_inheritable(int(descriptor)):
                inheritable.append(descriptor)
        except OSError:
            continue  # the descriptor that listed the directory
    assert inheritable == []


async def test_beneath_stays_beneath(files: LocalFiles, tmp_path: Path) -> None:
    """``..`` and links that lead out are EXDEV, with no links any link is ELOOP, what stays inside is opened."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/f").write_text("")
    (tmp_path / "out").write_text("")
    os.symlink("../out", tmp_path / "in/escape")
    os.symlink("/etc/passwd", tmp_path / "in/absolute")
    os.symlink("f", tmp_path / "in/link")
    base = await do(files, Open(at(tmp_path, "in"), OpenFlag.PATH_ONLY | OpenFlag.DIRECTORY))

    async def status(name: bytes, flags: OpenFlag) -> int:
        return await status_of(files, Open(name, OpenFlag.READ | flags, base=base))

    for name in (b"../out", b"escape", b"absolute", b"/etc/passwd"):
        assert await status(name, OpenFlag.BENEATH) == errno.EXDEV, name
    assert await status(b"link", OpenFlag.BENEATH) == 0
    assert await status(b"link", OpenFlag.NO_SYMLINKS) == errno.ELOOP
    assert await status(b"f", OpenFlag.BENEATH | OpenFlag.NO_SYMLINKS) == 0


async def test_beneath_fails_closed(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a kernel without openat2(2) the flags are ENOSYS, never silently dropped."""
    monkeypatch.setattr(calls, "_SYS_OPENAT2", 0xFFFF)
    (tmp_path / "f").touch()
    for flag in (OpenFlag.BENEATH, OpenFlag.NO_SYMLINKS):
        assert await status_of(files, Open(at(tmp_path, "f"), OpenFlag.READ | flag)) == errno.ENOSYS


# Reading and writing


async def test_reads_are_full_but_at_the_end(files: LocalFiles, tmp_path: Path) -> None:
    """Sizes around every internal boundary; more than one transfer is EINVAL."""
    content = random.Random(1).randbytes(MAX_TRANSFER_BYTES + 70_000)
    (tmp_path / "f").write_bytes(content)
    handle = await do(files, Open(at(tmp_path, "f")))
    for size in (0, 1, 4095, 65535, 65536, 65537, 65536 + 4096, MAX_TRANSFER_BYTES - 1, MAX_TRANSFER_BYTES):
        await do(files, Seek(handle, 3))
        assert await do(files, Read(handle, size)) == content[3 : 3 + size]
        assert await do(files, ReadAt(handle, 5, size)) == content[5 : 5 + size]
    assert await do(files, Seek(handle, -10, 2)) == len(content) - 10
    assert await do(files, Read(handle, 100)) == content[-10:]
    assert await status_of(files, Read(handle, MAX_TRANSFER_BYTES + 1)) == errno.EINVAL
    assert await status_of(files, ReadAt(handle, 0, MAX_TRANSFER_BYTES + 1)) == errno.EINVAL
    assert await status_of(files, Write(handle, bytes(MAX_TRANSFER_BYTES + 1))) == errno.EINVAL
    assert await status_of(files, Seek(handle, 2**70)) == errno.EOVERFLOW


async def test_close_at_end_closes_just_then(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    handle = await do(files, Open(at(tmp_path, "f")))
    assert await do(files, Read(handle, 5, close_at_end=True)) == b"12345"
    assert files.open_handles == 1
    assert await do(files, Read(handle, 5, close_at_end=True)) == b""
    assert files.open_handles == 0


async def test_copying_reads_what_states_no_size(files: LocalFiles, tmp_path: Path) -> None:
    """A file of /proc is copied although copy_file_range(2) copies nothing of it."""
    source = await do(files, Open(b"/proc/self/status"))
    target = await do(files, Open(at(tmp_path, "f"), OpenFlag.WRITE | OpenFlag.CREATE))
    while await do(files, CopyRange(source, target, 1 << 40)):
        pass
    assert (tmp_path / "f").read_text().startswith("Name:")


async def test_a_lock_never_waits(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    first = await do(files, Open(at(tmp_path, "f")))
    second = await do(files, Open(at(tmp_path, "f")))
    await do(files, Lock(first))
    assert await status_of(files, Lock(second, LockMode.SHARED)) == errno.EWOULDBLOCK
    await do(files, Lock(first, LockMode.UNLOCK))
    assert await status_of(files, Lock(second)) == 0


# Names


async def test_renames_of_each_kind(files: LocalFiles, tmp_path: Path) -> None:
    """No replacement is EEXIST and changes nothing, an exchange swaps and needs both names."""
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    a, b, c = (at(tmp_path, name) for name in "abc")
    assert await status_of(files, Rename(a, b, RenameMode.NO_REPLACE)) == errno.EEXIST
    await do(files, Rename(a, b, RenameMode.EXCHANGE))
    assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("b", "a")
    assert await status_of(files, Rename(a, c, RenameMode.EXCHANGE)) == errno.ENOENT
    await do(files, Rename(a, c, RenameMode.NO_REPLACE))
    await do(files, Rename(c, b))
    assert (tmp_path / "b").read_text() == "b"
    assert sorted(os.listdir(tmp_path)) == ["b"]


def python_real_path(path: str) -> bytes:
    return os.fsencode(os.path.realpath(path))


def kernel_real_path(path: str) -> bytes | int:
    """What the kernel itself resolves *path* to, or its error number."""
    try:
        descriptor = os.open(path, os.O_PATH)
    except OSError as error:
        return error.errno or 0
    try:
        return os.readlink(os.fsencode(f"/proc/self/fd/{descriptor}"))
    finally:
        os.close(descriptor)


async def test_real_path_agrees_with_the_kernel(files: LocalFiles, tmp_path: Path) -> None:
    """Random trees of links: the kernel's own answer or refusal, and with a missing tail that of Python."""
    random_numbers = random.Random(7)
    names = ["a", "b", "c", "d"]
    for name in names:
        os.makedirs(tmp_path / name / "x" / "y")
    (tmp_path / "file").touch()
    links = [f"l{number}" for number in range(8)]
    for directory in (".", *names):
        for link in links:
            targets = (*names, "..", ".", "x", "file", *links, "absent", str(tmp_path))
            text = "/".join(random_numbers.choices(targets, k=random_numbers.randint(1, 3)))
            os.symlink(text, tmp_path / directory / link)
    strict = lenient = 0
    components = (*names, "..", ".", "x", "y", "file", "absent", *links)
    for _ in range(2000):
        path = os.path.join(tmp_path, *random_numbers.choices(components, k=random_numbers.randint(1, 4)))
        expected = kernel_real_path(path)
        if isinstance(expected, int):
            assert await status_of(files, RealPath(os.fsencode(path))) == expected, path
            batch = Batch()
            step = batch.add(RealPath(os.fsencode(path), True), tolerate=(errno.ENOTDIR, errno.ELOOP))
            value = (await files.run(batch)).get(step)
            if ".." in path:
                continue  # back up from what is missing: the kernel refuses that, so there is no oracle
            assert (value is not None) == (expected == errno.ENOENT), path
            if value is not None:
                lenient += 1
                assert value == python_real_path(path), path
        else:
            strict += 1
            for missing_ok in (False, True):
                assert await do(files, RealPath(os.fsencode(path), missing_ok)) == expected, path
    assert strict > 100
    assert lenient > 100


@pytest.mark.parametrize("missing_ok", [False, True])
async def test_real_path_refuses(files: LocalFiles, tmp_path: Path, missing_ok: bool) -> None:
    """Through a file, whatever follows, is ENOTDIR; the 41st link is ELOOP and the 40th is not."""
    (tmp_path / "f").touch()
    for tail in ("f/x", "f/", "f/.", "f/..", "f/../f"):
        path = os.fsencode(f"{tmp_path}/{tail}")
        assert await status_of(files, RealPath(path, missing_ok)) == errno.ENOTDIR, tail
    os.symlink("f", tmp_path / "1")
    for number in range(2, 42):
        os.symlink(str(number - 1), tmp_path / str(number))
    assert await do(files, RealPath(at(tmp_path, "40"), missing_ok)) == at(tmp_path, "f")
    assert await status_of(files, RealPath(at(tmp_path, "41"), missing_ok)) == errno.ELOOP


async def test_executables_are_found_like_execvp_does(files: LocalFiles, tmp_path: Path) -> None:
    """The first executable regular file; EACCES when there are only others, ENOENT when there are none."""
    for directory in ("one", "two", "three"):
        (tmp_path / directory).mkdir()
    (tmp_path / "one/tool").write_text("")
    (tmp_path / "two/tool").mkdir()
    (tmp_path / "three/tool").write_text("")
    (tmp_path / "three/tool").chmod(0o755)
    directories = tuple(at(tmp_path, name) for name in ("absent", "one", "two", "three"))
    assert await do(files, FindExecutable(b"tool", directories)) == at(tmp_path, "three/tool")
    assert await status_of(files, FindExecutable(b"tool", directories[:3])) == errno.EACCES
    for name in (b"absent", b"", b"x" * 300):
        assert await status_of(files, FindExecutable(name, directories)) == errno.ENOENT
    assert await status_of(files, FindExecutable(at(tmp_path, "one/tool/x"))) == errno.ENOENT
    assert await status_of(files, FindExecutable(at(tmp_path, "one/tool"))) == errno.EACCES
    assert await do(files, FindExecutable(at(tmp_path, "three/tool"))) == at(tmp_path, "three/tool")


@pytest.mark.root
def test_a_directory_that_cannot_be_searched_holds_no_program(tmp_path: Path) -> None:
    """It is as if it were not on the path; a program that is named by its own path cannot be executed."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody who may not search")
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    (hidden / "true").touch(mode=0o755)
    os.seteuid(12345)
    try:
        assert find_executable(b"true", (bytes(hidden), b"/bin")) == b"/bin/true"
        with pytest.raises(FileNotFoundError):
            find_executable(b"true", (bytes(hidden),))
        with pytest.raises(PermissionError):
            find_executable(bytes(hidden / "true"), ())
    finally:
        os.seteuid(0)


# Attributes


async def test_the_umask_is_subtracted_on_demand_only(files: LocalFiles, tmp_path: Path) -> None:
    """From a mode that is given, not from bits that are taken from a file; special bits are not taken."""
    (tmp_path / "f").touch()
    (tmp_path / "source").touch()
    (tmp_path / "source").chmod(0o4757)
    old = os.umask(0o027)
    try:
        for mode_of, expected in ((None, 0o640), (0, 0o757), (1, 0o640)):
            batch = Batch()
            batch.add(Stat(at(tmp_path, "source")))
            batch.add(Stat(at(tmp_path, "absent")), tolerate=(errno.ENOENT,))
            opened = batch.add(Open(at(tmp_path, "f")))
            batch.add(SetMode(opened.handle, 0o666, mode_of=mode_of, apply_umask=True))
            await files.run(batch)
            assert stat.S_IMODE(os.stat(tmp_path / "f").st_mode) == expected
    finally:
        os.umask(old)


async def test_a_path_handle_is_enough_to_set_a_mode(files: LocalFiles, tmp_path: Path) -> None:
    """Without any right on the content, and by descriptor: a file that takes the name meanwhile is left
    alone.
    """
    (tmp_path / "f").touch()
    (tmp_path / "f").chmod(0)
    batch = Batch()
    opened = batch.add(Open(at(tmp_path, "f"), OpenFlag.PATH_ONLY | OpenFlag.NO_FOLLOW))
    batch.add(Rename(at(tmp_path, "f"), at(tmp_path, "g")))
    batch.add(Open(at(tmp_path, "f"), OpenFlag.WRITE | OpenFlag.CREATE, 0o600))
    batch.add(SetMode(opened.handle, 0o741))
    await files.run(batch)
    assert stat.S_IMODE(os.stat(tmp_path / "g").st_mode) == 0o741
    assert stat.S_IMODE(os.stat(tmp_path / "f").st_mode) == 0o600


async def test_a_time_that_is_not_given_stays(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    os.utime(tmp_path / "f", ns=(1_500_000_001, -1_500_000_001))
    handle = await do(files, Open(at(tmp_path, "f")))
    await do(files, SetTimes(handle, None, 42))
    found = os.stat(tmp_path / "f")
    assert (found.st_atime_ns, found.st_mtime_ns) == (1_500_000_001, 42)
    await do(files, SetTimes(handle, -1_700_000_000, None))
    found = os.stat(tmp_path / "f")
    assert (found.st_atime_ns, found.st_mtime_ns) == (-1_700_000_000, 42)
    await do(files, SetTimes(handle))
    assert os.stat(tmp_path / "f").st_mtime_ns == 42


async def test_an_owner_is_taken_from_a_stat(files: LocalFiles, tmp_path: Path) -> None:
    """Nothing happens when that stat failed."""
    if os.geteuid() != 0:
        pytest.skip("only root may give a file away")
    for name in ("f", "source"):
        (tmp_path / name).touch()
    os.chown(tmp_path / "source", 1234, 5678)
    for name, expected in (("absent", (0, os.stat(tmp_path / "f").st_gid)), ("source", (1234, 5678))):
        batch = Batch()
        source = batch.add(Stat(at(tmp_path, name)), tolerate=(errno.ENOENT,))
        opened = batch.add(Open(at(tmp_path, "f")))
        batch.add(SetOwner(opened.handle, owner_of=source.index))
        await files.run(batch)
        found = os.stat(tmp_path / "f")
        assert (found.st_uid, found.st_gid) == expected


async def test_a_stat_has_nanoseconds_and_one_kind(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    os.utime(tmp_path / "f", ns=(1, 1_700_000_000_123_456_789))
    handle = await do(files, Open(at(tmp_path, "f")))
    for found in (await do(files, Stat(at(tmp_path, "f"))), await do(files, StatHandle(handle))):
        assert (found.kind, found.size, found.modified_ns) == (KindMask.FILE, 1, 1_700_000_000_123_456_789)
    assert (await do(files, StatFileSystem(at(tmp_path, "f")))).total_bytes > 0


# Directories


async def listed(files: LocalFiles, path: bytes, limit: int = MAX_LIST_ENTRIES) -> list[ListedEntry]:
    handle = await do(files, Open(path, DIRECTORY))
    found: list[ListedEntry] = []
    while True:
        page = await do(files, ListDirectory(handle, limit))
        assert len(page.entries) <= limit
        found += page.entries
        if page.end:
            files.release(handle)
            return found


@pytest.mark.parametrize("limit", [1, 7, 100, 5000])
async def test_pages_make_up_the_directory(files: LocalFiles, tmp_path: Path, limit: int) -> None:
    """Each entry once, whatever the page size; no more than the bound of the waist."""
    for number in range(100):
        (tmp_path / f"{number}").touch()
    found = await listed(files, os.fsencode(tmp_path), limit)
    assert sorted(entry.path for entry in found) == sorted(os.listdir(os.fsencode(tmp_path)))


async def test_entries_carry_what_they_are(files: LocalFiles, tmp_path: Path) -> None:
    """Names byte for byte; links with what they lead to, a loop or a dangling one with nothing."""
    os.mkdir(tmp_path / "d")
    for name, text in (("to-d", "d"), ("dangling", "absent"), ("loop", "loop")):
        os.symlink(text, tmp_path / name)
    os.close(os.open(os.path.join(os.fsencode(tmp_path), b"\xff\n"), os.O_CREAT))
    kinds = {
        entry.path: (entry.stat.kind, entry.target_kind)
        for entry in await listed(files, os.fsencode(tmp_path))
    }
    link = KindMask.SYMLINK
    assert kinds == {
        b"d": (KindMask.DIRECTORY, KindMask.DIRECTORY),
        b"to-d": (link, KindMask.DIRECTORY),
        b"dangling": (link, KindMask.ABSENT),
        b"loop": (link, KindMask.ABSENT),
        b"\xff\n": (KindMask.FILE, KindMask.FILE),
    }


async def walked(files: LocalFiles, operation: OpenWalk, limit: int = MAX_LIST_ENTRIES) -> list[bytes]:
    handle = await do(files, operation)
    found: list[bytes] = []
    while True:
        page = await do(files, ReadWalk(handle, limit))
        found += (entry.path for entry in page.entries)
        assert page.errors == ()
        if page.end:
            files.release(handle)
            return found


def make_deep(tmp_path: Path, depth: int) -> None:
    """A chain of directories, beside each a file; longer than any path that the kernel takes."""
    current = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deeper", dir_fd=current)
        os.close(os.open("z", os.O_CREAT | os.O_WRONLY, dir_fd=current))
        below = os.open("deeper", os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = below
    os.close(current)


async def test_a_walk_survives_any_depth(files: LocalFiles, tmp_path: Path) -> None:
    """Deeper than the number of descriptors, the recursion limit and PATH_MAX; what lies beside the way is
    not missed.
    """
    depth = 1500
    make_deep(tmp_path, depth)
    before = len(os.listdir("/proc/self/fd"))
    handle = await do(files, OpenWalk(os.fsencode(tmp_path)))
    found: list[bytes] = []
    while True:
        page = await do(files, ReadWalk(handle))
        found += (entry.path for entry in page.entries)
        assert len(os.listdir("/proc/self/fd")) < before + 64
        if page.end:
            break
    files.release(handle)
    assert sum(path.endswith(b"z") for path in found) == depth
    assert max(path.count(b"/") for path in found) == depth - 1
    await remove_deep(tmp_path)


async def remove_deep(tmp_path: Path) -> None:
    process = await anyio.run_process(["rm", "-rf", str(tmp_path / "deeper")])
    assert process.returncode == 0


async def test_a_walk_goes_back_up_a_tree_that_moved(files: LocalFiles, tmp_path: Path) -> None:
    """A directory that is moved away while the walk is deep below it leads the walk back by name, not to
    where its parent is now: what is still to be visited there is that of the start.
    """
    start, outside = tmp_path / "start", tmp_path / "outside"
    sides = [f"side{number}" for number in range(10)]
    for name in sides:
        (outside / name).mkdir(parents=True)
        (outside / name / "secret").touch()
    directory = start
    for _ in range(80):
        directory = directory / "d"
    directory.mkdir(parents=True)
    parent = start
    for _ in range(19):
        parent = parent / "d"
    for name in sides:
        (parent / name).mkdir()
        (parent / name / "own").touch()
    handle = await do(files, OpenWalk(os.fsencode(start)))
    found: list[bytes] = []
    while not any(path.count(b"/") > 70 for path in found):
        found += (entry.path for entry in (await do(files, ReadWalk(handle, 2))).entries)
    seen = sum(path.endswith(b"/own") for path in found)
    assert seen < len(sides), "the walk has nothing left to visit beside its way"
    os.rename(parent / "d", outside / "moved")
    while True:
        page = await do(files, ReadWalk(handle, 2))
        found += (entry.path for entry in page.entries)
        if page.end:
            break
    assert not any(b"secret" in path or b"moved" in path for path in found)
    assert sum(path.endswith(b"/own") for path in found) == len(sides)


async def test_a_walk_does_not_enter_what_was_swapped(files: LocalFiles, tmp_path: Path) -> None:
    """A directory that became a link after it was reported is not descended into."""
    start, outside = tmp_path / "start", tmp_path / "outside"
    for path in (start / "d", outside):
        path.mkdir(parents=True)
    (outside / "secret").touch()
    handle = await do(files, OpenWalk(os.fsencode(start)))
    page = await do(files, ReadWalk(handle, 1))
    assert [entry.path for entry in page.entries] == [b"d"]
    (start / "d").rmdir()
    os.symlink(outside, start / "d")
    page = await do(files, ReadWalk(handle))
    assert (page.entries, page.errors, page.end) == ((), (), True)


async def test_a_walk_prunes_and_stops(files: LocalFiles, tmp_path: Path) -> None:
    """Pruned directories are reported and not entered; the depth is counted from direct children; no link is
    the start.
    """
    for name in ("a/b/c", "skip/b", "a/skip/c"):
        os.makedirs(tmp_path / name)
    path = os.fsencode(tmp_path)
    assert sorted(await walked(files, OpenWalk(path, (b"skip",)), 1)) == [
        b"a",
        b"a/b",
        b"a/b/c",
        b"a/skip",
        b"skip",
    ]
    assert sorted(await walked(files, OpenWalk(path, max_depth=1))) == [b"a", b"skip"]
    assert b"a/b/c" not in await walked(files, OpenWalk(path, max_depth=2))
    os.symlink("a", tmp_path / "link")
    assert await status_of(files, OpenWalk(at(tmp_path, "link"))) in (errno.ENOTDIR, errno.ELOOP)
