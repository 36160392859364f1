"""Events: the order of listeners, what their errors do in each of the four modes, that they end with their plugin."""

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from execworld.kernel import Context, ErrorReport, Event, Next, Waterfall, open_kernel
from execworld.seams import ContextInactive, ListenersFailed, ListenerUnloaded, NextMisused

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(10)]

SAVED = Event[str, None]("saved")
QUESTION = Event[str, int | str | bool]("question")
CALL = Waterfall[str, str]("call")


class Broken(Exception):
    pass


def breaking(payload: str) -> None:
    raise Broken(payload)


def applied(listener: Callable[[Context], object]) -> Callable[[Context], None]:
    def plugin(ctx: Context) -> None:
        listener(ctx)

    return plugin


def noting(trace: list[str], name: str) -> Callable[[str], None]:
    def note(payload: str) -> None:
        trace.append(f"{name}:{payload}")

    return note


async def test_listeners_are_called_in_order_with_prepended_ones_first() -> None:
    trace: list[str] = []
    async with open_kernel() as root:
        root.on(SAVED, noting(trace, "a"))
        root.on(SAVED, noting(trace, "b"))
        root.on(SAVED, noting(trace, "c"), prepend=True)
        root.emit(SAVED, "x")
    assert trace == ["c:x", "a:x", "b:x"]


async def test_the_audience_is_fixed_when_an_event_is_dispatched() -> None:
    trace: list[str] = []
    async with open_kernel() as root:

        def change(payload: str) -> None:
            root.on(SAVED, noting(trace, "added"))
            later.dispose()

        root.on(SAVED, change)
        later = root.on(SAVED, noting(trace, "later"))
        root.emit(SAVED, "1")
        assert trace == ["later:1"]
        root.emit(SAVED, "2")
        assert trace == ["later:1", "added:2"]


async def test_removing_one_of_two_equal_registrations_removes_that_one() -> None:
    trace: list[str] = []
    listener = noting(trace, "a")
    async with open_kernel() as root:
        first = root.on(SAVED, listener)
        root.on(SAVED, noting(trace, "b"))
        root.on(SAVED, listener)
        first.dispose()
        first.dispose()
        root.emit(SAVED, "x")
    assert trace == ["b:x", "a:x"]


async def test_once_is_once_even_if_the_listener_dispatches_again() -> None:
    trace: list[str] = []
    async with open_kernel() as root:

        def again(payload: str) -> None:
            trace.append(payload)
            root.emit(SAVED, payload + "!")

        root.on(SAVED, again, once=True)
        root.emit(SAVED, "x")
        root.emit(SAVED, "y")
        assert root.describe().effects == 0
    assert trace == ["x"]


async def test_emit_reports_what_listeners_raise_and_calls_them_all() -> None:
    trace: list[str] = []
    reports: list[ErrorReport] = []

    async def later(payload: str) -> None:
        await anyio.lowlevel.checkpoint()
        raise Broken("later")

    async with open_kernel(on_error=reports.append) as root:
        await root.plugin(applied(lambda ctx: ctx.on(SAVED, breaking)), name="first")
        await root.plugin(applied(lambda ctx: ctx.on(SAVED, later)), name="second")
        root.on(SAVED, noting(trace, "last"))
        root.emit(SAVED, "x")
        assert trace == ["last:x"]
        await anyio.wait_all_tasks_blocked()
    assert [(each.plugin, each.during, str(each.error)) for each in reports] == [
        ("first", "hearing saved", "x"),
        ("second", "hearing saved", "later"),
    ]


async def test_an_async_listener_of_an_emitted_event_ends_with_its_plugin() -> None:
    trace: list[str] = []

    async def endless(payload: str) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            trace.append("ended")

    async with open_kernel() as root:
        fiber = await root.plugin(applied(lambda ctx: ctx.on(SAVED, endless)))
        root.emit(SAVED, "x")
        await anyio.wait_all_tasks_blocked()
        await fiber.dispose()
        assert trace == ["ended"]


async def test_parallel_runs_all_at_once_and_raises_all_errors_afterwards() -> None:
    trace: list[str] = []
    met = anyio.Event()

    async def wait(payload: str) -> None:
        await met.wait()
        trace.append("waited")

    def meet(payload: str) -> None:
        met.set()

    async with open_kernel() as root:
        root.on(SAVED, breaking)
        root.on(SAVED, wait)
        root.on(SAVED, meet)
        root.on(SAVED, breaking)
        with pytest.raises(ListenersFailed, match="`saved`") as caught:
            await root.parallel(SAVED, "x")
        assert [str(error) for error in caught.value.errors] == ["x", "x"]
        assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert trace == ["waited"]


