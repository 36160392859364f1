"""Requests and their ends: greeting, violations, the ledger, replies, cancellation."""

from __future__ import annotations

import errno
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest

from execworld.machine.base import NoSuchHandle, SignalTarget
from execworld.machine.operations import (
    Connect,
    Open,
    Spawn,
    Stat,
    Write,
)
from execworld.machine.values import AddressKind as Address
from execworld.machine.values import Redirect
from execworld.machine.warden import (
    DirectTransport,
    LinkEnd,
    LinkSettings,
    TransportBroken,
    WardenMachine,
    open_warden_machine,
)
from execworld.seams.errors import OutcomeUnknown, WorldLost, WorldUnavailable
from execworld.seams.results import KillMethod
from execworld.testing.scripted_warden import (
    BATCH,
    CANCEL,
    CLOSE,
    DATA,
    ENDING,
    EXIT,
    HEADER,
    HELLO,
    KILL_TREE,
    NOTHING_LEFT,
    OK,
    PING,
    RELEASE,
    REPLY,
    SMALL,
    SPAWN,
    TREE_GONE,
    Peer,
    Pipe,
    batch_reply,
    data,
    exited,
    frame,
    gone,
    greeting,
    make_pipe,
    one,
    opened,
    run,
    spawned,
    text,
    with_process,
)

pytestmark = pytest.mark.anyio


# Greeting


async def test_a_greeting_is_found_behind_noise_in_single_bytes() -> None:
    """A login banner may come first, and what comes later may be longer than what this version knows."""
    pipe, peer = make_pipe()
    for byte in b"Welcome!\r\nEXECWORLD-" + greeting(added=b"later"):
        await peer.write(bytes([byte]))
    async with open_warden_machine(pipe, SMALL) as machine:
        facts = machine.facts
        assert (facts.os, facts.arch, facts.home, facts.kill_method) == (
            "linux",
            "x86_64",
            b"/root",
            KillMethod.PID_NAMESPACE,
        )
        assert facts.host_instance == "host/boot/77.88"
        assert facts.environment == ((b"A", b"b"),)


async def test_the_host_says_what_it_grants() -> None:
    pipe, peer = make_pipe()
    bodies: list[bytes] = []
    async with anyio.create_task_group() as tasks:

        async def greet() -> None:
            bodies.append(await peer.greet())

        tasks.start_soon(greet)
        async with open_warden_machine(pipe, LinkSettings(lease_s=2, close_timeout_s=0.05)):
            await anyio.wait_all_tasks_blocked()
    assert struct.unpack("<HHIIII", bodies[0]) == (2, 0, 256 * 1024, 4096, 8 * 1024 * 1024, 2000)


@pytest.mark.parametrize(
    ("came", "reason"),
    [
        (b"x" * 70000, "no greeting"),
        (b"Permission denied (publickey)\n", "Permission denied"),
        (greeting(version=3), "version 3"),
        (b"EXECWORLD-WARD\r\n" + frame(REPLY, 1, OK), "something else"),
        (b"EXECWORLD-WARD\r\n" + frame(HELLO, 0, b"\2\0"), "too early"),
    ],
)
async def test_what_is_no_warden_opens_no_world(came: bytes, reason: str) -> None:
    pipe, peer = make_pipe()
    await peer.write(came)
    peer.outgoing.close()
    with pytest.raises(WorldUnavailable, match=reason):
        async with open_warden_machine(pipe, SMALL):
            pytest.fail("it opened")
    assert pipe.closed.is_set()


async def test_silence_opens_no_world() -> None:
    pipe, _ = make_pipe()
    with pytest.raises(WorldUnavailable, match="in time"):
        async with open_warden_machine(pipe, LinkSettings(open_timeout_s=0.05)):
            pytest.fail("it opened")


# Violations by the warden

