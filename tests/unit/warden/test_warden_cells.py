"""Cells: what they are locked into, what is seen of it by probes, and limits of all of a cell."""

from __future__ import annotations

import errno
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from . import driver as d
from . import plans as p
from . import records as r
from .cells import ROOT, Builder, Place, cell_in, facts_of, full, groups_of, landlock_only, wait_until
from .plans import Cell, Plan
from .records import sh, u64

if TYPE_CHECKING:
    from tests.conftest import Note

needs_root = pytest.mark.skipif(not ROOT, reason="needs a warden with capabilities: run as root")

# ---- what a program is locked into

STATUS = "grep -E '^(NoNewPrivs|Seccomp|CapEff|CapPrm)' /proc/self/status"


def lock_of(cell: Cell) -> dict[str, str]:
    _, text = cell.output(sh(STATUS))
    return dict(re.findall(r"(\w+):\t(\w+)", text))


@pytest.mark.parametrize(
    "user", [pytest.param(False, marks=needs_root, id="root"), pytest.param(True, id="user")]
)
@pytest.mark.parametrize("landlock", [True, False], ids=["all-layers", "namespaces-only"])
def test_a_program_is_locked(place: Place, user: bool, landlock: bool) -> None:
    with (
        place.warden(user=user) as warden,
        cell_in(warden, full(place, warden, user=user, landlock=landlock)) as (cell, made),
    ):
        lock = lock_of(cell)
        assert lock["NoNewPrivs"] == "1"
        assert lock["Seccomp"] == "2"
        assert int(lock["CapEff"], 16) == int(lock["CapPrm"], 16) == 0
        status, text = cell.output(sh(f"echo x > {place.folder}/new", stderr=r.MERGE))
        assert status != 0, text
        assert cell.output(sh(f"echo x > {place.workspace}/new && cat {place.workspace}/new")) == (0, "x\n")
        _, number = cell.output(sh("echo $$"))
        assert int(number) < 100
        _, links = cell.output(sh("cat /proc/net/dev | grep -c :; cat /sys/class/net/lo/flags"))
        assert links.split()[0] == "1"
        status, text = cell.output(sh("unshare -m true", stderr=r.MERGE))
        assert status != 0
        assert "not permitted" in text
        assert cell.output(sh("ulimit -n")) == (0, "64\n")
        assert facts_of(cell).pid == 1
        assert facts_of(cell).namespaces == 0
        assert facts_of(cell).kill_method == 2
        assert cell.status(d.MAKE_CELL, b"") == errno.EPERM
        assert cell.status(d.DROP_CELL, u64(1)) == errno.EPERM
        assert p.drop(warden, made.handle).gone
    place.wait_empty(warden)


def test_loopback_is_up(place: Place) -> None:
    server = "a = socket.create_server(('127.0.0.1', 0))"
    script = f"import socket; {server}; socket.create_connection(a.getsockname()); print('up')"
    with place.warden(user=True) as warden, cell_in(warden, full(place, warden, user=True)) as (cell, _):
        python = r.op_spawn(b"/usr/bin/env", [b"env", b"python3", b"-c", script.encode()], stderr=r.MERGE)
        assert cell.output(python) == (0, "up\n")


@pytest.mark.parametrize(
    "user", [pytest.param(False, marks=needs_root, id="root"), pytest.param(True, id="user")]
)
def test_landlock_alone(place: Place, user: bool) -> None:
    with place.warden(user=user) as warden, cell_in(warden, landlock_only(place, warden)) as (cell, _):
        lock = lock_of(cell)
        assert (lock["NoNewPrivs"], int(lock["CapEff"], 16)) == ("1", 0)
        assert cell.output(sh(f"echo x > {place.workspace}/new && cat {place.workspace}/new")) == (0, "x\n")
        status, text = cell.output(sh(f"echo x > {place.scratch}/new", stderr=r.MERGE))
        assert status != 0, text
        outcome = cell.batch(r.op_open(os.fsencode(place.scratch / "new"), r.WRITE | r.CREATE))
        assert outcome.status == errno.EACCES


