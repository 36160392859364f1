"""Sessions of a host, every message and every opcode, as seeds for the fuzz target.

    python -m tests.unit.warden.corpus DIRECTORY

The paths are those of the root that the target makes for itself: /d, /d/e, /d/f, /d/link, /d/loop, /tmp, /program.
"""

from __future__ import annotations

import sys
from pathlib import Path

from . import driver as d
from . import plans as p
from . import records as r
from .driver import Warden
from .records import Ref, Step, u8, u16, u32, u64

PREAMBLE = b"EXECWORLD-HOST\r\n"
FIRST = 1 << 32 | 1  # what the first handle of a warden is called
PROGRAM = b"/program"


def session(*frames: bytes, flags: int = 0) -> bytes:
    hello = Warden.hello(65536, 4096, 1 << 20, 0, flags=flags)
    return PREAMBLE + Warden.frame(d.HELLO, 0, hello) + b"".join(frames)


def batch(number: int, *steps: r.Op | Step) -> bytes:
    return Warden.frame(d.BATCH, number, r.encode_batch(steps))


def request(kind: int, number: int, body: bytes = b"") -> bytes:
    return Warden.frame(kind, number, body)


def sessions() -> dict[str, bytes]:
    spawn = r.op_spawn(PROGRAM, [b"program", b"x"], {b"A": b"b"}, b"/", stdin=r.PIPE)
    full = r.op_spawn(
        PROGRAM,
        [b"p"],
        {},
        b"/d",
        terminal=(24, 80),
        uid=0,
        gid=0,
        groups=[0, 1],
        limits=[(7, 64, 64)],
        umask=0o22,
    )
    process = (
        request(d.SEND, 2, u64(FIRST) + b"hello"),
        request(d.RESIZE, 3, u64(FIRST) + u16(5) + u16(6)),
        request(d.FOREGROUND, 4, u64(FIRST)),
        request(d.SIGNAL, 5, u64(FIRST) + u32(15) + u8(1)),
        Warden.frame(d.CREDIT, 0, u32(100) + u32(1) + u64(FIRST) + u8(1) + u32(100)),
        request(d.CLOSE_INPUT, 6, u64(FIRST)),
        request(d.KILL_TREE, 7, u64(FIRST)),
        request(d.RELEASE, 8, u64(FIRST)),
        request(d.CLOSE, 9),
    )
    write = (
        Step(
            r.op_open(b"/d/new", r.READ | r.WRITE | r.CREATE | r.EXCLUSIVE, 0o600),
            undo=r.op_unlink(b"/d/new"),
        ),
        r.op_write(Ref(0), b"data"),
        r.op_sync(Ref(0)),
        r.op_seek(Ref(0), 1),
        r.op_read(Ref(0), 10),
        r.op_read_at(Ref(0), 2, 10),
        r.op_truncate(Ref(0), 3),
        r.op_stat_handle(Ref(0)),
        r.op_check(7, 2, (1, 2, 3, 4, 5), 1, 100),
    )
    attributes = (
        r.op_open(b"/d/f", r.READ),
        r.op_stat(b"/d/f"),
        r.op_check(1, 2, max_size=1000),
        r.op_set_mode(Ref(0), 0o640, mode_of=1, apply_umask=True),
        r.op_set_times(Ref(0), 1, 2),
        Step(r.op_set_owner(Ref(0), owner_of=1), tolerate=(1, 22)),
        r.op_lock(Ref(0)),
        r.op_open(b"/tmp/copy", r.WRITE | r.CREATE),
        r.op_copy(Ref(0), Ref(7), 100),
        r.op_close(Ref(0)),
        r.op_stat_fs(b"/"),
    )
    names = (
        Step(r.op_symlink(b"/d/f", b"/tmp/s"), tolerate=(17,)),
        r.op_read_link(b"/tmp/s"),
        r.op_real_path(b"/d/link/../f"),
        r.op_real_path(b"/d/none/x", True),
        Step(r.op_link(Ref(2), b"/tmp/l"), tolerate=(17,)),
        r.op_rename(b"/tmp/l", b"/tmp/m", 0),
        r.op_open(Ref(2, 2), r.DIRECTORY),
        r.op_stat(Ref(2, 3), base=Ref(6)),
        r.op_mkdir(b"/tmp/x"),
        r.op_rmdir(b"/tmp/x"),
        r.op_unlink(b"/tmp/m"),
        r.op_find(b"program", [b"", b"/d", b"/"]),
    )
    listing = (
        r.op_open(b"/d", r.DIRECTORY),
        r.op_list(Ref(0), 2),
        r.op_list(Ref(0)),
        r.op_open_walk(b"/", [b"tmp"], 3),
        r.op_read_walk(Ref(3), 2),
        r.op_read_walk(Ref(3)),
        r.op_close(Ref(3)),
    )
    watch = (
        r.op_open_watch(),
        r.op_add_watch(Ref(0), b"/d"),
        r.op_open(b"/d/e", r.DIRECTORY),
        r.op_mkdir(b"/d/w"),
        r.op_rmdir(b"/d/w"),
        r.op_remove_watch(Ref(0), 1),
        r.op_close(Ref(0)),
    )
    whole = r.encode_batch([r.op_stat(b"/d/f"), r.op_stat(b"/d")])
    plan = p.Plan(
        steps=[
            p.unshare(p.NEWUSER | p.NEWNS | p.NEWIPC | p.NEWNET),
            p.map_ids(),
            p.pid_namespace(),
            p.private_mounts(),
            p.pin("/d"),
            p.pin("/d/f", directory=False),
            p.clone_tree(0),
            p.set_attributes(p.READ_ONLY),
            p.attach_tree(0, 0, p.NO_SETUID),
            p.new_file_system(b"tmpfs", 0, [(b"mode", b"0700"), (b"noswap", b"")], p.NO_DEVICES),
            p.loopback_up(),
            p.restrict(p.ruleset(0x1FFF, [(0, 0x1FFF), (1, 4)], 3, 3, [(80, 2)])),
            p.keep_capabilities(0xFF),
            p.filter_step(p.deny(1)),
        ],
        rules=p.ruleset(0x1FFF, [(0, 12)]),
        capabilities=0,
        filter=p.deny(1, 2),
        limits=[(7, 64, 64)],
        processes=10,
        memory=1 << 26,
    )
    probes = [(kind, b"") for kind in (1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 17, 18)] + [
        (6, b"/d/f"),
        (7, b"/tmp"),
    ]
    tried = p.Plan(probes=probes, scratch=b"/tmp", timeout_ms=2000)
    return {
        "cell": session(
            request(d.MAKE_CELL, 1, plan.encode()),
            request(d.MAKE_CELL, 2, p.Plan().encode()),
            request(d.DROP_CELL, 3, u64(FIRST)),
        ),
        "restrict": session(
            request(d.RESTRICT, 1, u64(2**64 - 1) + r.blob(p.deny(1, 2))),
            batch(2, spawn),
            request(d.RESTRICT, 3, u64(0) + r.blob(b"")),
            request(d.MAKE_CELL, 4, p.Plan().encode()),
        ),
        "cell-probes": session(
            request(d.MAKE_CELL, 1, tried.encode()),
            request(d.MAKE_CELL, 2, p.Plan(probes=[(13, b"")], scratch=b"/tmp", timeout_ms=900).encode()),
        ),
        "spawn": session(batch(1, spawn), *process),
        "spawn-no-cgroup": session(batch(1, spawn), *process, flags=1),
        "terminal": session(batch(1, full), *process),
        "spawn-found": session(
            batch(
                1,
                r.op_find(b"program", [b"/"]),
                r.op_real_path(b"/d"),
                r.op_spawn(Ref(0), [b"p"], cwd=Ref(1)),
            )
        ),
        "spawn-fails": session(
            batch(1, Step(r.op_spawn(b"/none", [b"p"]), tolerate=(2,)), spawn, r.op_stat(b"/none")),
            Warden.frame(d.CANCEL, 0, u64(1)),
        ),
        "write": session(batch(1, *write), batch(2, r.op_stat(b"/d/new"), r.op_unlink(b"/d/new"))),
        "attributes": session(batch(1, *attributes)),
        "names": session(batch(1, *names)),
        "listing": session(batch(1, *listing)),
        "watch": session(batch(1, *watch), request(d.RELEASE, 2, u64(FIRST))),
        "connect": session(
            batch(1, Step(r.op_connect(0, b"127.0.0.1", 9), tolerate=(101, 111))),
            batch(2, r.op_connect(1, b"/d/socket")),
            batch(3, r.op_connect(1, b"\0abstract")),
            batch(4, r.op_connect(0, b"::1", 9)),
        ),
        "pieces": session(
            Warden.frame(d.BATCH, 1, whole[:9], 1),
            request(d.PING, 2),
            Warden.frame(d.BATCH, 1, whole[9:20], 1),
            Warden.frame(d.BATCH, 3, whole),
            Warden.frame(d.BATCH, 1, whole[20:]),
        ),
        "small": session(
            request(d.PING, 1),
            request(d.FACTS, 2),
            request(d.MAKE_CELL, 3, b"x"),
            Warden.frame(d.CANCEL, 0, u64(7)),
        ),
    }


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in sessions().items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
