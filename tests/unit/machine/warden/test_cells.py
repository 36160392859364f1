"""Cells: what a plan looks like under way, and a machine over the stream of one."""

from __future__ import annotations

import errno
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import anyio
import pytest

from execworld.machine.base import NoSuchHandle
from execworld.machine.cell import (
    AttachTree,
    CellFailed,
    CellPlan,
    CellReport,
    CellStage,
    CellsUnsupported,
    CloneTree,
    Filter,
    KeepCapabilities,
    LimitMethod,
    LoopbackUp,
    MapIds,
    MountAttribute,
    Namespace,
    NewFileSystem,
    PathRule,
    PidNamespace,
    Pin,
    PortRule,
    PrivateMounts,
    Probe,
    ProbeKind,
    ProbeResult,
    ProgramLock,
    Restrict,
    Ruleset,
    SetMountAttributes,
    Unshare,
)
from execworld.machine.local.machine import LocalMachine
from execworld.machine.operations import MakeDirectory
from execworld.machine.warden import TransportBroken, WardenMachine, open_cell_machine
from execworld.machine.warden.cell_codec import encode_plan
from execworld.seams.errors import OutcomeUnknown, WorldLost, WorldUnavailable
from execworld.testing.forwarding import ForwardingMachine
from execworld.testing.scripted_warden import (
    BATCH,
    CLOSE,
    CREDIT,
    DROP_CELL,
    INPUT_WINDOW,
    MAKE_CELL,
    NOTHING_LEFT,
    OK,
    PING,
    RELEASE,
    REPLY,
    SEND,
    SMALL,
    Peer,
    Wire,
    frame,
    greeting,
    one,
    opened,
    text,
)
from execworld.testing.scripted_warden import data as stream_data

pytestmark = pytest.mark.anyio

CELL = 9
RUNNING = OK + struct.pack("<BHHQBBHHI", 0, 0, 0, CELL, 0, 0, 0, 0, 0)


def made(*probes: tuple[int, int]) -> bytes:
    results = b"".join(struct.pack("<HH", *probe) for probe in probes)
    return OK + struct.pack("<BHHQBBHHI", 0, 0, 0, CELL, 1, 2, 0, errno.EACCES, len(probes)) + results


# Plans


def test_a_plan_travels_as_the_protocol_says() -> None:
    """Every step, the lock, the limits and the probes, byte for byte."""
    ruleset = Ruleset(7, 3, 1, (PathRule(0, 5),), (PortRule(443, 2),))
    plan = CellPlan(
        steps=[
            Unshare(Namespace.USER | Namespace.MOUNT),
            MapIds(),
            PidNamespace(),
            PrivateMounts(),
            Pin(b"/w", directory=True),
            CloneTree(0),
            SetMountAttributes(MountAttribute.READ_ONLY),
            AttachTree(0, 0, MountAttribute.NO_DEVICES),
            NewFileSystem(b"tmpfs", 0, ((b"size", b"1m"), (b"ro", b"")), MountAttribute.NO_SETUID),
            LoopbackUp(),
            Restrict(ruleset),
            KeepCapabilities(9),
            Filter(b"12345678"),
        ],
        lock=ProgramLock(Ruleset(1), b"f", 4, ((6, 10, 20),)),
        processes=100,
        memory_bytes=1 << 30,
        probes=[Probe(ProbeKind.WRITE), Probe(ProbeKind.READ, b"/etc")],
        scratch=b"/s",
        timeout_s=2.5,
    )
    rules = struct.pack("<QQQIHQIHQ", 7, 3, 1, 1, 0, 5, 1, 443, 2)
    steps = [
        struct.pack("<BI", 1, 0x1002_0000),
        *(bytes([opcode]) for opcode in (2, 3, 4)),
        b"\5" + text(b"/w") + b"\1",
        struct.pack("<BH", 6, 0),
        struct.pack("<BQ", 7, 1),
        struct.pack("<BHHQ", 8, 0, 0, 4),
        b"\x09" + text(b"tmpfs") + struct.pack("<HI", 0, 2)
        + text(b"size") + text(b"1m") + text(b"ro") + text(b"") + struct.pack("<Q", 2),
        b"\x0a",
        b"\x0b" + rules,
        struct.pack("<BQ", 12, 9),
        b"\x0d" + text(b"12345678"),
    ]  # fmt: skip
    lock = struct.pack("<BQQQII", 3, 1, 0, 0, 0, 0) + struct.pack("<Q", 4) + text(b"f")
    limits = struct.pack("<IIQQ", 1, 6, 10, 20)
    probes = struct.pack("<IB", 2, 1) + text(b"") + b"\6" + text(b"/etc")
    head = struct.pack("<IQQ", 2500, 100, 1 << 30) + text(b"/s") + struct.pack("<I", len(steps))
    assert encode_plan(plan) == head + b"".join(steps) + lock + limits + probes