@pytest.mark.parametrize("layers", ["full", "landlock"])
def test_terminals(place: Place, layers: str) -> None:
    with place.warden(user=True) as warden:
        plan = full(place, warden, user=True) if layers == "full" else landlock_only(place, warden)
        with cell_in(warden, plan) as (cell, _):
            status, text = cell.output(sh("test -t 0 && stty size", terminal=(7, 33)))
            assert (status, text) == (0, "7 33\r\n")
            if layers == "landlock":
                status, text = cell.output(sh("exec 3<>/dev/ptmx", stderr=r.MERGE))
                assert status != 0, "a program must not open the terminals of others"


@needs_root
def test_commands_of_other_users(place: Place) -> None:
    with place.warden() as warden:
        plan = full(place, warden)
        with cell_in(warden, plan) as (cell, _):
            op = sh(f"id -u; id -G; {STATUS}", uid=1234, gid=1235, groups=[1236])
            status, text = cell.output(op)
            assert status == 0
            assert text.splitlines()[:2] == ["1234", "1235 1236"]
            assert "NoNewPrivs:\t1" in text
            handle, _ = cell.spawn(sh("sleep 600", uid=1234))
            assert cell.kill_tree(handle).gone


def test_the_ruleset_is_not_given_to_programs(place: Place) -> None:
    with place.warden(user=True) as warden, cell_in(warden, landlock_only(place, warden)) as (cell, _):
        _, text = cell.output(sh("for f in /proc/self/fd/*; do echo $f $(readlink $f); done"))
        assert "landlock" not in text
        assert {line.split()[0].rsplit("/", 1)[1] for line in text.splitlines()} <= {"0", "1", "2", "3"}


def test_a_program_can_neither_signal_nor_trace_the_cell(place: Place) -> None:
    with place.warden(user=True) as warden:
        if facts_of(warden).landlock < 6:
            pytest.skip("Landlock scopes signals from version 6 on")
        with cell_in(warden, landlock_only(place, warden)) as (cell, _):
            target = facts_of(cell).pid
            assert target > 1
            status, text = cell.output(sh(f"kill -0 {target}", stderr=r.MERGE))
            assert status != 0, text
            status, text = cell.output(sh(f"cat /proc/{target}/environ", stderr=r.MERGE))
            assert status != 0, text
            status, text = cell.output(sh(f"echo > /proc/{target}/mem", stderr=r.MERGE))
            assert status != 0, text
            # A twin: of its own child it may have both.
            assert cell.output(sh("sleep 600 & kill -0 $! && kill $!"))[0] == 0


FORKER = "warden-forker"
UNKNOWN = 3  # stage of a start


def pid_of(place: Place, name: str) -> int:
    """Of the one process of the warden with this name; 0 when there is none."""
    for pid in place.alive():
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                return pid
        except OSError:
            continue  # ended meanwhile
    return 0


def scopes_signals(warden: d.Warden) -> None:
    if facts_of(warden).landlock < 6:
        pytest.skip("Landlock scopes signals from version 6 on")


@pytest.mark.parametrize(
    "user", [pytest.param(False, marks=needs_root, id="root"), pytest.param(True, id="user")]
)
def test_programs_of_a_cell_may_signal_each_other(place: Place, user: bool) -> None:
    """Also where they have no numbers of their own: what one command left another one can end."""
    with place.warden(user=user) as warden:
        scopes_signals(warden)
        with cell_in(warden, landlock_only(place, warden)) as (cell, _):
            handle, pid = cell.spawn(sh("exec sleep 600"))
            assert cell.output(sh(f"kill -TERM {pid}", stderr=r.MERGE)) == (0, "")
            assert cell.wait_exit(handle).raw & 0x7F == signal.SIGTERM
    place.wait_empty(warden)


