"""Nothing of a tree survives: each shape of tree against each way to end it, with a check that sees such processes."""

from __future__ import annotations

import errno
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from . import driver as d
from . import records as r
from .driver import DEADLINE_S, Warden
from .records import Ref, pair

PROGRAMS = ("sh", "sleep", "setsid", "env", "nohup")

# Name, script, and how many processes of it must have been seen before it counts as running.
SHAPES: dict[str, tuple[str, int]] = {
    "background": ("sleep 900 & sleep 900 & wait", 3),
    "setsid": ("setsid sleep 900 & setsid sleep 900 & wait", 3),
    "double-fork": ("(setsid sh -c 'sleep 900 & sleep 900' &); (sleep 900 &); exit 0", 3),
    "term-ignored": ("trap '' TERM HUP INT QUIT; nohup sleep 900 & while :; do sleep 0.2; done", 2),
    "stopped": ("sleep 900 & kill -STOP $!; setsid sh -c 'kill -STOP $$' & kill -STOP $$", 3),
    "cleared-environment": ("env -i $D/setsid $D/sleep 900 </dev/null >/dev/null 2>&1 & wait", 2),
    "nested-sessions": (
        'setsid sh -c \'setsid sh -c "setsid sh -c \\"sleep 900 & sleep 900\\" & wait" & wait\' & wait',
        5,
    ),
    # Each copy starts its successor in a session of its own and ends.
    "chasers": ("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do setsid sh $D/chase & done; wait", 8),
}
EVENTS = (
    "kill",
    "cancel",
    "close",
    "end-of-input",
    "host-killed",
    "warden-killed",
    "supervisor-killed",
    "lease",
)


