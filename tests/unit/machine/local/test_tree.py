"""A tree is found by session, marker and descent, ended without a survivor, and never confused with another."""

from __future__ import annotations

import os
import resource
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from execworld.machine.local import tree

Condition = Callable[[], bool]
Eventually = Callable[[Condition, str], Awaitable[None]]


class Tree:
    """A leader as the machine starts one: in a session of its own, with a marker."""

    def __init__(self) -> None:
        self.marker = secrets.token_hex(8).encode()
        self.environment = {b"PATH": b"/usr/bin:/bin", tree.MARKER_NAME: self.marker}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, script: str, *arguments: str | Path) -> tree.Leader:
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", script, "sh", *map(str, arguments)],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return tree.Leader(self.process.pid, self.marker)

    def reap(self) -> int:
        assert self.process is not None
        return self.process.wait(timeout=20)

    def close(self) -> None:
        survivors = tree.kill_members(lambda: tree.marked_members(self.marker))
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        assert survivors == []


@pytest.fixture
def family() -> Generator[Tree]:
    family = Tree()
    try:
        yield family
    finally:
        family.close()


ReadNumber = Callable[[str], int]
Running = Callable[[int], bool]

# Each writes the pid of its last process to "$1" and keeps the leader alive.
RELATIONS = {
    "child": 'sleep 300 & echo $! >"$1"; wait',
    "grandchild": 'sh -c \'sleep 300 & echo $! >"$1"; wait\' sh "$1"; true',
    "orphan": '( sleep 300 & echo $! >"$1" ); sleep 300; true',
    "own-session": 'setsid sh -c \'echo $$ >"$1"; exec sleep 300\' sh "$1" & wait',
    "double-fork-daemon": '( setsid sh -c \'( echo $$ >"$1"; exec sleep 300 ) & \' sh "$1" & ); sleep 300; true',
    "ignores-term": '( trap "" TERM; sh -c \'echo $$ >"$1"; sleep 300; sleep 300\' sh "$1" ) & wait',
    "stopped": 'sh -c \'echo $$ >"$1"; kill -STOP $$; sleep 300\' sh "$1" & wait',
    "cleared-environment-in-session": 'env -i sleep 300 & echo $! >"$1"; wait',
    "cleared-environment-own-session-with-parent": 'env -i setsid sleep 300 & echo $! >"$1"; wait',
}


@pytest.mark.parametrize("relation", RELATIONS)
def test_every_relation_is_found_and_killed(
    family: Tree, relation: str, tmp_path: Path, number_in: ReadNumber, running: Running
) -> None:
    """Whatever a process did to leave its group, the sweep finds it and leaves nothing."""
    leader = family.start(RELATIONS[relation], tmp_path / "pid")
    pid = number_in("pid")
    if relation == "double-fork-daemon":
        pid = descendants_of(family)[-1]
    assert running(pid)
    assert pid in [member.pid for member in tree.tree_members(leader, reaped=False)]
    assert tree.kill_members(lambda: tree.tree_members(leader, reaped=False)) == []
    assert not running(pid)
    assert tree.tree_members(leader, reaped=False) == []
    assert family.reap() == -signal.SIGKILL


def descendants_of(family: Tree) -> list[int]:
    return [member.pid for member in tree.marked_members(family.marker)]


def test_what_the_leader_left_behind_is_found_after_its_end(
    family: Tree, tmp_path: Path, number_in: ReadNumber, running: Running
) -> None:
    """A job that outlives its reaped leader is found by the marker, also in a session of its own."""
    leader = family.start('( setsid sleep 300 & echo $! >"$1" ); exit 0', tmp_path / "pid")
    pid = number_in("pid")
    assert family.reap() == 0
    assert pid in [member.pid for member in tree.tree_members(leader, reaped=True)]
    assert tree.kill_members(lambda: tree.tree_members(leader, reaped=True)) == []
    assert not running(pid)


def test_a_foreign_process_is_never_a_member(family: Tree, running: Running) -> None:
    """Neither this process, nor its parent, nor a child of this process that is not of the tree."""
    stranger = Tree()
    try:
        other = stranger.start("sleep 300")
        leader = family.start("sleep 300 & wait")
        members = {member.pid for member in tree.tree_members(leader, reaped=False)}
        assert leader.pid in members
        assert members.isdisjoint({os.getpid(), os.getppid(), other.pid, 1})
        assert tree.kill_members(lambda: tree.tree_members(leader, reaped=False)) == []
        assert running(other.pid)
    finally:
        stranger.close()