async def test_parallel_with_nobody_listening_is_nothing() -> None:
    async with open_kernel() as root:
        await root.parallel(SAVED, "x")


@pytest.mark.parametrize("answer", [0, "", 7, True])
async def test_serial_stops_at_the_first_answer(answer: int | str) -> None:
    trace: list[str] = []

    async def answering(payload: str) -> int | str:
        return answer

    def no(payload: str) -> bool:
        trace.append("no")
        return False

    def nothing(payload: str) -> None:
        trace.append("nothing")

    def unreachable(payload: str) -> int:
        raise AssertionError

    async with open_kernel() as root:
        assert await root.serial(QUESTION, "?") is None
        root.on(QUESTION, no)
        root.on(QUESTION, nothing)
        root.on(QUESTION, answering)
        root.on(QUESTION, unreachable)
        found = await root.serial(QUESTION, "?")
        assert found == answer
        assert type(found) is type(answer)
    assert trace == ["no", "nothing"]


async def test_serial_raises_what_a_listener_raises_and_asks_nobody_else() -> None:
    async with open_kernel() as root:
        root.on(QUESTION, breaking)
        root.on(QUESTION, lambda payload: 1)
        with pytest.raises(Broken):
            await root.serial(QUESTION, "?")


def innermost(payload: str) -> str:
    return f"({payload})"


async def test_a_waterfall_without_listeners_is_what_the_dispatcher_does() -> None:
    async with open_kernel() as root:
        assert await root.waterfall(CALL, "x", innermost) == "(x)"


async def test_the_first_listener_of_a_waterfall_lies_outermost_and_sync_and_async_mix() -> None:
    async def a(payload: str, go_on: Next[str, str]) -> str:
        return "a" + await go_on(payload + "a") + "a"

    def b(payload: str, go_on: Next[str, str]) -> Awaitable[str]:
        return go_on(payload + "b")

    async def c(payload: str, go_on: Next[str, str]) -> str:
        return "c" + await go_on() + "c"

    async def end(payload: str) -> str:
        return innermost(payload)

    async with open_kernel() as root:
        root.on(CALL, a)
        root.on(CALL, b)
        root.on(CALL, c, prepend=True)
        assert await root.waterfall(CALL, "x", end) == "ca(xab)ac"


async def test_a_listener_that_does_not_go_on_answers_for_all() -> None:
    def veto(payload: str, go_on: Next[str, str]) -> str:
        return "no"

    def unreachable(payload: str) -> str:
        raise AssertionError

    async with open_kernel() as root:
        root.on(CALL, veto)
        assert await root.waterfall(CALL, "x", unreachable) == "no"


async def test_going_on_twice_is_an_error_and_skips_nobody() -> None:
    calls: list[str] = []

    async def twice(payload: str, go_on: Next[str, str]) -> str:
        await go_on()
        return await go_on()

    async def counted(payload: str, go_on: Next[str, str]) -> str:
        calls.append(payload)
        return await go_on()

    async with open_kernel() as root:
        root.on(CALL, twice)
        root.on(CALL, counted)
        with pytest.raises(NextMisused, match="twice"):
            await root.waterfall(CALL, "x", innermost)
    assert calls == ["x"]


async def test_going_on_after_the_answer_is_an_error() -> None:
    kept: list[Next[str, str]] = []

    def keep(payload: str, go_on: Next[str, str]) -> str:
        kept.append(go_on)
        return "answer"

    async with open_kernel() as root:
        root.on(CALL, keep)
        await root.waterfall(CALL, "x", innermost)
        with pytest.raises(NextMisused, match="after it had answered"):
            await kept[0]()


async def test_an_error_in_a_waterfall_passes_through_the_listeners_around_it() -> None:
    async def catching(payload: str, go_on: Next[str, str]) -> str:
        try:
            return await go_on()
        except Broken:
            return "caught"

    def inner(payload: str, go_on: Next[str, str]) -> str:
        raise Broken

    async with open_kernel() as root:
        root.on(CALL, inner)
        with pytest.raises(Broken):
            await root.waterfall(CALL, "x", innermost)
        root.on(CALL, catching, prepend=True)
        assert await root.waterfall(CALL, "x", innermost) == "caught"


async def test_a_waterfall_whose_listener_is_unloaded_at_work_fails_and_the_listener_is_over() -> None:
    trace: list[str] = []

    async def endless(payload: str, go_on: Next[str, str]) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            trace.append("over")
        raise AssertionError

    async with open_kernel() as root, anyio.create_task_group() as group:
        fiber = await root.plugin(applied(lambda ctx: ctx.on(CALL, endless)), name="wrapper")

        async def call() -> None:
            with pytest.raises(ListenerUnloaded, match="`wrapper`"):
                await root.waterfall(CALL, "x", innermost)
            trace.append("raised")

        group.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        await fiber.dispose()
        assert trace[:1] == ["over"]
    assert trace == ["over", "raised"]