VIOLATIONS = {
    "unknown type": frame(0x90, 0, b""),
    "type of the host": frame(PING, 1, b""),
    "too long": HEADER.pack(1 << 21, REPLY, 0, 0, 1),
    "reserved field": frame(DATA, 0, struct.pack("<QBBH", 7, 1, 1, 0) + b"x", zero=1),
    "more data": frame(DATA, 0, struct.pack("<QBBH", 7, 1, 1, 0) + b"x", flags=1),
    "flag": frame(REPLY, 1, OK, flags=2),
    "data with an id": frame(DATA, 5, struct.pack("<QBBH", 7, 1, 1, 0) + b"x"),
    "reply without an id": frame(REPLY, 0, OK),
    "reply to nothing": frame(REPLY, 999, OK),
    "reply to a heartbeat that was not": frame(REPLY, 1 << 63, OK),
    "second greeting": frame(HELLO, 0, b"\2\0"),
    "short data": frame(DATA, 0, b"1234"),
    "no data": data(7, b""),
    "data at the end": data(7, b"x", flags=2),
    "data after the end": data(7, b"", flags=2) + data(7, b"x"),
    "stream that is not": data(7, b"x", stream=3),
    "unknown flag of data": data(7, b"x", flags=4),
    "beyond the credit": data(7, b"x" * 2049),
    "beyond the credit in two": data(7, b"x" * 2000) + data(7, b"x" * 49),
    "beyond the floor": data(7, b"x" * 257, flags=0),
    "beyond the window": data(99, b"x" * 8193),
    "exit twice": exited(7) + exited(7),
    "gone before its leader": gone(7),
    "gone twice": exited(7) + gone(7) + gone(7),
    "long exit": frame(EXIT, 0, struct.pack("<QiBQQQQQ", 7, 0, 3, 0, 0, 0, 0, 0) + b"x"),
    "contradicting exit": frame(EXIT, 0, struct.pack("<QiBQQQQQ", 7, 0, 4, 0, 0, 0, 0, 0)),
    "kill method": exited(7) + frame(TREE_GONE, 0, struct.pack("<QB", 7, 9)),
    "reason": frame(ENDING, 0, struct.pack("<H", 9) + text(b"")),
}


@pytest.mark.parametrize("violation", VIOLATIONS.values(), ids=VIOLATIONS.keys())
async def test_a_violation_ends_the_world(violation: bytes) -> None:
    """Everyone who waits is told, the link is closed, and nothing works afterwards."""
    async with with_process() as (machine, peer):
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                with pytest.raises((OutcomeUnknown, WorldLost)):
                    await machine.wait_tree(7)

            async def ping() -> None:
                with pytest.raises(WorldLost):
                    await machine.ping()

            if violation[4] != EXIT:
                tasks.start_soon(wait)
            tasks.start_soon(ping)
            await peer.expect(PING)
            await peer.write(violation)
        with anyio.fail_after(5):
            await peer.pipe.closed.wait()
        for call in (
            machine.ping,
            lambda: machine.run(SPAWN),
            lambda: machine.wait(7),
            lambda: machine.release(3),
        ):
            with pytest.raises(WorldLost):
                await call()


async def test_the_warden_says_why_it_ends() -> None:
    async with with_process() as (machine, peer):
        await peer.write(frame(ENDING, 0, struct.pack("<H", 3) + text(b"30 s")))
        with pytest.raises((WorldLost, OutcomeUnknown), match="lease ran out"):
            await machine.wait(7)


# The ledger


async def lost_during(machine: WardenMachine, peer: Peer, call: Callable[[], Awaitable[object]]) -> Exception:
    errors: list[Exception] = []

    async def run_it() -> None:
        try:
            await call()
        except (WorldLost, OutcomeUnknown) as error:
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_it)
        await anyio.wait_all_tasks_blocked()
        peer.outgoing.close()
    return errors[0]


