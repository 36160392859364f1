"""Every operation of a batch, over the raw protocol."""

from __future__ import annotations

import errno
import os
import socket
import threading
from pathlib import Path

import pytest

from . import driver as d
from . import records as r
from .driver import Warden
from .records import Failure, Ref, Stat, Step

FILE, DIRECTORY, SYMLINK = 2, 4, 8
KIND, VERSION, LINKS, SIZE = 4097, 4098, 4099, 4100


def here(tmp_path: Path, *parts: str) -> bytes:
    return os.fsencode(tmp_path.joinpath(*parts))


def stat_of(value: object) -> Stat:
    assert isinstance(value, Stat)
    return value


def test_a_write_is_seen_by_a_later_read_of_the_same_batch(warden: Warden, tmp_path: Path) -> None:
    name = here(tmp_path, "a")
    results = warden.run(
        r.op_open(name, r.READ | r.WRITE | r.CREATE | r.EXCLUSIVE, 0o600),
        r.op_write(Ref(0), b"hello world"),
        r.op_sync(Ref(0)),
        r.op_seek(Ref(0), -5, 2),
        r.op_read(Ref(0), 100, close_at_end=True),
        r.op_stat(name),
    )
    assert results[3:5] == [6, b"world"]
    found, expected = stat_of(results[5]), os.stat(name)
    assert (found.kind, found.mode, found.uid, found.gid) == (
        FILE,
        expected.st_mode,
        expected.st_uid,
        expected.st_gid,
    )
    assert (found.links, found.size, found.device, found.inode) == (1, 11, expected.st_dev, expected.st_ino)
    assert found.modified_ns == expected.st_mtime_ns
    assert found.changed_ns == expected.st_ctime_ns
    # closed at its end
    handle = results[0]
    assert isinstance(handle, int)
    assert warden.batch(r.op_read(handle, 1)).status == errno.EBADF


def test_read_and_write_of_the_largest_size(warden: Warden, tmp_path: Path) -> None:
    name, data = here(tmp_path, "big"), os.urandom(1 << 20)
    warden.run(r.op_open(name, r.WRITE | r.CREATE), r.op_write(Ref(0), data), r.op_close(Ref(0)))
    assert Path(os.fsdecode(name)).read_bytes() == data
    results = warden.run(
        r.op_open(name), r.op_read(Ref(0), 1 << 20), r.op_read_at(Ref(0), 5, 10), r.op_close(Ref(0))
    )
    assert results[1] == data
    assert results[2] == data[5:15]
    handle = warden.run(r.op_open(name))[0]
    assert isinstance(handle, int)
    assert warden.batch(r.op_read(handle, (1 << 20) + 1)).status == errno.EINVAL


def test_a_batch_of_many_megabytes_travels_in_pieces(warden: Warden, tmp_path: Path) -> None:
    pieces = [os.urandom(1 << 20) for _ in range(4)]
    name = here(tmp_path, "big")
    steps = [r.op_open(name, r.READ | r.WRITE | r.CREATE)]
    steps += [r.op_write(Ref(0), piece) for piece in pieces]
    steps += [r.op_seek(Ref(0), 0)] + [r.op_read(Ref(0), 1 << 20) for _ in pieces] + [r.op_close(Ref(0))]
    assert warden.run(*steps)[6:10] == pieces


def test_results_that_exceed_the_largest_message_fail_their_step(warden: Warden, tmp_path: Path) -> None:
    name = here(tmp_path, "big")
    Path(os.fsdecode(name)).write_bytes(bytes(1 << 20))
    outcome = warden.batch(r.op_open(name), *[r.op_read_at(Ref(0), 0, 1 << 20) for _ in range(17)])
    assert (outcome.status, outcome.step) == (errno.EMSGSIZE, 16)


def test_undo_runs_in_reverse_and_what_was_opened_is_closed(warden: Warden, tmp_path: Path) -> None:
    one, two = here(tmp_path, "one"), here(tmp_path, "two")
    before = warden.descriptors()
    outcome = warden.batch(
        Step(r.op_mkdir(one), undo=r.op_rmdir(one)),
        Step(
            r.op_open(one + b"/inner", r.WRITE | r.CREATE),
            undo=r.op_unlink(one + b"/inner"),
        ),
        Step(r.op_stat(two), tolerate=(errno.ENOENT,), undo=r.op_mkdir(two)),
        r.op_rename(two, one),
    )
    assert (outcome.status, outcome.step) == (errno.ENOENT, 3)
    assert isinstance(outcome[2], Failure)
    assert os.listdir(tmp_path) == []
    assert warden.descriptors() == before