def test_a_number_taken_over_by_another_process_is_not_the_tree(family: Tree) -> None:
    """After the leader was reaped, a process of the same number belongs to somebody else: its session is not ours."""
    leader = family.start("exec sleep 300")
    impostor = tree.Leader(leader.pid, b"marker-of-an-older-tree")
    assert [member.pid for member in tree.tree_members(impostor, reaped=False)] == [leader.pid]
    assert tree.tree_members(impostor, reaped=True) == []


def test_what_is_older_than_the_leader_is_not_looked_at(family: Tree) -> None:
    """It cannot be of the tree, whatever its environment says; what was started in the same tick can."""
    older = family.start("exec sleep 300")
    ticks = tree.start_ticks(older.pid)
    deadline = time.monotonic() + 10
    # Within execve(2), which changes the name first, a process shows no environment.
    while Path(f"/proc/{older.pid}/comm").read_text() != "sleep\n" or not tree.markers_of(older.pid):
        assert time.monotonic() < deadline, "the program did not start"
    gone = 1 << 30
    later, same = (tree.Leader(gone, family.marker, not_before) for not_before in (ticks + 1, ticks))
    assert tree.tree_members(later, reaped=True) == []
    assert [member.pid for member in tree.tree_members(same, reaped=True)] == [older.pid]


def test_a_process_is_never_older_than_the_time_before_it(family: Tree) -> None:
    for _ in range(20):
        before = tree.now_ticks()
        assert before <= tree.start_ticks(family.start("exec sleep 300").pid) <= tree.now_ticks() + 2
        family.close()


def test_a_member_with_another_start_time_gets_no_signal(family: Tree, running: Running) -> None:
    """The pair of number and start time names a process; a reused number does not match it."""
    leader = family.start("exec sleep 300")
    ticks = tree.start_ticks(leader.pid)
    assert ticks > 0
    older = tree.Member(leader.pid, ticks - 1)
    assert tree.open_pidfd(older) is None
    assert tree.signal_members([older], signal.SIGKILL) == 0
    assert running(leader.pid)
    assert tree.signal_members([tree.Member(leader.pid, ticks)], signal.SIGKILL) == 1
    assert family.reap() == -signal.SIGKILL
    assert tree.start_ticks(leader.pid) == 0
    assert tree.signal_members([tree.Member(leader.pid, ticks)], signal.SIGKILL) == 0


def test_a_zombie_is_not_alive(family: Tree, state_of: Callable[[int], str]) -> None:
    """A process that ended and was not waited for runs nothing, so nothing waits for it."""
    leader = family.start("exit 0")
    deadline = time.monotonic() + 10
    while state_of(leader.pid) != "Z":
        assert time.monotonic() < deadline, "the leader did not end"
        time.sleep(0.005)
    assert tree.tree_members(leader, reaped=False) == []


def test_markers_of_nested_worlds_are_told_apart(family: Tree) -> None:
    """A world inside another one adds its marker; both find the process, and a longer marker is not a shorter one."""
    family.environment[tree.MARKER_NAME] = b"outer.1:" + family.marker
    leader = family.start("exec sleep 300")
    deadline = time.monotonic() + 10
    program_name = Path(f"/proc/{leader.pid}/comm")
    # Within execve(2), which changes the name first, a process shows no environment.
    while program_name.read_text() != "sleep\n" or not tree.markers_of(leader.pid):
        assert time.monotonic() < deadline, "the program did not start"
    assert tree.markers_of(leader.pid) == [b"outer.1", family.marker]
    outer = tree.Leader(1 << 30, b"outer.1")
    assert [member.pid for member in tree.tree_members(outer, reaped=True)] == [leader.pid]
    assert tree.tree_members(tree.Leader(1 << 30, b"outer.10"), reaped=True) == []
    assert tree.tree_members(tree.Leader(1 << 30, b"outer"), reaped=True) == []


def test_a_name_with_parentheses_and_spaces_is_parsed(family: Tree, tmp_path: Path) -> None:
    """The command name in /proc may hold anything, also what looks like the fields after it."""
    program = tmp_path / "x) R 1 1 ("
    program.symlink_to("/bin/sleep")
    leader = family.start('exec "$1" 300', program)
    deadline = time.monotonic() + 10
    while b") R 1 1 (" not in Path(f"/proc/{leader.pid}/stat").read_bytes():
        assert time.monotonic() < deadline, "the program did not start"
        time.sleep(0.005)
    members = tree.tree_members(leader, reaped=False)
    assert [member.pid for member in members] == [leader.pid]


