"""Calls into the event loop of another thread: results, errors, interruption, and nothing left behind."""

import signal
import threading
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager
from types import FrameType

import anyio
import anyio.lowlevel
import pytest

from execworld.seams import WorldClosed
from execworld.sync.bridge import Bridge, open_bridge


@pytest.fixture
def bridge() -> Generator[Bridge]:
    with open_bridge("asyncio") as opened:
        yield opened


@pytest.fixture
def interrupt() -> Iterator[None]:
    """Ctrl-C raises in the main thread, whatever the test runner made of it."""

    def raise_interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, raise_interrupt)
    yield
    signal.signal(signal.SIGINT, before)


def press_ctrl_c() -> None:
    """As the kernel does it: the signal goes to the main thread when that one takes it."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


class Failure(Exception):
    pass


def test_a_call_returns_the_result(bridge: Bridge) -> None:
    async def answer() -> int:
        await anyio.lowlevel.checkpoint()
        return 42

    assert bridge.call(answer) == 42


@pytest.mark.parametrize("error", [Failure("own"), RuntimeError("own"), StopAsyncIteration(), KeyError("x")])
def test_an_error_arrives_unchanged(bridge: Bridge, error: Exception) -> None:
    async def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        bridge.call(fail)
    assert caught.value is error


def test_calls_of_several_threads_do_not_wait_for_each_other(bridge: Bridge) -> None:
    gate = anyio.Event()

    async def wait() -> str:
        await gate.wait()
        return "through"

    async def open_gate() -> None:
        gate.set()

    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.append(bridge.call(wait))) for _ in range(8)]
    for thread in threads:
        thread.start()
    bridge.call(open_gate)
    for thread in threads:
        thread.join(10)
    assert results == ["through"] * 8


def test_it_works_inside_a_running_event_loop(bridge: Bridge) -> None:
    async def answer() -> int:
        return 42

    async def caller() -> int:
        return bridge.call(answer)

    assert anyio.run(caller) == 42


def test_a_call_from_its_own_loop_is_refused_at_once(bridge: Bridge) -> None:
    """Waiting there for the loop would be for ever."""

    async def answer() -> int:
        return 42

    async def inside() -> int:
        return bridge.call(answer)

    with pytest.raises(WorldClosed):
        bridge.call(inside)


def test_a_call_after_the_end_is_refused() -> None:
    with open_bridge("asyncio") as bridge:
        pass

    async def answer() -> int:
        return 42

    with pytest.raises(WorldClosed):
        bridge.call(answer)


@pytest.mark.parametrize("attempt", range(20))  # the signal hits another step of the caller each time
def test_an_interruption_cancels_the_call_and_waits_for_its_cleanup(
    bridge: Bridge, interrupt: None, attempt: int
) -> None:
    steps: list[str] = []

    async def long_call() -> None:
        try:
            press_ctrl_c()
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.05)
                press_ctrl_c()  # an impatient user
                await anyio.sleep(0.05)
            steps.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        bridge.call(long_call)
    assert steps == ["cleaned up"]


def test_an_interruption_is_noticed_when_another_thread_took_the_signal(
    bridge: Bridge, interrupt: None
) -> None:
    """Python then sets a flag that nothing looks at while the main thread sleeps."""
    steps: list[str] = []

    async def long_call() -> None:
        try:
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            await anyio.sleep_forever()
        finally:
            steps.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        bridge.call(long_call)
    assert steps == ["cleaned up"]


def test_a_context_is_left_in_the_task_that_entered_it(bridge: Bridge) -> None:
    """A cancel scope may not be left elsewhere."""
    tasks: list[object] = []

    @asynccontextmanager
    async def context() -> AsyncGenerator[str]:
        async with anyio.create_task_group():
            tasks.append(anyio.get_current_task().id)
            yield "value"
            tasks.append(anyio.get_current_task().id)

    with bridge.enter(context()) as value:
        assert value == "value"
    assert len(tasks) == 2
    assert tasks[0] == tasks[1]


def test_an_error_on_entering_arrives_unchanged(bridge: Bridge) -> None:
    error = Failure("own")

    @asynccontextmanager
    async def context() -> AsyncGenerator[None]:
        raise error
        yield

    with pytest.raises(Failure) as caught:
        with bridge.enter(context()):
            raise AssertionError("entered")
    assert caught.value is error


def test_an_error_of_the_body_arrives_unchanged_and_the_context_is_left(bridge: Bridge) -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def context() -> AsyncGenerator[None]:
        yield
        steps.append("left")

    error = Failure("own")
    with pytest.raises(Failure) as caught:
        with bridge.enter(context()):
            raise error
    assert caught.value is error
    assert steps == ["left"]


def test_an_interruption_while_entering_undoes_it(bridge: Bridge, interrupt: None) -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def context() -> AsyncGenerator[None]:
        try:
            press_ctrl_c()
            await anyio.sleep_forever()
            yield
        finally:
            steps.append("undone")

    with pytest.raises(KeyboardInterrupt):
        with bridge.enter(context()):
            raise AssertionError("entered")
    assert steps == ["undone"]


def test_an_interruption_while_leaving_does_not_cut_it_short(bridge: Bridge, interrupt: None) -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def context() -> AsyncGenerator[None]:
        yield
        press_ctrl_c()
        await anyio.sleep(0.05)
        steps.append("left")

    with pytest.raises(KeyboardInterrupt):
        with bridge.enter(context()):
            pass
    assert steps == ["left"]


def test_leaving_an_iteration_early_frees_it(bridge: Bridge) -> None:
    steps: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(1000):
                yield number
        finally:
            steps.append("freed")

    iterator = bridge.iterate(numbers())
    assert next(iterator) == 0
    iterator.close()  # type: ignore[attr-defined]  # pyright: ignore - it is a generator, which is not promised
    assert steps == ["freed"]
    assert list(bridge.iterate(numbers())) == list(range(1000))


async def collect(items: AsyncIterable[int]) -> list[int]:
    return [item async for item in items]


def test_items_are_taken_in_the_calling_thread(bridge: Bridge) -> None:
    """So that they may come from the bridge itself, or from something that belongs to one thread."""
    threads: set[int] = set()

    def numbers() -> Iterator[int]:
        async def next_number() -> int:
            return 7

        for _ in range(3):
            threads.add(threading.get_ident())
            yield bridge.call(next_number)

    assert bridge.feed(collect, numbers()) == [7, 7, 7]
    assert threads == {threading.get_ident()}


def test_an_error_of_the_items_cancels_the_function_and_arrives_unchanged(bridge: Bridge) -> None:
    steps: list[str] = []
    error = RuntimeError("own")

    def numbers() -> Iterator[int]:
        yield 1
        raise error

    async def consume(items: AsyncIterable[int]) -> None:
        try:
            async for _ in items:
                pass
        except anyio.get_cancelled_exc_class():
            steps.append("cancelled")
            raise

    with pytest.raises(RuntimeError) as caught:
        bridge.feed(consume, numbers())
    assert caught.value is error
    assert steps == ["cancelled"]


def test_an_error_of_the_function_stops_the_items(bridge: Bridge) -> None:
    taken: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    async def refuse(items: AsyncIterable[int]) -> None:
        async for _ in items:
            raise Failure("enough")

    with pytest.raises(Failure):
        bridge.feed(refuse, numbers())
    assert len(taken) < 5