@pytest.mark.parametrize(
    "user", [pytest.param(False, marks=needs_root, id="root"), pytest.param(True, id="user")]
)
def test_a_program_cannot_trace_what_supervises_it(place: Place, user: bool) -> None:
    """Although it is in the same domain, and might end it."""
    with place.warden(user=user) as warden:
        scopes_signals(warden)
        with cell_in(warden, landlock_only(place, warden)) as (cell, _):
            for target in ("$PPID", str(pid_of(place, FORKER))):
                for attempt in ("cat /proc/%s/environ", "echo >/proc/%s/mem", "readlink /proc/%s/fd/0"):
                    status, text = cell.output(sh(attempt % target, stderr=r.MERGE))
                    assert status != 0, (attempt, target, text)
            # A twin: of its own child it may have it.
            assert cell.output(sh("sleep 600 & readlink /proc/$!/fd/0 && kill $!"))[0] == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_who_ends_what_forks_programs_has_no_reach_of_the_next(place: Place, number: signal.Signals) -> None:
    with place.warden(user=True) as warden:
        scopes_signals(warden)
        with cell_in(warden, landlock_only(place, warden)) as (cell, _):
            before = pid_of(place, FORKER)
            waiting, _ = cell.spawn(
                sh("read pid; kill -0 $pid && echo reached", stdin=r.PIPE, stderr=r.MERGE)
            )
            assert cell.output(sh(f"kill -{number} {before}; echo on")) == (0, "on\n")
            # More at a time than supervisors wait for another command.
            handles = [cell.spawn(sh("exec sleep 600"))[0] for _ in range(20)]
            wait_until(lambda: pid_of(place, FORKER) not in (0, before))
            after = pid_of(place, FORKER)
            assert after not in (0, before)
            cell.send(waiting, f"{after}\n".encode())
            assert "reached" not in cell.read_all(waiting).decode()
            assert cell.wait_exit(waiting).raw != 0
            for handle in handles:
                assert cell.kill_tree(handle).gone
    place.wait_empty(warden)


def test_a_program_that_ends_its_supervisor_at_once_is_not_said_not_to_have_started(place: Place) -> None:
    """Some are faster than the note that they were started."""
    script = b"echo ran >>$1; kill -KILL $PPID; exec sleep 600"
    log = place.workspace / "log"
    with place.warden(user=True) as warden:
        scopes_signals(warden)
        with cell_in(warden, landlock_only(place, warden)) as (cell, _):
            for _ in range(60):
                arguments = [b"sh", b"-c", script, b"sh", os.fsencode(log)]
                outcome = cell.batch(r.op_spawn(b"/bin/sh", arguments, stdout=r.NULL, stderr=r.NULL))
                assert (outcome.status, outcome.detail) in ((0, 0), (errno.EAGAIN, UNKNOWN)), outcome
            assert log.read_text().count("ran") > 0
    place.wait_empty(warden)


def test_other_signals_do_nothing_to_what_forks_programs(place: Place) -> None:
    """Not those that dump core, nor what the warden itself listens to: it has the memory of the cell."""
    numbers = [int(number) for number in signal.valid_signals() if number not in (9, 19)]
    script = "for n in {}; do kill -$n {} || exit 1; done; echo on"
    with place.warden(user=True) as warden:
        scopes_signals(warden)
        with cell_in(warden, landlock_only(place, warden)) as (cell, _):
            before = pid_of(place, FORKER)
            assert cell.output(sh(script.format(" ".join(map(str, numbers)), before))) == (0, "on\n")
            assert cell.output(sh("echo on")) == (0, "on\n")
            assert pid_of(place, FORKER) == before


# ---- probes

NAMELESS = [kind for kind in range(1, p.GRANTED_PORT) if kind not in (p.READ, p.WRITE_BELOW)]
FREE_UNDER_LANDLOCK = {
    p.CHANGE_MODE,
    p.CONNECT_UNIX,
}  # of the versions that exist so far, some are not covered