def test_a_pidfd_becomes_readable_at_the_end(family: Tree) -> None:
    leader = family.start("exec sleep 300")
    descriptor = tree.open_pidfd(tree.Member(leader.pid, tree.start_ticks(leader.pid)))
    assert descriptor is not None
    os.close(descriptor)


# Takes an unprivileged id and a limit on processes, goes on only when both are in force, and then forks for ever.
STORM = """
import os, resource, signal, sys, time
resource.setrlimit(resource.RLIMIT_NPROC, (40, 40))
os.setgroups([])
os.setgid(54322)
os.setuid(54322)
if 0 in os.getresuid() or resource.getrlimit(resource.RLIMIT_NPROC) != (40, 40):
    sys.exit(9)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.001)
"""


@pytest.mark.root
@pytest.mark.skipif(
    os.getuid() != 0, reason="takes another user id, so that a limit on processes counts its own alone"
)
@pytest.mark.slow
@pytest.mark.skipif(
    os.environ.get("EXECWORLD_FULL") != "1",
    reason="loads the host for a moment; set EXECWORLD_FULL=1 to run it",
)
def test_a_fork_storm_leaves_nothing(family: Tree) -> None:
    """Processes that fork as fast as they can, up to a limit, are all gone afterwards. The storm is proven first."""
    leader = family.start('exec "$1" -c "$2"', sys.executable, STORM)
    deadline = time.monotonic() + 20
    while len(tree.tree_members(leader, reaped=False)) < 20:
        assert time.monotonic() < deadline, "the storm did not rise, so its end would prove nothing"
        time.sleep(0.01)
    assert tree.kill_members(lambda: tree.tree_members(leader, reaped=False)) == []
    assert tree.marked_members(family.marker) == []


def test_a_limit_on_time_reports_what_is_left(family: Tree) -> None:
    """A sweep that cannot finish says which processes are left instead of running for ever."""
    leader = family.start("exec sleep 300")
    member = tree.Member(leader.pid, tree.start_ticks(leader.pid))
    unkillable = tree.Member(member.pid, member.start_ticks - 1)  # gets no signal, like one in state D
    before = time.monotonic()
    assert tree.kill_members(lambda: [unkillable], limit_s=0.2) == [unkillable]
    assert 0.2 <= time.monotonic() - before < 2


def free_descriptors() -> int:
    return max(int(name) for name in os.listdir("/proc/self/fd")) + 1


def without_descriptors() -> tuple[list[int], tuple[int, int]]:
    """Use up every descriptor of this process."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(free_descriptors() + 8, limits[1]), limits[1]))
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return taken, limits


def test_without_descriptors_nothing_is_declared_gone(family: Tree) -> None:
    """Where /proc cannot be read for want of a descriptor, a sweep fails; an empty answer would be a lie."""
    leader = family.start("sleep 300 & wait")
    look: Sequence[Callable[[], list[tree.Member]]] = (
        lambda: tree.tree_members(leader, reaped=False),
        lambda: tree.marked_members(family.marker),
        lambda: tree.kill_members(lambda: tree.tree_members(leader, reaped=False), limit_s=1),
    )
    for find in look:
        taken, limits = without_descriptors()
        try:
            try:
                found = find()
            except OSError:
                continue
        finally:
            for descriptor in taken:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert found, "an empty list means that nothing is alive"


@pytest.mark.anyio
async def test_group_alive_sees_background_jobs_only(
    family: Tree, tmp_path: Path, number_in: ReadNumber, eventually: Eventually, running: Running
) -> None:
    """It tells after the end of a leader whether anything is left in its group or session."""
    leader = family.start('sleep 300 & echo $! >"$1"', tmp_path / "pid")
    await anyio.to_thread.run_sync(family.reap)
    assert tree.group_alive(leader.pid)
    pid = number_in("pid")
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not running(pid), "the job ends")
    await eventually(lambda: not tree.group_alive(leader.pid), "nothing is left in the group")


def test_a_signal_to_a_tree_reaches_whoever_is_found_later_and_nobody_twice() -> None:
    """A child that was being forked while its parent was found is signalled in the next round."""
    first, second = (subprocess.Popen(["sleep", "30"]) for _ in range(2))
    try:
        members = [tree.Member(process.pid, tree.start_ticks(process.pid)) for process in (first, second)]
        rounds = iter([members[:1], members, members])
        assert tree.signal_all(lambda: next(rounds), signal.SIGTERM) == 2
        assert [process.wait(5) for process in (first, second)] == [-signal.SIGTERM] * 2
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