class Zoo:
    """Programs at paths that nothing else uses, so that every process of a tree is recognised by what it executes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in PROGRAMS:
            source = shutil.which(name)
            assert source is not None
            shutil.copy(os.path.realpath(source), folder / name)
        (folder / "chase").write_text(f"{folder}/setsid {folder}/sh {folder}/chase &\n")
        (folder / "storm").write_text(f"while :; do {folder}/sh {folder}/storm & done\n")

    def spawn(self, script: str, **options: object) -> r.Op:
        place = os.fsencode(self.folder)
        environment = {b"PATH": place, b"D": place}
        argv = [b"sh", b"-c", script.encode()]
        return r.op_spawn(place + b"/sh", argv, environment, **options)  # type: ignore[arg-type]  # passed on

    def alive(self) -> list[int]:
        found: list[int] = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                if os.readlink(f"/proc/{entry}/exe").startswith(f"{self.folder}/"):
                    found.append(int(entry))
            except OSError:
                continue  # ended meanwhile, or a zombie, which runs nothing
        return found

    def wait_alive(self, least: int, warden: Warden | None = None) -> None:
        """The control: the check sees processes of this shape."""
        deadline = time.monotonic() + DEADLINE_S
        while len(self.alive()) < least:
            assert time.monotonic() < deadline, f"only {len(self.alive())} of {least} processes were seen"
            if warden is not None:
                while select.select([warden.socket], [], [], 0.01)[0]:
                    warden.read_some()
            else:
                time.sleep(0.01)

    def wait_none(self, deadline_s: float = DEADLINE_S) -> None:
        deadline = time.monotonic() + deadline_s
        empty = 0
        while empty < 3:
            empty = 0 if self.alive() else empty + 1
            assert time.monotonic() < deadline, f"survivors: {describe(self.alive())}"
            time.sleep(0.01)

    def kill(self) -> None:
        while found := self.alive():
            for pid in found:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass


def describe(pids: list[int]) -> list[str]:
    lines: list[str] = []
    for pid in pids:
        try:
            lines.append(Path(f"/proc/{pid}/status").read_text().split("Uid")[0].replace("\n", " "))
        except OSError:
            continue
    return lines


@pytest.fixture
def zoo(tmp_path: Path) -> Iterator[Zoo]:
    zoo = Zoo(tmp_path)
    yield zoo
    left = zoo.alive()
    zoo.kill()
    assert left == [], "the test left processes behind"


def supervisor_of(warden: Warden) -> int:
    """The one child of the warden."""
    found = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and parent_of(int(pid)) == warden.pid]
    assert len(found) == 1
    return found[0]


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def end_by_kill(warden: Warden, zoo: Zoo, script: str, least: int) -> None:
    handle, _ = warden.spawn(zoo.spawn(script))
    zoo.wait_alive(least, warden)
    report = warden.kill_tree(handle)
    assert zoo.alive() == [], describe(zoo.alive())
    assert report.gone
    assert report.survivors == ()
    assert handle in warden.exits
    assert warden.kill_tree(handle).method == 0
    assert warden.close().gone


def end_by_cancel(warden: Warden, zoo: Zoo, script: str, least: int) -> None:
    number = warden.submit(
        zoo.spawn(script),
        r.op_open(b"/dev/zero"),
        r.op_open(b"/dev/null", r.WRITE),
        r.op_copy(Ref(1), Ref(2), 1 << 60),
    )
    zoo.wait_alive(least, warden)
    warden.post(d.CANCEL, 0, r.u64(number))
    outcome = warden.outcome(number)
    assert outcome.status in (errno.ECANCELED, errno.EINTR)
    assert zoo.alive() == [], describe(zoo.alive())
    warden.close()


def end_by_close(warden: Warden, zoo: Zoo, script: str, least: int) -> None:
    warden.spawn(zoo.spawn(script))
    zoo.wait_alive(least, warden)
    reader = warden.call(d.CLOSE)
    assert reader.take("H") == 0
    assert warden.take_report(reader).gone
    assert zoo.alive() == [], describe(zoo.alive())
    assert warden.wait_process() == 0


def end_by_end_of_input(warden: Warden, zoo: Zoo, script: str, least: int) -> None:
    warden.spawn(zoo.spawn(script))
    zoo.wait_alive(least, warden)
    warden.socket.shutdown(1)
    assert warden.wait_process() == 0
    assert zoo.alive() == [], describe(zoo.alive())


def end_by_warden_killed(warden: Warden, zoo: Zoo, script: str, least: int) -> None:
    warden.spawn(zoo.spawn(script))
    zoo.wait_alive(least, warden)
    os.killpg(warden.pid, signal.SIGKILL)
    warden.wait_process()
    zoo.wait_none()


def end_by_supervisor_killed(warden: Warden, zoo: Zoo, script: str, least: int) -> None:
    handle, _ = warden.spawn(zoo.spawn(script))
    zoo.wait_alive(least, warden)
    os.kill(supervisor_of(warden), signal.SIGKILL)
    warden.wait_gone(handle)
    assert zoo.alive() == [], describe(zoo.alive())
    assert warden.kill_tree(handle).gone
    assert warden.close().gone


def end_by_lease(warden: Warden, zoo: Zoo, script: str, least: int) -> None:
    warden.spawn(zoo.spawn(script))
    zoo.wait_alive(least)
    assert warden.wait_process() == 1
    assert warden.ending is not None
    assert warden.ending[0] == 3
    zoo.wait_none()


ENDS: dict[str, Callable[[Warden, Zoo, str, int], None]] = {
    "kill": end_by_kill,
    "cancel": end_by_cancel,
    "close": end_by_close,
    "end-of-input": end_by_end_of_input,
    "warden-killed": end_by_warden_killed,
    "supervisor-killed": end_by_supervisor_killed,
    "lease": end_by_lease,
}


def end_by_host_killed(zoo: Zoo, flags: int, script: str, least: int) -> None:
    """A host of its own, killed with everything open."""
    host = subprocess.Popen(
        [
            sys.executable,
            "-c",
            HOST,
            str(d.ROOT),
            str(flags),
            str(zoo.folder),
            script,
        ],
        stdin=subprocess.DEVNULL,
    )
    try:
        zoo.wait_alive(least)
    finally:
        host.kill()
        host.wait()
    zoo.wait_none()


HOST = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from tests.unit.warden import driver as d, records as r
place = os.fsencode(sys.argv[3])
warden = d.Warden(flags=int(sys.argv[2]))
argv = [b"sh", b"-c", os.fsencode(sys.argv[4])]
warden.spawn(r.op_spawn(place + b"/sh", argv, {b"PATH": place, b"D": place}))
while True:
    time.sleep(10)
"""


