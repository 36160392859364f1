"""Cells: a plan is applied as a whole or leaves nothing, and nothing survives the end of one."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from . import driver as d
from . import plans as p
from .cells import Place, cell_in, facts_of, full, landlock_only, wait_until
from .driver import Warden
from .plans import Made, Plan
from .records import sh, u64

# ---- failures


def in_namespaces(*steps: bytes) -> list[bytes]:
    return [p.unshare(p.NEWUSER | p.NEWNS), p.map_ids(), p.private_mounts(), *steps]


def failing(place: Place) -> dict[str, tuple[list[bytes], int]]:
    """Plans for an ordinary user whose last step fails, and with what."""
    link = place.folder / "link"
    link.symlink_to(place.workspace)
    file = p.pin(place.secret, directory=False)
    everything = p.restrict(p.ruleset(p.EXECUTE))
    return {
        "unshare": ([p.unshare(p.NEWNS)], errno.EPERM),
        "map-ids": ([p.unshare(p.NEWUSER), p.map_ids(), p.map_ids()], errno.EPERM),
        "pid-namespace": ([p.pid_namespace()], errno.EPERM),
        "private-mounts": ([p.private_mounts()], errno.EPERM),
        "pin-missing": ([p.pin("/"), p.pin("/nonexistent")], errno.ENOENT),
        "pin-link": ([p.pin(link)], errno.ELOOP),
        "pin-no-directory": ([p.pin(place.secret)], errno.ENOTDIR),
        "clone-tree": ([p.pin("/"), p.clone_tree(0)], errno.EPERM),
        "attributes": ([p.set_attributes(p.READ_ONLY)], errno.EPERM),
        "attach": (
            in_namespaces(p.pin(place.workspace), file, p.clone_tree(0), p.attach_tree(0, 1)),
            errno.EINVAL,
        ),
        "file-system": (in_namespaces(file, p.new_file_system(b"nonesuch", 0)), errno.ENODEV),
        "file-system-option": (
            in_namespaces(p.pin("/mnt"), p.new_file_system(b"tmpfs", 0, [(b"nonesuch", b"1")])),
            errno.EINVAL,
        ),
        "loopback": ([p.loopback_up()], errno.EPERM),
        "restrict": ([p.restrict(p.ruleset(1 << 60))], errno.EINVAL),
        "seventeenth-layer": ([everything] * 17, errno.E2BIG),
        "filter": ([p.filter_step(b"\xff" * 8)], errno.EINVAL),
        "after-pid-namespace": (
            [p.unshare(p.NEWUSER), p.map_ids(), p.pid_namespace(), p.pin("/nonexistent")],
            errno.ENOENT,
        ),
    }


FAILING = [
    "unshare",
    "map-ids",
    "pid-namespace",
    "private-mounts",
    "pin-missing",
    "pin-link",
    "pin-no-directory",
    "clone-tree",
    "attributes",
    "attach",
    "file-system",
    "file-system-option",
    "loopback",
    "restrict",
    "seventeenth-layer",
    "filter",
    "after-pid-namespace",
]


@pytest.mark.parametrize("name", FAILING)
def test_a_step_that_fails_leaves_nothing(place: Place, name: str) -> None:
    steps, error = failing(place)[name]
    with place.warden(user=True) as warden:
        probes = [(p.WRITE, b""), (p.SIGNAL, b"")]
        plan = Plan(steps, probes=probes, scratch=os.fsencode(place.scratch), processes=100)
        if name in ("restrict", "seventeenth-layer") and not facts_of(warden).landlock:
            pytest.skip("this kernel has no Landlock, or it is off")
        assert p.make(warden, plan) == Made(p.STEP, len(steps) - 1, error)
        assert list(place.scratch.iterdir()) == []
        place.wait_alone(warden)
        assert warden.status(d.PING) == 0
    place.wait_empty(warden)


@pytest.mark.parametrize(
    ("plan", "outcome", "error"),
    [
        pytest.param(Plan(rules=p.ruleset(1 << 60)), p.LOCK, errno.EINVAL, id="ruleset"),
        pytest.param(Plan(filter=b"\xff" * 8), p.LOCK, errno.EINVAL, id="filter"),
        pytest.param(
            Plan(filter=p.instruction(6, 0, 0, 0x8000_0000)), p.LOCK, errno.EPERM, id="filter-kills"
        ),
        pytest.param(Plan(limits=[(99, 1, 1)]), p.LOCK, errno.EINVAL, id="limit"),
        pytest.param(Plan(probes=[(1, b"")], scratch=b"/nonexistent"), p.TARGETS, errno.ENOENT, id="scratch"),
    ],
)
def test_a_lock_or_targets_that_fail_leave_nothing(
    place: Place, plan: Plan, outcome: int, error: int
) -> None:
    with place.warden(user=True) as warden:
        assert p.make(warden, plan) == Made(outcome, 0, error)
        place.wait_alone(warden)


def test_time_runs_out(place: Place) -> None:
    with place.warden(user=True) as warden:
        slow = [p.pin("/")] * 4000
        made = p.make(warden, Plan(slow, timeout_ms=1))
        assert (made.outcome, made.error) == (p.START, errno.ETIMEDOUT)
        place.wait_alone(warden)
    place.wait_empty(warden)


PATH = os.fsencode("/")
SENSELESS: dict[str, bytes] = {
    "empty": b"",
    "trailing": Plan().encode() + b"\0",
    "no-time": Plan(timeout_ms=0).encode(),
    "too-long": Plan(timeout_ms=60_001).encode(),
    "opcode-0": Plan([b"\0"]).encode(),
    "opcode-14": Plan([b"\x0e"]).encode(),
    "unshare-nothing": Plan([p.unshare(0)]).encode(),
    "unshare-pids": Plan([p.unshare(0x2000_0000)]).encode(),
    "two-pid-namespaces": Plan([p.pid_namespace()] * 2).encode(),
    "relative-pin": Plan([p.pin("tmp")]).encode(),
    "nul-pin": Plan([p.pin("/tmp\0x")]).encode(),
    "pin-not-yet": Plan([p.clone_tree(0), p.pin("/")]).encode(),
    "tree-not-yet": Plan([p.pin("/"), p.attach_tree(0, 0)]).encode(),
    "attributes": Plan([p.set_attributes(1 << 40)]).encode(),
    "rule-of-no-pin": Plan([p.pin("/"), p.restrict(p.ruleset(1, [(1, 1)]))]).encode(),
    "lock-of-no-pin": Plan([p.pin("/")], rules=p.ruleset(1, [(1, 1)])).encode(),
    "half-an-instruction": Plan(filter=b"1234").encode(),
    "no-filter": Plan([p.filter_step(b"")]).encode(),
    "probe-0": Plan(probes=[(0, b"")], scratch=b"/tmp").encode(),
    "probe-28": Plan(probes=[(28, b"")], scratch=b"/tmp").encode(),
    "probe-without-scratch": Plan(probes=[(1, b"")]).encode(),
    "probe-with-target": Plan(probes=[(1, b"/x")], scratch=b"/tmp").encode(),
    "probe-without-target": Plan(probes=[(p.READ, b"")], scratch=b"/tmp").encode(),
    "too-many-steps": Plan([p.private_mounts()] * 4097).encode(),
    "too-many-probes": Plan(probes=[(1, b"")] * 257, scratch=b"/tmp").encode(),
}


def test_a_plan_that_makes_no_sense_starts_nothing(place: Place) -> None:
    with place.warden() as warden:
        for name, body in SENSELESS.items():
            assert warden.status(d.MAKE_CELL, body) == errno.EINVAL, name
        whole = Plan([p.pin("/")], rules=p.ruleset(1, [(0, 1)]), limits=[(7, 1, 1)]).encode()
        for size in range(len(whole)):
            assert warden.status(d.MAKE_CELL, whole[:size]) == errno.EINVAL
        assert place.alive() == [warden.pid]


# ---- the end


def busy(cell: Warden) -> None:
    """A command and one that left its session, both running."""
    script = "setsid sh -c 'echo away; exec sleep 600' & echo here; exec sleep 600"
    name, _ = cell.spawn(sh(script))
    stream = cell.stream(name)
    cell.until(lambda: stream.data.count(b"\n") == 2, "they do not start")


LAYERS: dict[str, Callable[[Place, Warden], Plan]] = {
    "namespaces": lambda place, warden: full(place, warden, user=True),
    "landlock": landlock_only,
    "nothing": lambda place, _: Plan(scratch=os.fsencode(place.scratch)),
}


def sleepers(warden: Warden) -> list[int]:
    """Descendants of the warden that are no warden."""
    found: list[int] = []
    waiting = [warden.pid]
    while waiting:
        pid = waiting.pop()
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            for thread in Path(f"/proc/{pid}/task").iterdir():
                children += (thread / "children").read_text().split()
        except OSError:
            continue
        found += [int(child) for child in children]
        waiting += [int(child) for child in children]
    return sorted(set(found))


def gone(pids: list[int]) -> None:
    wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids))
    assert [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()] == []


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("end", ["drop", "release", "cell-killed", "close", "end-of-input", "warden-killed"])
def test_nothing_survives(place: Place, layers: str, end: str) -> None:
    with place.warden(user=True, close=False) as warden:
        plan = replace(LAYERS[layers](place, warden), processes=200)
        with cell_in(warden, plan) as (cell, made):
            busy(cell)
            running = sleepers(warden)
            assert len(running) >= 5
            if end == "drop":
                assert p.drop(warden, made.handle).gone
            elif end == "release":
                assert warden.status(d.RELEASE, u64(made.handle)) == 0
            elif end == "cell-killed":
                for pid in running:
                    if b"warden\0cell" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        os.kill(pid, signal.SIGKILL)
                        break
                stream = warden.stream(made.handle)
                warden.until(lambda: stream.ended, "the stream does not end")
                report = p.drop(warden, made.handle)
                assert report.gone
            elif end == "close":
                assert warden.close().gone
            elif end == "end-of-input":
                warden.socket.close()
            else:
                warden.process.kill()
            gone(running)
        if end in ("drop", "release", "cell-killed"):
            assert warden.status(d.PING) == 0
    place.wait_empty(warden)


def test_a_cell_that_does_not_end_is_killed(place: Place) -> None:
    """It is stopped, as by a debugger, when it is dropped."""
    with place.warden(user=True) as warden:
        made = p.make(warden, Plan())
        for pid in sleepers(warden):
            if b"warden\0cell" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGSTOP)
        number = warden.request(d.DROP_CELL, u64(made.handle))
        reader = warden.reply(number, 30.0)
        assert reader.take("H") == 0
        report = Warden.take_report(reader)
        assert report.gone
        assert report.method != 0
        place.wait_alone(warden)