def test_undo_may_use_the_handle_of_its_own_step(warden: Warden, tmp_path: Path) -> None:
    name = here(tmp_path, "f")
    outcome = warden.batch(
        Step(r.op_open(name, r.WRITE | r.CREATE), undo=r.op_write(Ref(0), b"undone")),
        r.op_stat(here(tmp_path, "nothing")),
    )
    assert outcome.status == errno.ENOENT
    assert Path(os.fsdecode(name)).read_bytes() == b"undone"


def test_references_to_a_tolerated_failure(warden: Warden, tmp_path: Path) -> None:
    nothing = here(tmp_path, "nothing")
    outcome = warden.batch(Step(r.op_open(nothing), tolerate=(errno.ENOENT,)), r.op_read(Ref(0), 1))
    assert (outcome.status, outcome.step) == (errno.EBADF, 1)
    outcome = warden.batch(Step(r.op_read_link(nothing), tolerate=(errno.ENOENT,)), r.op_stat(Ref(0)))
    assert (outcome.status, outcome.step) == (errno.ENOENT, 1)


@pytest.mark.parametrize(
    ("path", "parent", "name"),
    [
        (b"/", b"/", b"."),
        (b"/a", b"/", b"a"),
        (b"/a/b/", b"/a", b"b"),
        (b"a", b".", b"a"),
        (b"x//y", b"x", b"y"),
    ],
)
def test_parts_of_a_path(warden: Warden, tmp_path: Path, path: bytes, parent: bytes, name: bytes) -> None:
    """The link holds the path; links to its parts show what a part is."""
    link = here(tmp_path, "link")
    warden.run(
        r.op_symlink(path, link),
        r.op_open(here(tmp_path), r.DIRECTORY),
        r.op_read_link(b"link", Ref(1)),
        r.op_close(Ref(1)),
    )
    outcome = warden.batch(r.op_read_link(link), r.op_read_link(Ref(0, 2)), r.op_read_link(Ref(0, 3)))
    # Neither is a link: that the kernel says so (or that there is none) proves only that a path was formed.
    assert outcome.step == 1
    assert outcome.status in (errno.EINVAL, errno.ENOENT)
    for part, expected in ((2, parent), (3, name)):
        stat = warden.batch(r.op_read_link(link), r.op_stat(Ref(0, part)))
        wanted = Path(os.fsdecode(expected))
        assert (stat.status == 0) == wanted.exists()


def test_check_demands_in_their_order(warden: Warden, tmp_path: Path) -> None:
    name = here(tmp_path, "f")
    Path(os.fsdecode(name)).write_bytes(b"12345")
    os.link(name, here(tmp_path, "g"))
    info = os.stat(name)
    good = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
    stale = (*good[:4], good[4] - 1)

    def check(**demands: object) -> int:
        return warden.batch(r.op_stat(name), r.op_check(0, **demands)).status  # type: ignore[arg-type]  # passed on

    assert check(kinds=FILE, version=good, max_links=2, max_size=5) == 0
    assert check(kinds=DIRECTORY) == KIND
    assert check(kinds=FILE, version=stale) == VERSION
    assert check(kinds=FILE, version=(*good[:4], None)) == 0
    assert check(kinds=FILE, version=(*good[:3], good[3] + 1, None)) == VERSION
    assert check(kinds=FILE, max_links=1) == LINKS
    assert check(kinds=FILE, max_size=4) == SIZE
    assert check(kinds=FILE, max_links=1, max_size=4) == LINKS
    directory = warden.batch(r.op_stat(here(tmp_path)), r.op_check(0, DIRECTORY, max_links=1))
    assert directory.status == 0


def test_check_of_what_is_not_there(warden: Warden, tmp_path: Path) -> None:
    nothing = Step(r.op_stat(here(tmp_path, "nothing")), tolerate=(errno.ENOENT, errno.ENOTDIR))
    version = (1, 2, 3, 4, 5)
    assert warden.batch(nothing, r.op_check(0, 1, version=version)).status == 0
    assert warden.batch(nothing, r.op_check(0, FILE)).status == KIND
    loop = here(tmp_path, "loop")
    os.symlink(loop, loop)
    outcome = warden.batch(Step(r.op_stat(loop), tolerate=(errno.ELOOP,)), r.op_check(0, 1))
    assert outcome.status == errno.ELOOP