@pytest.mark.slow
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_survives(zoo: Zoo, flags: int, shape: str, event: str) -> None:
    script, least = SHAPES[shape]
    if event == "host-killed":
        end_by_host_killed(zoo, flags, script, least)
        return
    with Warden(flags=flags, lease_ms=1000 if event == "lease" else 0) as warden:
        ENDS[event](warden, zoo, script, least)


@pytest.fixture
def pids_limit() -> Iterator[Path]:
    """A group for the warden and all below it in which only so many processes fit."""
    for root in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")):
        group = root / f"execworld-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / "pids.max").write_text("250")
        except OSError:
            group.rmdir()
            continue
        yield group
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                group.rmdir()
                return
            except OSError:
                assert time.monotonic() < deadline, "the group does not become empty"
                time.sleep(0.02)
    pytest.skip("no cgroup with a pids limit can be made here, and RLIMIT_NPROC does not bind root")


@pytest.mark.slow
@pytest.mark.parametrize("event", ["kill", "close", "end-of-input", "warden-killed"])
def test_a_fork_storm_under_a_limit_does_not_survive(
    zoo: Zoo, flags: int, pids_limit: Path, event: str
) -> None:
    def enter() -> None:
        (pids_limit / "cgroup.procs").write_text("0")

    with Warden(flags=flags, preexec=enter) as warden:
        # A shell that cannot fork exits, and a storm in which all fail at once is over: then it begins again.
        ENDS[event](warden, zoo, "while :; do sh $D/storm; done 2>/dev/null", 40)


def test_a_stopped_supervisor_is_woken(zoo: Zoo, flags: int) -> None:
    with Warden(flags=flags) as warden:
        handle, _ = warden.spawn(zoo.spawn("sleep 900 & sleep 900"))
        zoo.wait_alive(2, warden)
        os.kill(supervisor_of(warden), signal.SIGSTOP)
        assert warden.kill_tree(handle).gone
        assert zoo.alive() == []
        warden.close()


def test_a_term_to_a_supervisor_means_nothing(zoo: Zoo, flags: int) -> None:
    """It is the signal that the kernel sends it when the warden is gone; a program must not be able to fake that."""
    with Warden(flags=flags) as warden:
        handle, _ = warden.spawn(zoo.spawn("kill -TERM $PPID; sleep 0.1; exit 7"))
        assert os.waitstatus_to_exitcode(warden.wait_exit(handle).raw) == 7
        warden.close()


def test_the_method_is_reported(zoo: Zoo, flags: int) -> None:
    with Warden(flags=flags) as warden:
        handle, _ = warden.spawn(zoo.spawn("sleep 900 & sleep 900"))
        zoo.wait_alive(2, warden)
        report = warden.kill_tree(handle)
        assert report.method == (3 if flags else cgroup_or_not())
        assert warden.gone[handle] == report.method
        warden.close()


def cgroup_or_not() -> int:
    """What the warden itself says is its strongest way."""
    with Warden() as warden:
        reader = warden.call(d.FACTS)
        form = "HH"  # status, version
        for item in form:
            reader.take(item)
        reader.blob()
        for item in "IIHI":
            reader.take(item)
        for _ in range(4):
            reader.blob()
        for item in "QQiIII":
            reader.take(item)
        for _ in range(3):
            reader.blob()
        for _ in range(reader.take("I")):
            reader.blob()
        for _ in range(reader.take("I")):
            reader.blob()
            reader.blob()
        reader.take("q")
        method = reader.take("B")
        warden.close()
        return method


