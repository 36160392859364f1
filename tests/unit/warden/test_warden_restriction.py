"""What a world takes from everything that is started in it, and what it leaves to its cells."""

from __future__ import annotations

import errno

import pytest

from . import driver as d
from . import plans as p
from .cells import ROOT, Place, cell_in, full
from .plans import Cell
from .records import blob, sh, u64

ALL = 2**64 - 1
CAP_CHOWN, CAP_KILL, CAP_NET_RAW = 1 << 0, 1 << 5, 1 << 13
MAKE_NAMESPACE = sh("unshare --user true")
CAPABILITIES = sh("grep -E '^Cap(Eff|Prm|Bnd)' /proc/self/status | cut -f2")

needs_root = pytest.mark.skipif(not ROOT, reason="needs a warden with capabilities: run as root")


def restrict(warden: d.Warden | Cell, filter_program: bytes = b"", capabilities: int = ALL) -> int:
    return warden.status(d.RESTRICT, u64(capabilities) + blob(filter_program))


def capabilities_of(warden: d.Warden | Cell) -> list[int]:
    status, text = warden.output(CAPABILITIES)
    assert status == 0
    return [int(line, 16) for line in text.split()]


@pytest.mark.parametrize(
    "user", [pytest.param(False, marks=needs_root, id="root"), pytest.param(True, id="user")]
)
def test_the_filter_is_on_every_program_and_not_on_what_makes_cells(place: Place, user: bool) -> None:
    with place.warden(user=user) as warden:
        assert warden.output(MAKE_NAMESPACE)[0] == 0  # the twin: unrestricted it works
    with place.warden(user=user) as warden:
        assert restrict(warden, p.deny(p.UNSHARE_CALL)) == 0
        for _ in range(3):  # by a new supervisor and by one that is used again
            status, _ = warden.output(MAKE_NAMESPACE)
            assert status != 0
        # A cell is made of namespaces; its own filter is left out here, so that what holds is the restriction.
        plan = full(place, warden, user=user)
        plan.filter = b""
        with cell_in(warden, plan) as (cell, made):
            assert cell.output(sh("true"))[0] == 0
            assert cell.output(MAKE_NAMESPACE)[0] != 0
            assert p.drop(warden, made.handle).gone


@needs_root
def test_capabilities_are_taken_from_programs_alone(place: Place) -> None:
    with place.warden() as warden:
        before = capabilities_of(warden)
        assert all(mask & CAP_NET_RAW for mask in before)
    with place.warden() as warden:
        assert restrict(warden, capabilities=ALL & ~CAP_NET_RAW) == 0
        assert capabilities_of(warden) == [mask & ~CAP_NET_RAW for mask in before]


@needs_root
def test_capabilities_are_taken_from_programs_of_cells(place: Place) -> None:
    with place.warden() as warden:
        assert restrict(warden, capabilities=ALL & ~CAP_KILL) == 0
        plan = full(place, warden)
        plan.capabilities = CAP_CHOWN | CAP_KILL
        with cell_in(warden, plan) as (cell, made):
            assert capabilities_of(cell)[:2] == [CAP_CHOWN, CAP_CHOWN]
            assert p.drop(warden, made.handle).gone


def test_it_comes_first_and_once(place: Place) -> None:
    with place.warden(user=True) as warden:
        assert warden.output(sh("true"))[0] == 0
        assert restrict(warden) == errno.EBUSY
    with place.warden(user=True) as warden:
        assert restrict(warden, b"1234567") == errno.EINVAL
        assert restrict(warden) == 0
        assert restrict(warden) == errno.EBUSY
        assert warden.output(sh("true"))[0] == 0


def test_a_filter_that_the_kernel_refuses_leaves_nothing_that_could_start(place: Place) -> None:
    with place.warden(user=True) as warden:
        assert restrict(warden, p.instruction(0xFFFF, 0, 0, 0)) == errno.EINVAL
        with pytest.raises(AssertionError):
            warden.output(sh("true"))
        assert restrict(warden) == errno.EBUSY


def test_a_cell_cannot_be_asked(place: Place) -> None:
    with place.warden(user=True) as warden, cell_in(warden, full(place, warden, user=True)) as (cell, _):
        assert restrict(cell) == errno.EPERM