@pytest.mark.parametrize("missing_ok", [False, True])
def test_real_path_resolves_every_link(warden: Warden, tmp_path: Path, missing_ok: bool) -> None:
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "f").write_text("")
    os.symlink("d/../d/./e/", tmp_path / "relative")
    os.symlink(tmp_path / "relative", tmp_path / "absolute")
    os.symlink("missing/inner", tmp_path / "dangling")
    os.symlink("loop", tmp_path / "loop")

    def resolve(name: str) -> object:
        outcome = warden.batch(r.op_real_path(here(tmp_path, name), missing_ok))
        return outcome[0] if outcome.status == 0 else outcome.status

    root = os.path.realpath(tmp_path)
    assert resolve("absolute/..//../f") == os.fsencode(f"{root}/f")
    assert resolve("relative") == os.fsencode(f"{root}/d/e")
    assert resolve("loop") == errno.ELOOP
    assert resolve("f/x") == errno.ENOTDIR
    assert resolve("dangling") == (os.fsencode(f"{root}/missing/inner") if missing_ok else errno.ENOENT)
    assert resolve("no/such") == (os.fsencode(f"{root}/no/such") if missing_ok else errno.ENOENT)
    assert resolve("no/../f") == (os.fsencode(f"{root}/f") if missing_ok else errno.ENOENT)