def test_no_group_is_left_behind(zoo: Zoo) -> None:
    """Neither after an orderly end nor after a SIGKILL with a command running."""

    def groups() -> set[str]:
        roots = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")]
        return {str(path) for root in roots if root.is_dir() for path in root.glob("execworld-*-*-*")}

    def mine(warden: Warden) -> set[str]:
        return {path for path in groups() if f"execworld-{warden.pid}-" in path}

    with Warden() as warden:
        handle, _ = warden.spawn(zoo.spawn("exit 0"))
        warden.wait_gone(handle)
        warden.close()
        assert mine(warden) == set()
    with Warden() as warden:
        warden.spawn(zoo.spawn("sleep 900"))
        zoo.wait_alive(1, warden)
        warden.process.kill()
        warden.wait_process()
        zoo.wait_none()
        deadline = time.monotonic() + DEADLINE_S
        while mine(warden):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_it_reaps_what_is_orphaned_to_it(zoo: Zoo) -> None:
    """No zombie stays, of commands or of what they left."""
    with Warden() as warden:
        for _ in range(20):
            handle, _ = warden.spawn(zoo.spawn("(sleep 0.01 &) ; (setsid sleep 0.02 &) ; exit 0"))
            warden.wait_gone(handle)
            warden.status(d.RELEASE, r.u64(handle))
        deadline = time.monotonic() + DEADLINE_S
        while zombies(warden.pid):
            assert time.monotonic() < deadline
            assert warden.status(d.PING) == 0
        warden.close()


def zombies(parent: int) -> list[str]:
    lines: list[str] = []
    for pid in os.listdir("/proc"):
        if pid.isdigit() and parent_of(int(pid)) == parent:
            lines += [line for line in describe([int(pid)]) if "zombie" in line]
    return lines


def test_a_tree_that_ends_by_itself_is_told(zoo: Zoo, flags: int) -> None:
    with Warden(flags=flags) as warden:
        handle, _ = warden.spawn(zoo.spawn("sleep 0.4 & exit 3"))
        ended = warden.wait_exit(handle)
        assert ended.tree_alive
        assert handle not in warden.gone
        assert warden.wait_gone(handle) == 0
        handle, _ = warden.spawn(zoo.spawn("exit 3"))
        assert not warden.wait_exit(handle).tree_alive
        assert warden.wait_gone(handle) == 0
        warden.close()


def test_programs_are_ordinary_files(zoo: Zoo) -> None:
    for name in PROGRAMS:
        assert (zoo.folder / name).stat().st_mode & stat.S_IXUSR


def in_a_pid_namespace() -> list[str]:
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", str(d.BINARY)]
    probe = (
        subprocess.run([*command[:-1], "true"], capture_output=True, check=False)
        if shutil.which("unshare")
        else None
    )
    if probe is None or probe.returncode != 0:
        pytest.skip("a pid namespace cannot be made here")
    return command


def test_as_the_init_of_a_world(zoo: Zoo, flags: int) -> None:
    """It reaps what nobody else does, ends trees in order, and takes everything along when it is killed."""
    command = in_a_pid_namespace()
    with Warden(command=command, flags=flags) as warden:
        handle, pid = warden.spawn(zoo.spawn("(setsid sleep 0.05 &); (setsid sleep 900 &); exit 3"))
        assert pid < 100
        assert warden.wait_exit(handle).raw == 3 << 8
        zoo.wait_alive(1, warden)
        assert warden.kill_tree(handle).gone
        assert zoo.alive() == []
        warden.spawn(zoo.spawn("setsid sleep 900 & sleep 900"))
        zoo.wait_alive(2, warden)
        assert warden.close().gone
        assert zoo.alive() == []
    with Warden(command=command, flags=flags) as warden:
        warden.spawn(zoo.spawn("setsid sleep 900 & sleep 900"))
        zoo.wait_alive(2, warden)
        warden.process.kill()
        warden.wait_process()
        zoo.wait_none()


def test_a_supervisor_that_ends_while_its_batch_goes_on_is_noticed(tmp_path: Path) -> None:
    """Nobody waits for the command before the batch that starts it is through, which takes its time here."""
    (tmp_path / "big").write_bytes(bytes(1 << 20))
    killing = r.op_spawn(b"/bin/sh", [b"sh", b"-c", b"kill -9 $PPID; exec sleep 1000"])
    with Warden() as warden:
        for _ in range(10):
            outcome = warden.batch(
                killing,
                r.op_open(os.fsencode(tmp_path / "big")),
                *[r.op_read_at(Ref(1), 0, 1 << 20) for _ in range(14)],
                r.op_close(Ref(1)),
            )
            if outcome.status:  # it was not even told that it had started
                continue
            handle, _ = pair(outcome.results[0])
            warden.wait_exit(handle)
            warden.wait_gone(handle)
        warden.close()