def test_a_plan_that_fits_no_message_fails_before_it_is_sent() -> None:
    with pytest.raises(CellFailed) as caught:
        encode_plan(CellPlan([Filter(bytes(1 << 20))]))
    assert caught.value.error == errno.EMSGSIZE
    with pytest.raises(CellFailed) as caught:
        encode_plan(CellPlan([CloneTree(70_000)]))
    assert caught.value.error == errno.EINVAL


async def make(machine: WardenMachine, plan: CellPlan, outcomes: list[object]) -> None:
    try:
        outcomes.append(await machine.make_cell(plan))
    except (CellFailed, CellsUnsupported, WorldLost) as error:
        outcomes.append(error)


async def answered(reply: bytes, plan: CellPlan | None = None) -> object:
    async with opened() as (machine, peer):
        outcomes: list[object] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(make, machine, plan or CellPlan([MapIds(), PidNamespace()]), outcomes)
            number, _ = await peer.expect(MAKE_CELL)
            await peer.reply(number, reply)
        return outcomes[0]


async def test_the_report_of_a_cell() -> None:
    plan = CellPlan([], probes=[Probe(ProbeKind.WRITE)])
    assert await answered(made((0, errno.EACCES)), plan) == CellReport(
        CELL, LimitMethod.CGROUP_V2, LimitMethod.CGROUP_V1, 0, errno.EACCES, (ProbeResult(0, errno.EACCES),)
    )


async def test_a_plan_longer_than_a_piece_goes_in_one_frame() -> None:
    plan = CellPlan([Filter(bytes(100_000))])
    assert isinstance(await answered(RUNNING, plan), CellReport)


@pytest.mark.parametrize(
    ("body", "stage", "step", "error"),
    [
        ((1, 0, errno.ETIMEDOUT), CellStage.START, 0, errno.ETIMEDOUT),
        ((2, 1, errno.EPERM), CellStage.STEP, 1, errno.EPERM),
        ((3, 0, errno.EINVAL), CellStage.LOCK, 0, errno.EINVAL),
        ((4, 0, errno.EACCES), CellStage.TARGETS, 0, errno.EACCES),
    ],
)
async def test_a_cell_that_failed_says_where(
    body: tuple[int, int, int], stage: CellStage, step: int, error: int
) -> None:
    outcome = await answered(OK + struct.pack("<BHH", *body))
    assert isinstance(outcome, CellFailed)
    assert (outcome.stage, outcome.step, outcome.error) == (stage, step, error)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(errno.EPERM, CellsUnsupported), (errno.ENOSYS, CellsUnsupported), (errno.EINVAL, CellFailed)],
)
async def test_a_refusal(status: int, kind: type[Exception]) -> None:
    assert isinstance(await answered(struct.pack("<H", status)), kind)