def test_probes_have_an_unconfined_twin(place: Place) -> None:
    with place.warden(user=True) as warden:
        probes = [(kind, b"") for kind in NAMELESS]
        probes += [(p.READ, os.fsencode(place.secret)), (p.WRITE_BELOW, os.fsencode(place.workspace))]
        probes += [(p.WRITE_BELOW, os.fsencode(place.scratch))]
        plan = replace(full(place, warden, user=True), probes=probes)
        with cell_in(warden, plan) as (_, made):
            results = dict(zip([kind for kind, _ in probes[:-2]], made.probes, strict=False))
            unavailable = {p.VSOCK, p.MULTIPATH_TCP, p.FAST_OPEN}
            assert {kind for kind, result in results.items() if result[0] != 0} <= unavailable
            for kind in (p.WRITE, p.TRUNCATE, p.CREATE, p.REMOVE, p.CHANGE_MODE):
                assert results[kind][1] == errno.EROFS
            for kind in (p.CONNECT_TCP, p.FAST_OPEN, p.MULTIPATH_TCP, p.SEND_UDP, p.CONNECT_ABSTRACT):
                assert results[kind][1] != 0
            for kind in (p.SIGNAL, p.SET_LIMIT, p.TRACE, p.READ_ENVIRONMENT, p.SEE_PROCESS):
                assert results[kind][1] in (errno.ESRCH, errno.ENOENT)
            # What it makes itself it may have, of an own network too.
            for kind in (p.OWN_TCP, p.OWN_UDP, p.OWN_SIGNAL, p.OWN_TRACE, p.OWN_UNIX, p.OWN_PAIR):
                assert results[kind] == (0, 0), kind
            assert results[p.READ] == (0, 0)
            assert made.probes[-2:] == ((0, 0), (0, errno.EROFS))
        # Without any step everything has its effect, also in the child under an empty lock.
        nothing = replace(plan, steps=[], rules=None, capabilities=None, filter=b"", limits=[])
        with cell_in(warden, nothing) as (_, made):
            for (kind, _), (unconfined, confined) in zip(probes, made.probes, strict=True):
                assert unconfined == confined, kind
    place.wait_empty(warden)


def test_targets_may_lie_in_a_directory_with_a_long_name(place: Place) -> None:
    """Longer than the address of a socket."""
    scratch = place.scratch / ("long" * 40)
    scratch.mkdir(mode=0o777)
    scratch.chmod(0o777)
    with place.warden(user=True) as warden:
        plan = Plan(probes=[(p.CONNECT_UNIX, b"")], scratch=os.fsencode(scratch))
        with cell_in(warden, plan) as (_, made):
            assert made.probes == ((0, 0),)
    assert list(scratch.iterdir()) == []


def test_a_filter_that_kills_counts_as_a_refusal(place: Place) -> None:
    with place.warden(user=True) as warden:
        plan = Plan(
            filter=p.deny(p.PROCESS_VM_READV_CALL, action=0x8000_0000),
            probes=[(p.TRACE, b""), (p.SIGNAL, b"")],
            scratch=os.fsencode(place.scratch),
        )
        with cell_in(warden, plan) as (_, made):
            assert made.probes == ((0, errno.EPERM), (0, 0))


def test_a_hidden_file_is_another_one(place: Place) -> None:
    with place.warden(user=True) as warden:
        builder = Builder(place, warden)
        builder.add(p.unshare(p.NEWUSER | p.NEWNS), p.map_ids(), p.private_mounts())
        hidden = builder.pin(place.scratch)
        builder.add(p.new_file_system(b"tmpfs", hidden))
        plan = Plan(
            builder.steps,
            probes=[(p.READ, os.fsencode(place.scratch)), (p.READ, os.fsencode(place.secret))],
            scratch=os.fsencode(place.workspace),
        )
        with cell_in(warden, plan) as (_, made):
            assert made.probes == ((0, errno.ENOENT), (0, 0))


# ---- limits