async def test_what_was_sent_and_changes_something_has_an_unknown_outcome() -> None:
    async with with_process(stdin=Redirect.PIPE) as (machine, peer):
        error = await lost_during(machine, peer, lambda: machine.run(SPAWN))
        assert isinstance(error, OutcomeUnknown)
        with pytest.raises(WorldLost):
            await machine.run(SPAWN)


UNDER_WAY: list[tuple[Callable[[WardenMachine], Awaitable[object]], type[Exception]]] = [
    (lambda m: m.run(one(Stat(b"/"))), WorldLost),
    (lambda m: m.run(one(Open(b"/"))), WorldLost),
    (lambda m: m.ping(), WorldLost),
    (lambda m: m.run(one(Write(1, b"x"))), OutcomeUnknown),
    (lambda m: m.send(7, b"x"), OutcomeUnknown),
    (lambda m: m.signal(7, 15, SignalTarget.TREE), OutcomeUnknown),
    (lambda m: m.signal(7, 0, SignalTarget.TREE), WorldLost),
    (lambda m: m.kill_tree(7), OutcomeUnknown),
    (lambda m: m.wait(7), OutcomeUnknown),
    (lambda m: m.receive(7, 1, 10), OutcomeUnknown),
]


@pytest.mark.parametrize(("call", "kind"), UNDER_WAY)
async def test_what_only_looked_was_merely_lost(
    call: Callable[[WardenMachine], Awaitable[object]], kind: type[Exception]
) -> None:
    async with with_process(stdin=Redirect.PIPE) as (machine, peer):
        assert type(await lost_during(machine, peer, lambda: call(machine))) is kind


async def test_what_was_never_handed_over_did_not_happen() -> None:
    """The first request is stuck in the transport, the second behind it: only the first may have happened."""
    async with opened() as (machine, peer):
        peer.pipe.open_gate = anyio.Event()
        results: list[Exception] = []

        async def attempt() -> None:
            try:
                await machine.run(SPAWN)
            except (WorldLost, OutcomeUnknown) as error:
                results.append(error)

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(attempt)
                await anyio.wait_all_tasks_blocked()
            peer.outgoing.close()
        assert sorted(type(error).__name__ for error in results) == ["OutcomeUnknown", "WorldLost"]


async def test_errors_name_the_world() -> None:
    async with opened() as (machine, peer):
        machine.world_id = "ssh:x:1"
        error = await lost_during(machine, peer, machine.ping)
        assert isinstance(error, WorldLost)
        assert error.world == "ssh:x:1"


# Replies


async def test_a_reply_comes_in_pieces_with_others_in_between() -> None:
    async with with_process() as (machine, peer):
        results: list[object] = []
        whole = batch_reply(struct.pack("<Q", 55))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, machine, one(Open(b"/x")), results)
            number, _ = await peer.expect(BATCH)
            for byte in whole[:-1]:
                await peer.write(frame(REPLY, number, bytes([byte]), flags=1), data(7, b"."))
            await peer.write(frame(REPLY, number, whole[-1:]))
        assert results == [55]
        assert await machine.receive(7, 1, 100) == b"." * (len(whole) - 1)


async def test_a_reply_without_end_ends_the_world() -> None:
    async with opened() as (machine, peer):
        piece = bytes(1 << 20)

        async def flood() -> None:
            number, _ = await peer.expect(PING)
            for _ in range(17):
                await peer.write(frame(REPLY, number, piece, flags=1))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood)
            with pytest.raises(WorldLost, match="too long"):
                await machine.ping()


async def test_what_comes_with_the_reply_to_a_spawn_belongs_to_it() -> None:
    everything = (data(7, b"hello"), data(7, b"", flags=2), exited(7, 3 << 8), gone(7))
    async with with_process(SMALL, Redirect.NULL, *everything) as (machine, _):
        assert await machine.receive(7, 1, 100) == b"hello"
        assert await machine.receive(7, 1, 100) == b""
        status = await machine.wait(7)
        assert (status.raw, status.output_bytes, status.out_of_memory) == (3 << 8, (5, 0), False)
        assert status.usage is not None
        assert status.usage.user_s == 2.0
        await machine.wait_tree(7)