@pytest.mark.parametrize(
    "reply",
    [
        OK,
        OK + struct.pack("<BHH", 5, 0, 1),
        OK + struct.pack("<BHH", 2, 2, 1),
        OK + struct.pack("<BHH", 2, 1, 0),
        OK + struct.pack("<BHH", 1, 1, 1),
        RUNNING + b"x",
        made((0, 0)),
        OK + struct.pack("<BHHQBBHHI", 0, 0, 0, 0, 0, 0, 0, 0, 0),
        OK + struct.pack("<BHHQBBHHI", 0, 0, 0, CELL, 3, 0, 0, 0, 0),
        OK + struct.pack("<BHHQBBHHI", 0, 0, 1, CELL, 0, 0, 0, 0, 0),
    ],
)
async def test_a_reply_that_fits_no_plan_ends_the_world(reply: bytes) -> None:
    assert isinstance(await answered(reply), WorldLost)


async def test_a_cancelled_making_leaves_no_cell() -> None:
    async with opened() as (machine, peer):
        number = 0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(machine.make_cell, CellPlan([]))
            number, _ = await peer.expect(MAKE_CELL)
            tasks.cancel_scope.cancel()
        await peer.reply(number, RUNNING)
        await peer.expect(CREDIT)
        _, body = await peer.expect(RELEASE)
        assert body == struct.pack("<Q", CELL)


async def test_this_process_makes_no_cells() -> None:
    machine = LocalMachine()
    with pytest.raises(CellsUnsupported):
        await machine.make_cell(CellPlan([]))
    with pytest.raises(NoSuchHandle):
        await machine.drop_cell(1)
    await machine.aclose()


# Machines


class Relay:
    """A first warden as a script, and the far end of its cell's stream as a second one."""

    def __init__(self, outer: Peer) -> None:
        self.outer = outer
        self.to_cell = Wire()
        self.cell = Peer(self.to_cell, _ToHost(outer), outer.pipe)
        self.frames: list[tuple[int, int]] = []
        self.answering = True
        self.held: list[int] = []
        self.dropped = anyio.Event()

    async def run(self) -> None:
        """Pass SENDs on to the cell, and remember what else comes, until the link ends."""
        with suppress(TransportBroken):
            await self._pass_on()

    async def _pass_on(self) -> None:
        while not self.outer.pipe.closed.is_set():
            try:
                kind, number, body = await self.outer.next_frame()
            except AssertionError:
                assert self.outer.pipe.closed.is_set()
                return
            if kind == SEND:
                assert body[:8] == struct.pack("<Q", CELL)
                await self.to_cell.send(body[8:])
                if self.answering:
                    await self.outer.reply(number)
                else:
                    self.held.append(number)
            elif kind == DROP_CELL:
                self.frames.append((kind, number))
                await self.outer.reply(number, NOTHING_LEFT)
                self.dropped.set()
            elif kind != CREDIT:
                self.frames.append((kind, number))


class _ToHost(Wire):
    """What the cell writes comes as data of its connection."""

    def __init__(self, outer: Peer) -> None:
        super().__init__()
        self._outer = outer

    async def send(self, data: bytes) -> None:
        await self._outer.write(stream_data(CELL, data))