@needs_root
def test_a_limit_of_processes_binds(place: Place) -> None:
    with place.warden() as warden:
        made = p.make(warden, Plan(processes=40))
        if made.methods[0] == p.NO_LIMIT:
            pytest.skip(f"no group can hold it here: {os.strerror(made.errors[0])}")
        cell = Cell(warden, made.handle)
        script = "n=0; while [ $n -lt 80 ]; do sleep 600 & n=$((n+1)); done; echo all"
        name, _ = cell.spawn(sh(script, stderr=r.MERGE))
        assert cell.wait_exit(name).raw != 0
        assert cell.kill_tree(name).gone
        assert b"fork" in cell.read_all(name)
        cell.close_ends()


@needs_root
def test_a_limit_of_memory_binds(place: Place) -> None:
    with place.warden() as warden:
        made = p.make(warden, Plan(memory=64 << 20))
        if made.methods[1] == p.NO_LIMIT:
            pytest.skip(f"no group can hold it here: {os.strerror(made.errors[1])}")
        cell = Cell(warden, made.handle)
        status, _ = cell.output(sh("head -c 200000000 /dev/zero | exec tail -n 1"))
        assert status == 128 + signal.SIGKILL
        assert cell.output(sh("echo alive")) == (0, "alive\n")
        cell.close_ends()


def controllers_of_v2() -> tuple[Path | None, set[str]]:
    """Where version 2 is mounted, and what its root has: a controller belongs to one version at a time."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[0] == "cgroup2" and before.split()[3] == "/":
            mounted = Path(before.split()[4])
            return mounted, set((mounted / "cgroup.controllers").read_text().split())
    return None, set()


@needs_root
@pytest.mark.parametrize(
    ("controller", "index", "plan", "file"),
    [
        ("pids", 0, Plan(processes=40), "pids.max"),
        ("memory", 1, Plan(memory=64 << 20), "memory.max"),
    ],
    ids=["pids", "memory"],
)
def test_the_version_that_has_the_controller_holds_the_limit(
    place: Place, note: Note, controller: str, index: int, plan: Plan, file: str
) -> None:
    mounted, controllers = controllers_of_v2()
    with place.warden() as warden, cell_in(warden, plan) as (_, made):
        groups = [Path(group) for group in groups_of(warden)]
        newer = [group for group in groups if mounted is not None and mounted in group.parents]
        with_inner = [path for group in newer for path in (group, *group.glob("c*"))]
        limited = [group for group in with_inner if (group / file).exists()]
        if made.methods[index] == p.CGROUP_V2:
            note(f"{controller}: version 2")
            wanted = str(plan.processes or plan.memory)
            assert [(group / file).read_text().strip() for group in limited].count(wanted) == 1
        else:
            note(
                f"{controller}: version 1, because version 2 has only {', '.join(sorted(controllers)) or 'none'}"
                if controller not in controllers
                else f"{controller}: version 2 gives it to groups without processes alone"
            )
            assert limited == []
        if controller not in controllers:
            assert made.methods[index] != p.CGROUP_V2
        elif Path("/proc/self/cgroup").read_text().splitlines()[-1] == "0::/":
            assert made.methods[index] == p.CGROUP_V2  # from the root anything may be handed down
    place.wait_empty(warden)
    assert groups_of(warden) == []


def test_a_limit_that_cannot_be_held_is_reported(place: Place) -> None:
    with place.warden(user=True) as warden:
        made = p.make(warden, Plan(processes=100, memory=64 << 20))
        assert made.outcome == 0
        for method, error in zip(made.methods, made.errors, strict=True):
            assert (method == p.NO_LIMIT) == (error != 0)


def test_the_program_may_have_been_deleted(place: Place) -> None:
    with place.warden(user=True) as warden:
        place.binary.unlink()
        with cell_in(warden, Plan()) as (cell, _):
            assert cell.status(d.PING) == 0


def test_the_directory_is_entered_again(place: Place) -> None:
    folder = os.getcwd()
    try:
        os.chdir(place.workspace)
        with place.warden(user=True) as warden, cell_in(warden, full(place, warden, user=True)) as (cell, _):
            cell.run(r.op_open(b"relative", r.WRITE | r.CREATE))
    finally:
        os.chdir(folder)
    assert (place.workspace / "relative").exists()