def test_open_beneath_does_not_leave(warden: Warden, tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret").write_text("s")
    os.symlink("../secret", tmp_path / "inside" / "out")
    base = r.op_open(here(tmp_path, "inside"), r.DIRECTORY)
    assert warden.batch(base, r.op_open(b"out", r.READ, base=Ref(0))).status == 0
    assert warden.batch(base, r.op_open(b"out", r.READ | r.BENEATH, base=Ref(0))).status == errno.EXDEV
    assert warden.batch(base, r.op_open(b"../secret", r.READ | r.BENEATH, base=Ref(0))).status == errno.EXDEV
    assert warden.batch(base, r.op_open(b"out", r.READ | r.NO_SYMLINKS, base=Ref(0))).status == errno.ELOOP
    assert warden.batch(base, r.op_open(b"out", r.READ | r.NO_FOLLOW, base=Ref(0))).status == errno.ELOOP


def test_names(warden: Warden, tmp_path: Path) -> None:
    a, b, c = (here(tmp_path, name) for name in "abc")
    warden.run(r.op_open(a, r.WRITE | r.CREATE), r.op_close(Ref(0)), r.op_link(a, b), r.op_symlink(b"b", c))
    assert os.readlink(c) == b"b"
    assert os.stat(a).st_nlink == 2
    assert warden.run(r.op_read_link(c)) == [b"b"]
    assert warden.batch(r.op_rename(a, c, 1)).status == errno.EEXIST
    warden.run(r.op_rename(a, c, 2))
    assert os.path.islink(a)
    base = r.op_open(here(tmp_path), r.DIRECTORY)
    warden.run(
        base, r.op_rename(b"a", b"z", 0, Ref(0), Ref(0)), r.op_unlink(b"z", Ref(0)), r.op_close(Ref(0))
    )
    assert warden.batch(r.op_link(c, c)).status == errno.EEXIST
    warden.run(r.op_mkdir(here(tmp_path, "dir"), 0o700), r.op_rmdir(here(tmp_path, "dir")))
    assert warden.batch(r.op_rename(b, c, 3)).status == errno.EINVAL
    assert warden.batch(r.op_unlink(b"a\0b")).status == errno.EINVAL
    assert warden.batch(r.op_unlink(b"x" * 5000)).status == errno.ENAMETOOLONG
    assert warden.batch(r.op_unlink(b"")).status == errno.ENOENT


def test_attributes(warden: Warden, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("")
    b.write_text("")
    b.chmod(0o4751)
    warden.run(
        r.op_open(os.fsencode(a), r.READ),
        r.op_stat(os.fsencode(b)),
        r.op_set_mode(Ref(0), 0o600, mode_of=1),
        r.op_set_times(Ref(0), None, 1_500_000_000_123_456_789),
        r.op_close(Ref(0)),
    )
    assert a.stat().st_mode & 0o7777 == 0o751
    assert a.stat().st_mtime_ns == 1_500_000_000_123_456_789
    umask = os.umask(0)
    os.umask(umask)
    warden.run(
        r.op_open(os.fsencode(a), r.READ),
        Step(r.op_stat(b"/nonexistent"), tolerate=(errno.ENOENT,)),
        r.op_set_mode(Ref(0), 0o666, mode_of=1, apply_umask=True),
        r.op_set_owner(Ref(0), owner_of=1),
        r.op_set_times(Ref(0), -1_000_000_001, None),
        r.op_close(Ref(0)),
    )
    assert a.stat().st_mode & 0o7777 == 0o666 & ~umask
    assert a.stat().st_atime_ns == -1_000_000_001


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_owner(warden: Warden, tmp_path: Path) -> None:
    a = tmp_path / "a"
    a.write_text("")
    warden.run(r.op_open(os.fsencode(a)), r.op_set_owner(Ref(0), uid=12), r.op_close(Ref(0)))
    assert (a.stat().st_uid, a.stat().st_gid) == (12, os.getegid())


def test_list_gives_each_entry_once(warden: Warden, tmp_path: Path) -> None:
    for number in range(2500):
        (tmp_path / f"{number:05}").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "link").symlink_to(tmp_path)
    (handle,) = warden.run(r.op_open(here(tmp_path), r.DIRECTORY))
    assert isinstance(handle, int)
    entries: list[r.Entry] = []
    end, pages = False, 0
    while not end:
        (value,) = warden.run(r.op_list(handle, 1000))
        end, found = r.page(value)
        assert len(found) <= 1000
        entries += found
        pages += 1
    assert pages >= 3
    assert sorted(entry.path for entry in entries) == sorted(os.listdir(here(tmp_path)))
    targets = {entry.path: (entry.stat.kind, entry.target_kind) for entry in entries}
    assert targets[b"dangling"] == (SYMLINK, 1)
    assert targets[b"link"] == (SYMLINK, DIRECTORY)
    assert targets[b"00000"] == (FILE, FILE)
    assert warden.batch(r.op_list(handle, 0)).status == errno.EINVAL


def test_walk_prunes_and_keeps_to_the_depth(warden: Warden, tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / ".git" / "objects").mkdir(parents=True)
    (tmp_path / "a" / "loop").symlink_to(tmp_path)

    def walk(**options: object) -> list[bytes]:
        (handle,) = warden.run(r.op_open_walk(here(tmp_path), **options))  # type: ignore[arg-type]  # passed on
        assert isinstance(handle, int)
        names: list[bytes] = []
        end = False
        while not end:
            (value,) = warden.run(r.op_read_walk(handle, 2))
            end, entries, errors = r.walk_page(value)
            assert errors == []
            names += [entry.path for entry in entries]
        warden.run(r.op_close(handle))
        return names

    names = walk(prune=[b".git"])
    assert sorted(names) == [b".git", b"a", b"a/b", b"a/b/c", b"a/loop"]
    assert names.index(b"a") < names.index(b"a/b") < names.index(b"a/b/c")
    assert sorted(walk(max_depth=1)) == [b".git", b"a"]
    assert warden.batch(r.op_open_walk(here(tmp_path, "a", "loop"))).status == errno.ENOTDIR


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_walk_reports_what_it_cannot_read(warden: Warden, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0)
    (value,) = warden.run(r.op_open_walk(here(tmp_path)), r.op_read_walk(Ref(0)))[1:]
    assert r.walk_page(value)[2] == [(b"locked", errno.EACCES)]
    (tmp_path / "locked").chmod(0o700)


def test_lock_never_waits(warden: Warden, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    name = here(tmp_path, "f")
    first, second = warden.run(r.op_open(name), r.op_open(name))
    assert isinstance(first, int)
    assert isinstance(second, int)
    warden.run(r.op_lock(first, 2))
    assert warden.batch(r.op_lock(second, 1)).status == errno.EWOULDBLOCK
    warden.run(r.op_lock(first, 0), r.op_lock(second, 1), r.op_lock(first, 1))


def test_copy_from_the_positions(warden: Warden, tmp_path: Path) -> None:
    data = os.urandom(300_000)
    (tmp_path / "from").write_bytes(data)
    results = warden.run(
        r.op_open(here(tmp_path, "from")),
        r.op_open(here(tmp_path, "to"), r.WRITE | r.CREATE),
        r.op_seek(Ref(0), 7),
        r.op_copy(Ref(0), Ref(1), 1000),
        r.op_copy(Ref(0), Ref(1), 10**9),
        r.op_copy(Ref(0), Ref(1), 1),
    )
    assert results[3:] == [1000, len(data) - 1007, 0]
    assert (tmp_path / "to").read_bytes() == data[7:]
    results = warden.run(
        r.op_open(b"/proc/self/status"),
        r.op_open(here(tmp_path, "proc"), r.WRITE | r.CREATE),
        r.op_copy(Ref(0), Ref(1), 100),
    )
    assert results[2] == 100


def test_truncate_and_file_system(warden: Warden, tmp_path: Path) -> None:
    results = warden.run(
        r.op_open(here(tmp_path, "f"), r.WRITE | r.CREATE),
        r.op_truncate(Ref(0), 12345),
        r.op_stat_handle(Ref(0)),
        r.op_stat_fs(here(tmp_path)),
    )
    assert stat_of(results[2]).size == 12345
    total, available = r.pair(results[3])
    info = os.statvfs(tmp_path)
    assert total == info.f_blocks * info.f_frsize
    assert available == pytest.approx(info.f_bavail * info.f_frsize, rel=0.05)


def test_find_executable(warden: Warden, tmp_path: Path) -> None:
    (tmp_path / "plain").touch(0o644)
    (tmp_path / "program").touch(0o755)
    (tmp_path / "folder").mkdir()
    place = here(tmp_path)

    def find(name: bytes, *directories: bytes) -> object:
        outcome = warden.batch(r.op_find(name, directories))
        return outcome[0] if outcome.status == 0 else outcome.status

    assert find(b"program", b"/nonexistent", b"", place + b"/", b"/bin") == place + b"/program"
    assert find(b"plain", place) == errno.EACCES
    assert find(b"folder", place) == errno.EACCES
    assert find(b"nothing", place) == errno.ENOENT
    assert find(place + b"/program") == place + b"/program"
    assert find(place + b"/plain/x") == errno.ENOENT
    assert find(b"", place) == errno.ENOENT


def test_watch_reports_what_happens_in_a_directory(warden: Warden, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    results = warden.run(
        r.op_open(here(tmp_path), r.DIRECTORY),
        r.op_open_watch(),
        r.op_add_watch(Ref(1), here(tmp_path)),
        r.op_add_watch(Ref(1), b"sub", Ref(0)),
    )
    watch = results[1]
    assert isinstance(watch, int)
    os.rename(tmp_path / "sub", tmp_path / "renamed")
    (tmp_path / "renamed" / "x").touch()
    stream = warden.stream(watch)
    seen: list[tuple[int, int, bytes]] = []

    def records() -> list[tuple[int, int, bytes]]:
        reader = r.Reader(bytes(stream.data))
        found: list[tuple[int, int, bytes]] = []
        while not reader.done:
            found.append((reader.take("i"), reader.take("I"), reader.blob()))
        return found

    def complete() -> bool:
        seen[:] = records()
        return any(name == b"x" and mask & 8 for _, mask, name in seen)

    warden.until(complete, "the file was not reported")
    numbers = {results[2]: "top", results[3]: "sub"}
    readable = [(numbers[number], mask & 0xFFFF, name) for number, mask, name in seen]
    assert ("top", 0x40, b"sub") in readable
    assert ("top", 0x80, b"renamed") in readable
    assert ("sub", 0x100, b"x") in readable
    number = results[3]
    assert isinstance(number, int)
    warden.run(r.op_remove_watch(watch, number), r.op_close(watch))
    assert warden.batch(r.op_remove_watch(watch, number)).status == errno.EBADF
    assert warden.batch(r.op_open_watch(), r.op_add_watch(Ref(0), b"/etc/passwd")).status == errno.ENOTDIR


def test_an_overflow_of_a_watch_is_a_record(tmp_path: Path) -> None:
    """Nobody reads while more happens than the kernel keeps."""
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with Warden(credit=600, floor=600, give_back=False) as warden:
        watch, _ = warden.run(r.op_open_watch(), r.op_add_watch(Ref(0), here(tmp_path)))
        assert isinstance(watch, int)
        for number in range(most // 2 + 600):
            (tmp_path / f"{number}").touch()
        warden.credit(1 << 24, [(watch, 1, 1 << 24)])
        stream = warden.stream(watch)
        warden.until(lambda: b"\xff\xff\xff\xff\x00\x40\x00\x00" in stream.data, "no overflow was reported")
        warden.close()


@pytest.mark.parametrize("kind", ["tcp", "unix", "abstract"])
def test_connect(warden: Warden, tmp_path: Path, kind: str) -> None:
    if kind == "tcp":
        server = socket.create_server(("127.0.0.1", 0))
        op = r.op_connect(0, b"127.0.0.1", server.getsockname()[1])
    else:
        address = os.fsencode(tmp_path / "socket") if kind == "unix" else b"\0execworld-test-%d" % os.getpid()
        server = socket.socket(socket.AF_UNIX)
        server.bind(address)
        server.listen()
        op = r.op_connect(1, address)

    def echo() -> None:
        connection, _ = server.accept()
        with connection:
            while data := connection.recv(65536):
                connection.sendall(data.upper())
            connection.sendall(b"end")

    thread = threading.Thread(target=echo)
    thread.start()
    (handle,) = warden.run(op)
    assert isinstance(handle, int)
    data = b"x" * 100_000
    assert warden.send(handle, data) == 0
    assert warden.status(d.CLOSE_INPUT, r.u64(handle)) == 0
    assert warden.read_all(handle) == data.upper() + b"end"
    thread.join(10)
    assert warden.status(d.RELEASE, r.u64(handle)) == 0
    server.close()
    assert warden.send(handle, b"x") == errno.EBADF
    if kind != "abstract":
        assert warden.batch(op).status == errno.ECONNREFUSED
    assert warden.batch(r.op_connect(0, b"localhost", 1)).status == errno.EINVAL


def test_a_fifo_does_not_hang(warden: Warden, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert warden.batch(r.op_open(here(tmp_path, "fifo"), r.WRITE)).status == errno.ENXIO
    (handle,) = warden.run(r.op_open(here(tmp_path, "fifo"), r.READ | r.WRITE))
    assert isinstance(handle, int)
    assert warden.batch(r.op_read(handle, 10)).status == errno.EAGAIN
    warden.run(r.op_write(handle, b"abc"))
    assert warden.run(r.op_read(handle, 10)) == [b"abc"]


def test_batches_run_side_by_side_and_all_are_answered(warden: Warden, tmp_path: Path) -> None:
    numbers = [
        warden.submit(
            r.op_open(here(tmp_path, f"{index}"), r.READ | r.WRITE | r.CREATE),
            r.op_write(Ref(0), b"%d" % index),
            r.op_read_at(Ref(0), 0, 100),
            r.op_close(Ref(0)),
        )
        for index in range(500)
    ]
    for index, number in enumerate(numbers):
        assert warden.outcome(number)[2] == b"%d" % index


MALFORMED = [
    b"",
    r.u16(0) + r.u16(0),
    r.u16(0) + r.u16(1025) + bytes(5000),
    r.u16(1) + r.encode_batch([r.op_stat(b"/")])[2:],
    r.u32(0) + r.encode_batch([r.op_stat(b"/")]),  # as in version 1
    r.encode_batch([(0, b"")]),
    r.encode_batch([(35, b"")]),
    r.encode_batch([r.op_close(3)])[:-1],
    r.encode_batch([r.op_close(3)]) + b"x",
    r.encode_batch([r.op_close(None)]),
    r.encode_batch([r.op_close(Ref(0))]),
    r.encode_batch([r.op_stat(b"/"), r.op_close(Ref(0))]),
    r.encode_batch([r.op_stat(b"/"), r.op_stat(Ref(0))]),
    r.encode_batch([r.op_stat(b"/"), r.op_check(1, 2)]),
    r.encode_batch([r.op_real_path(b"/"), r.op_check(0, 2)]),
    r.encode_batch([Step(r.op_stat(b"/"), undo=r.op_open(b"/"))]),
    r.encode_batch([(33, r.path(b"/bin/true") + r.u32(0xFFFFFFFF))]),
]


@pytest.mark.parametrize("body", MALFORMED)
def test_a_malformed_batch_is_refused_as_a_whole(warden: Warden, body: bytes) -> None:
    number = warden.request(d.BATCH, body)
    warden.opcodes[number] = []
    outcome = warden.outcome(number)
    assert (outcome.status, outcome.step, outcome.results) == (errno.EPROTO, 0xFFFF, [])