@asynccontextmanager
async def cell_machine(
    *, wrapped: bool = False
) -> AsyncGenerator[tuple[WardenMachine, Relay, WardenMachine]]:
    settings = replace(SMALL, stream_credit_bytes=65536, window_bytes=65536)
    async with opened(settings) as (outer, peer):
        outcomes: list[object] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(make, outer, CellPlan([]), outcomes)
            number, _ = await peer.expect(MAKE_CELL)
            await peer.reply(number, RUNNING)
        report = outcomes[0]
        assert isinstance(report, CellReport)
        outer.world_id = "the world"
        _, grant = await peer.expect(CREDIT)
        assert struct.unpack("<IIQBI", grant) == (0, 1, CELL, 1, 4 * 1024 * 1024)
        relay = Relay(peer)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(relay.run)
            tasks.start_soon(relay.cell.greet)
            first = ForwardingMachine(outer) if wrapped else outer
            async with open_cell_machine(first, report, SMALL) as inner:
                await anyio.wait_all_tasks_blocked()
                yield inner, relay, outer
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("wrapped", [False, True], ids=["direct", "wrapped"])
async def test_a_cell_is_a_machine_of_its_own(wrapped: bool) -> None:
    async with cell_machine(wrapped=wrapped) as (inner, relay, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(inner.ping)
            number, _ = await relay.cell.expect(PING)
            await relay.cell.reply(number)
        assert not inner.lost
        assert wrapped or inner.world_id == "the world"


async def test_leaving_ends_the_cell_and_drops_it() -> None:
    async with cell_machine() as (inner, relay, outer):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(inner.aclose)
            number, _ = await relay.cell.expect(CLOSE)
            await relay.cell.reply(number, NOTHING_LEFT)
        assert [kind for kind, _ in relay.frames] == [DROP_CELL]
        assert not outer.lost


async def test_a_cell_that_does_not_answer_is_proven_gone_by_the_first_warden() -> None:
    async with cell_machine() as (inner, relay, _):
        assert (await inner.aclose()).gone
        assert [kind for kind, _ in relay.frames] == [DROP_CELL]


@pytest.mark.parametrize("wrapped", [False, True], ids=["direct", "wrapped"])
async def test_the_outer_link_takes_the_inner_one_with_it(wrapped: bool) -> None:
    """What was sent is unknown, what comes later was not sent."""
    async with cell_machine(wrapped=wrapped) as (inner, relay, outer):
        async with anyio.create_task_group() as tasks:

            async def unknown() -> None:
                with pytest.raises(OutcomeUnknown):
                    await inner.run(one(MakeDirectory(b"/x", 0o700)))

            tasks.start_soon(unknown)
            await relay.cell.expect(BATCH)
            relay.outer.outgoing.close()
        assert inner.lost
        assert outer.lost
        with pytest.raises(WorldLost):
            await inner.run(one(MakeDirectory(b"/x", 0o700)))
        assert not (await inner.aclose()).gone


async def test_a_call_in_the_moment_of_the_loss_was_not_sent() -> None:
    """The inner link has not heard of the loss yet."""
    async with cell_machine() as (inner, _, outer):
        outer._link.lose("the test")  # pyright: ignore[reportPrivateUsage] the moment cannot be met from outside
        assert not inner.lost
        with pytest.raises(WorldLost):
            await inner.run(one(MakeDirectory(b"/x", 0o700)))


async def test_a_cell_that_ends_leaves_the_first_warden_alone() -> None:
    async with cell_machine() as (inner, relay, outer):
        await relay.outer.write(stream_data(CELL, b"", flags=2))
        await anyio.wait_all_tasks_blocked()
        assert inner.lost
        assert not outer.lost


async def test_input_of_a_cell_is_held_up_by_the_window_alone() -> None:
    """Nothing waits for an answer, and never more than the window is without one."""
    async with cell_machine() as (inner, relay, _):
        relay.answering = False
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(inner.run, one(MakeDirectory(b"/" + b"x" * 16_000, 0o700)))
            await anyio.wait_all_tasks_blocked()
            assert len(relay.to_cell._data) == INPUT_WINDOW  # pyright: ignore[reportPrivateUsage] the far end of the wire
            relay.answering = True
            for number in relay.held:
                await relay.outer.reply(number)
            numbers = [(await relay.cell.expect(BATCH))[0] for _ in range(20)]
            reply = struct.pack("<HIHH", 0, 0, 0xFFFF, 1) + OK
            for number in numbers:
                await relay.cell.reply(number, reply)


async def test_what_is_no_cell_is_refused() -> None:
    async with opened() as (outer, peer):
        outcomes: list[object] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(make, outer, CellPlan([]), outcomes)
            number, _ = await peer.expect(MAKE_CELL)
            await peer.write(frame(REPLY, number, RUNNING), stream_data(CELL, greeting(version=3)))
        report = outcomes[0]
        assert isinstance(report, CellReport)
        relay = Relay(peer)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(relay.run)
            with pytest.raises(WorldUnavailable):
                async with open_cell_machine(outer, report, SMALL):
                    pass
            assert relay.dropped.is_set()
            tasks.cancel_scope.cancel()
