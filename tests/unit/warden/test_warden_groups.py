"""Where version 2 of control groups can hold limits: in a group beside the warden's own, of whoever runs it."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from . import plans as p
from . import records as r
from .cells import ROOT, USER, Place, cell_in, cgroup_of, groups_of, wait_until
from .driver import Warden
from .plans import Plan
from .records import sh

CONTROLLERS: Final = frozenset({"memory", "pids"})
V2_MEMORY, V2_PROCESSES, V1_PROCESSES, V1_MEMORY, WITHHELD = 16, 32, 64, 128, 256
LIMITS: Final = Plan(processes=40, memory=64 << 20)
FILES: Final = {"pids.max": 40, "memory.max": 64 << 20}


def is_empty(group: Path) -> bool:
    return "populated 0" in (group / "cgroup.events").read_text()


class Region:
    """A control group with one in it in which wardens are started, and what is beside that one."""

    def __init__(self, top: Path, *, user: bool) -> None:
        self.top = top
        self.own = top / "own"
        self.user = user

    def delegate(self) -> None:
        """As cgroups(7) wants it for whoever shall be given a part of the tree."""
        for name in (
            "",
            "cgroup.procs",
            "cgroup.subtree_control",
            "own",
            "own/cgroup.procs",
            "own/cgroup.subtree_control",
        ):
            os.chown(self.top / name, USER, USER)

    @contextmanager
    def warden(self, place: Place, *, flags: int = 0) -> Generator[Warden]:
        def become() -> None:
            (self.own / "cgroup.procs").write_text("0")
            if self.user:
                os.setgroups([])
                os.setresgid(USER, USER, USER)
                os.setresuid(USER, USER, USER)

        with Warden(binary=place.binary, preexec=become, flags=flags) as warden:
            yield warden

    def remove(self) -> None:
        (self.top / "cgroup.kill").write_text("1")
        wait_until(lambda: is_empty(self.top))
        directories = [path for path in self.top.rglob("*") if path.is_dir()]
        for path in (*sorted(directories, reverse=True), self.top):
            path.rmdir()

    def beside(self) -> list[Path]:
        return sorted(path for path in self.top.iterdir() if path.is_dir() and path != self.own)


def mounted() -> tuple[Path, frozenset[str]]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[0] == "cgroup2" and before.split()[3] == "/":
            path = Path(before.split()[4])
            return path, frozenset((path / "cgroup.subtree_control").read_text().split())
    pytest.skip("version 2 of control groups is not mounted here")


@pytest.fixture
def make_region() -> Generator[Callable[..., Region]]:
    made: list[Region] = []
    if not ROOT:
        pytest.skip("it takes root to make control groups and to give them away")
    hierarchy, controllers = mounted()

    def make(*, user: bool, needs: frozenset[str] = CONTROLLERS) -> Region:
        if not needs <= controllers:
            has = ", ".join(sorted(controllers)) or "nothing"
            pytest.skip(f"version 2 of control groups hands down {has} here, not memory and pids")
        top = hierarchy / f"execworld-test-{secrets.token_hex(8)}"
        top.mkdir()
        region = Region(top, user=user)
        made.append(region)
        (top / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in needs))
        region.own.mkdir()
        return region

    yield make
    for region in made:
        region.remove()


@pytest.fixture(params=[False, True], ids=["root", "user"])
def region(request: pytest.FixtureRequest, make_region: Callable[..., Region]) -> Region:
    found = make_region(user=request.param)
    if request.param:
        found.delegate()
    return found


def test_limits_are_held_beside_the_own_group(place: Place, region: Region) -> None:
    with region.warden(place) as warden:
        assert cgroup_of(warden) & (V2_MEMORY | V2_PROCESSES | WITHHELD) == V2_MEMORY | V2_PROCESSES
        with cell_in(warden, LIMITS) as (cell, made):
            assert made.methods == (p.CGROUP_V2, p.CGROUP_V2)
            (group,) = region.beside()
            assert {name: int((group / name).read_text()) for name in FILES} == FILES
            inside = cell.output(sh("exec cat /proc/self/cgroup"))[1]
            assert inside.splitlines()[-1].endswith(f"/{region.top.name}/{group.name}/c0")
        assert warden.close().gone
        wait_until(lambda: region.beside() == [])
        assert region.beside() == []


def test_a_limit_of_processes_binds(place: Place, region: Region) -> None:
    with region.warden(place) as warden, cell_in(warden, LIMITS) as (cell, _):
        (group,) = region.beside()
        script = "n=0; while [ $n -lt 80 ]; do sleep 600 & n=$((n+1)); done; echo all"
        name, _ = cell.spawn(sh(script, stderr=r.MERGE))
        assert cell.wait_exit(name).raw != 0
        assert 30 < int((group / "pids.current").read_text()) <= 40
        assert cell.kill_tree(name).gone
        assert b"fork" in cell.read_all(name)


def test_a_limit_of_memory_binds(place: Place, region: Region) -> None:
    with region.warden(place) as warden, cell_in(warden, LIMITS) as (cell, _):
        (group,) = region.beside()
        status, _ = cell.output(sh("head -c 200000000 /dev/zero | exec tail -n 1"))
        assert status == 128 + signal.SIGKILL
        assert "oom_kill 0" not in (group / "memory.events").read_text()
        assert cell.output(sh("echo alive")) == (0, "alive\n")


def test_without_a_limit_nothing_is_beside(place: Place, region: Region) -> None:
    """What is bounded for the own group, or killed with it, takes what runs there with it."""
    with region.warden(place) as warden, cell_in(warden, Plan()) as (cell, _):
        assert region.beside() == []
        assert f"/{region.top.name}/own/" in cell.output(sh("exec cat /proc/self/cgroup"))[1].splitlines()[-1]


def test_nothing_is_given_more_than_the_own_group_has(place: Place, region: Region) -> None:
    (region.own / "pids.max").write_text("30")
    (region.own / "memory.max").write_text(str(48 << 20))
    with region.warden(place) as warden, cell_in(warden, LIMITS) as (_, made):
        (group,) = region.beside()
        assert made.methods == (p.CGROUP_V2, p.CGROUP_V2)
        assert (group / "pids.max").read_text() == "30\n"
        assert (group / "memory.max").read_text() == f"{48 << 20}\n"


@pytest.mark.parametrize("controller", sorted(CONTROLLERS))
def test_a_controller_that_holds_a_limit_cannot_be_taken_away(
    place: Place, region: Region, controller: str
) -> None:
    with region.warden(place) as warden, cell_in(warden, LIMITS):
        with pytest.raises(OSError, match="busy"):
            (region.top / "cgroup.subtree_control").write_text(f"-{controller}")


def test_what_is_killed_with_the_own_group_leaves_nothing_beside_it(place: Place, region: Region) -> None:
    """As a service manager kills a unit. The empty groups are taken by the next warden that comes by."""
    with region.warden(place) as warden, cell_in(warden, LIMITS) as (cell, _):
        cell.spawn(sh("(setsid sleep 600 &); trap '' TERM; sleep 600"))
        (group,) = region.beside()
        (region.own / "cgroup.kill").write_text("1")
        warden.wait_process()
        wait_until(lambda: is_empty(group))
        assert is_empty(group)
    with region.warden(place) as warden:
        assert region.beside() == []
        assert warden.close().gone


def test_without_groups_no_limit_is_beside(place: Place, region: Region) -> None:
    with region.warden(place, flags=1) as warden, cell_in(warden, LIMITS) as (_, made):
        assert p.CGROUP_V2 not in made.methods
        assert region.beside() == []


@pytest.mark.parametrize("lacks", ["write access", "controllers"])
def test_what_cannot_be_handed_down_is_not_claimed(
    place: Place, make_region: Callable[..., Region], lacks: str
) -> None:
    region = make_region(user=True)
    region.delegate()
    if lacks == "write access":
        os.chown(
            region.top / "cgroup.procs", 0, 0
        )  # groups can be made there, and nothing can be started in one
    else:
        (region.top / "cgroup.subtree_control").write_text("-memory -pids")
    with region.warden(place) as warden, cell_in(warden, LIMITS) as (_, made):
        found = cgroup_of(warden)
        assert not found & (V2_MEMORY | V2_PROCESSES)
        assert bool(found & WITHHELD) == (lacks == "write access")
        assert made.methods == (p.NO_LIMIT, p.NO_LIMIT)
        assert 0 not in made.errors
        assert region.beside() == []


def test_groups_of_wardens_that_were_killed_are_swept_beside_the_own_one(
    place: Place, make_region: Callable[..., Region]
) -> None:
    region = make_region(user=False, needs=frozenset())
    stale = region.top / "execworld-1-2-3-4"
    (stale / "c0").mkdir(parents=True)
    with region.warden(place) as warden:
        assert not stale.exists()
        assert all(Path(group).parent == region.own for group in groups_of(warden))
        assert warden.close().gone