async def test_a_listener_may_dispose_its_own_plugin() -> None:
    async with open_kernel() as root:

        def start(ctx: Context) -> None:
            async def listener(payload: str) -> int:
                await ctx.fiber.dispose()
                raise AssertionError

            ctx.on(QUESTION, listener)

        fiber = await root.plugin(start)
        root.on(QUESTION, lambda payload: 1)
        assert await root.serial(QUESTION, "?") == 1
        await fiber
        assert fiber.state == "DISPOSED"


async def test_a_listener_whose_plugin_was_unloaded_during_the_dispatch_is_left_out() -> None:
    async with open_kernel() as root:

        async def unload(payload: str) -> None:
            await fiber.dispose()

        root.on(QUESTION, unload)
        fiber = await root.plugin(applied(lambda ctx: ctx.on(QUESTION, breaking)))
        assert await root.serial(QUESTION, "?") is None


async def test_a_listener_that_was_removed_at_work_still_ends_with_its_plugin() -> None:
    trace: list[str] = []

    async def endless(payload: str) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            trace.append("over")

    async with open_kernel() as root:
        registrations: list[Callable[[], None]] = []
        fiber = await root.plugin(applied(lambda ctx: registrations.append(ctx.on(SAVED, endless).dispose)))
        root.emit(SAVED, "x")
        await anyio.wait_all_tasks_blocked()
        registrations[0]()
        assert trace == []
        await fiber.dispose()
        assert trace == ["over"]


async def test_an_event_and_a_waterfall_of_one_name_are_two() -> None:
    async with open_kernel() as root:
        root.on(Event[str, None]("same"), breaking)
        assert await root.waterfall(Waterfall[str, str]("same"), "x", innermost) == "(x)"


async def test_a_void_context_dispatches_nothing() -> None:
    contexts: list[Context] = []
    async with open_kernel() as root:
        fiber = await root.plugin(applied(contexts.append))
        await fiber.dispose()
        with pytest.raises(ContextInactive):
            contexts[0].emit(SAVED, "x")
        with pytest.raises(ContextInactive):
            await contexts[0].parallel(SAVED, "x")


def no_stays_no(behind: str, said: str, heard: bool) -> str:
    return "no" if "no" in (behind, said) else f"{said}({behind})" if heard else f"{said}+{behind}"


async def test_with_a_merge_every_listener_is_heard_and_none_speaks_for_those_behind_it() -> None:
    heard: list[str] = []
    async with open_kernel() as root:

        async def hear(payload: str, go_on: Next[str, str]) -> str:
            heard.append("hear")
            await go_on()
            return "yes"

        def ignore(payload: str, go_on: Next[str, str]) -> str:
            heard.append("ignore")
            return "yes"

        root.on(CALL, hear)
        root.on(CALL, ignore)
        assert await root.waterfall(CALL, "x", lambda _: "in", merge=no_stays_no) == "yes(yes+in)"
        root.on(CALL, lambda payload, go_on: "no")
        assert await root.waterfall(CALL, "x", lambda _: "in", merge=no_stays_no) == "no"
    assert heard == ["hear", "ignore"] * 2


async def test_with_a_merge_errors_behind_a_listener_and_the_payload_stay_what_they_are() -> None:
    async with open_kernel() as root:

        async def swallow(payload: str, go_on: Next[str, str]) -> str:
            try:
                return await go_on()
            except Broken:
                return "yes"

        outer = root.on(CALL, swallow)

        def broken(payload: str, go_on: Next[str, str]) -> str:
            raise Broken(payload)

        inner = root.on(CALL, broken)
        with pytest.raises(Broken):
            await root.waterfall(CALL, "x", lambda _: "in", merge=no_stays_no)
        inner.dispose()
        outer.dispose()

        async def forge(payload: str, go_on: Next[str, str]) -> str:
            return await go_on("another")

        root.on(CALL, forge)
        with pytest.raises(NextMisused, match="something else"):
            await root.waterfall(CALL, "x", lambda _: "in", merge=no_stays_no)


async def test_a_listener_goes_on_again_where_that_is_meant_and_not_before_it_has_an_answer() -> None:
    async with open_kernel() as root:

        async def again(payload: str, go_on: Next[str, str]) -> str:
            first = go_on()
            with pytest.raises(NextMisused, match="twice"):
                go_on()
            return await first + await go_on()

        root.on(CALL, again)
        assert await root.waterfall(CALL, "x", lambda payload: payload, repeats=True) == "xx"