async def test_a_batch_that_failed_leaves_no_handles() -> None:
    async with opened() as (machine, peer):
        async with anyio.create_task_group() as tasks:

            async def fail() -> None:
                with pytest.raises(Exception, match="step 1"):
                    await machine.run(batch)

            batch = one(Spawn(b"/x", (b"x",), (), b"/"))
            batch.add(Open(b"/y"))
            tasks.start_soon(fail)
            number, _ = await peer.expect(BATCH)
            body = struct.pack("<HIHH", errno.ENOENT, 0, 1, 1) + OK + struct.pack("<Qi", 7, 5)
            await peer.reply(number, body)
        with pytest.raises(NoSuchHandle):
            await machine.wait(7)


# Cancellation


async def test_a_cancelled_spawn_that_succeeds_is_killed_and_released() -> None:
    """The release waits for the answer to the kill: a released process would be left alone."""
    async with opened() as (machine, peer):
        with anyio.move_on_after(0.05) as scope:
            await machine.run(SPAWN)
        assert scope.cancelled_caught
        number, _ = await peer.expect(BATCH)
        assert await peer.expect(CANCEL) == (0, struct.pack("<Q", number))
        await peer.reply(number, spawned(7))
        kill, body = await peer.expect(KILL_TREE)
        assert body == struct.pack("<Q", 7)
        await peer.nothing_comes()
        await peer.reply(kill, NOTHING_LEFT)
        assert (await peer.expect(RELEASE))[1] == struct.pack("<Q", 7)
        with pytest.raises(NoSuchHandle):
            await machine.wait(7)


class Breaking(DirectTransport):
    """Takes what is sent without waiting, until it is *broken*."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self.broken = False

    async def receive(self, max_bytes: int) -> bytes:
        return await self._pipe.receive(max_bytes)

    def send_now(self, data: memoryview) -> int:
        if self.broken:
            raise TransportBroken("the warden was killed")
        self._pipe.outgoing.put(bytes(data))
        return len(data)

    async def wait_sendable(self) -> None:
        return

    async def aclose(self) -> LinkEnd:
        return await self._pipe.aclose()


@asynccontextmanager
async def with_a_cancelled_spawn() -> AsyncGenerator[tuple[WardenMachine, Peer, Breaking, int]]:
    """The caller is gone and the warden has not answered: number is that of the request."""
    pipe, peer = make_pipe()
    transport = Breaking(pipe)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(peer.greet)
        async with open_warden_machine(transport, SMALL) as machine:
            with anyio.move_on_after(0.05):
                await machine.run(SPAWN)
            number, _ = await peer.expect(BATCH)
            await peer.expect(CANCEL)
            yield machine, peer, transport, number


async def test_a_reply_whose_consequence_cannot_be_sent_ends_the_world() -> None:
    """The warden answered and was killed: what came in is read, and the kill of the spawned tree cannot go out."""
    async with with_a_cancelled_spawn() as (machine, peer, transport, number):
        transport.broken = True
        await peer.reply(number, spawned(7))
        with anyio.fail_after(5), pytest.raises(WorldLost, match="the link failed: the warden was killed"):
            await machine.ping()


async def test_what_the_warden_said_before_it_ended_is_heard_though_nothing_can_be_sent() -> None:
    """The answer to a kill comes just before the end: the release that it leads to finds nobody."""
    reports: list[bool] = []
    async with with_a_cancelled_spawn() as (machine, peer, transport, number):
        await peer.reply(number, spawned(7))
        kill, _ = await peer.expect(KILL_TREE)

        async def close() -> None:
            reports.append((await machine.aclose()).gone)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(close)
            end, _ = await peer.expect(CLOSE)
            transport.broken = True
            await peer.write(frame(REPLY, kill, NOTHING_LEFT), frame(REPLY, end, NOTHING_LEFT))
    assert reports == [True]


async def test_a_cancelled_batch_gives_back_every_handle() -> None:
    async with opened() as (machine, peer):
        batch = one(Open(b"/x"))
        batch.add(Connect(Address.TCP, b"::1", 80))
        with anyio.move_on_after(0.05):
            await machine.run(batch)
        number, _ = await peer.expect(BATCH)
        await peer.expect(CANCEL)
        await peer.reply(number, batch_reply(struct.pack("<Q", 3), struct.pack("<Q", 4)))
        assert {(await peer.expect(RELEASE))[1] for _ in range(2)} == {
            struct.pack("<Q", 3),
            struct.pack("<Q", 4),
        }


async def test_what_was_cancelled_before_it_was_sent_is_never_sent() -> None:
    async with opened() as (machine, peer):
        peer.pipe.open_gate = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(machine.ping)
            await anyio.wait_all_tasks_blocked()
            with anyio.move_on_after(0.05):
                await machine.run(SPAWN)
            peer.pipe.open_gate.set()
            number, _ = await peer.expect(PING)
            await peer.reply(number)
        await peer.nothing_comes()


async def test_cancelling_never_goes_ahead_of_what_it_cancels() -> None:
    """A batch of several frames that was begun is sent to its end, and only then cancelled."""
    async with opened() as (machine, peer):
        peer.pipe.open_gate = anyio.Event()
        with anyio.move_on_after(0.05):
            await machine.run(one(Write(1, bytes(300_000))))
        peer.pipe.open_gate.set()
        kinds = [(await peer.next_frame())[0] for _ in range(6)]
        assert kinds == [BATCH | 0x100] * 4 + [BATCH, CANCEL]


async def test_control_goes_ahead_of_bulk() -> None:
    async with opened() as (machine, peer):
        peer.pipe.open_gate = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(machine.run, one(Write(1, bytes(600_000))))
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(machine.ping)
            await anyio.wait_all_tasks_blocked()
            peer.pipe.open_gate.set()
            kinds = [(await peer.next_frame())[0] for _ in range(3)]
            assert PING in kinds
            tasks.cancel_scope.cancel()


# A warden that lives and does not do what it is told

IMPATIENT = replace(SMALL, answer_timeout_s=0.2)


async def test_a_warden_that_does_not_end_a_tree_ends_the_world() -> None:
    """Whoever waits is told, however well the warden answers heartbeats."""
    async with with_process(IMPATIENT) as (machine, _peer):
        with anyio.fail_after(5), pytest.raises(OutcomeUnknown, match=r"did not answer `machine\.kill_tree`"):
            await machine.kill_tree(7)
        with pytest.raises(WorldLost):
            await machine.ping()


async def test_operations_may_take_as_long_as_what_they_wait_for() -> None:
    """A file system that hangs is no fault of the warden."""
    async with with_process(IMPATIENT) as (machine, peer):
        results: list[object] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, machine, SPAWN, results)
            number, _ = await peer.expect(BATCH)
            for _ in range(5):  # 0.5 s, and anything else gets 0.2
                await peer.nothing_comes()
            await peer.reply(number, spawned(8))
        assert len(results) == 1


async def test_a_tree_is_not_gone_before_its_command_ended() -> None:
    """Its end was to be told before; believing the report, whoever waits for it would wait for ever."""
    async with with_process() as (machine, peer):
        async with anyio.create_task_group() as tasks:

            async def kill() -> None:
                with pytest.raises(OutcomeUnknown, match="its command did not end"):
                    await machine.kill_tree(7)

            tasks.start_soon(kill)
            number, _ = await peer.expect(KILL_TREE)
            await peer.reply(number, NOTHING_LEFT)
        with pytest.raises(WorldLost):
            await machine.ping()
