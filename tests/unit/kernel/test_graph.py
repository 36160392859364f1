"""The description of a kernel: plain values that say what runs on what, and why something does not run."""

import dataclasses

import anyio
import pytest

from execworld.kernel import Context, FiberDescription, FiberState, Key, describe, open_kernel, plugin

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(10)]

CLOCK = Key[str]("clock")
RADIO = Key[str]("radio")
LAMP = Key[str]("lamp")


@plugin(provides=(CLOCK,))
def clock(ctx: Context) -> None:
    ctx.provide(CLOCK, "tick")


@plugin(provides=(CLOCK,))
def broken(ctx: Context) -> None:
    raise ValueError("no battery")


@plugin(inject=(CLOCK,), optional=(LAMP,), provides=(RADIO,))
def radio(ctx: Context) -> None:
    ctx.provide(RADIO, "noise")


@plugin(inject=(RADIO, CLOCK))
def listener(ctx: Context) -> None:
    ctx.effect(lambda: lambda: None)


def child(description: FiberDescription, name: str) -> FiberDescription:
    (found,) = [each for each in description.children if each.name == name]
    return found


async def test_it_shows_states_services_and_children() -> None:
    def group(ctx: Context) -> None:
        ctx.plugin(clock)

    async with open_kernel() as root:
        root.plugin(group)
        root.plugin(radio)
        root.plugin(listener)
        await root.settle()
        graph = root.describe()
    assert (graph.name, graph.uid, graph.state, graph.held) == ("root", 0, FiberState.ACTIVE, False)
    assert [(each.name, each.state, each.uid) for each in graph.children] == [
        ("group", FiberState.ACTIVE, 1),
        ("radio", FiberState.ACTIVE, 2),
        ("listener", FiberState.ACTIVE, 3),
    ]
    (provided,) = child(graph.children[0], "clock").provides
    assert (provided.service, provided.realm, sorted(provided.users)) == ("clock", "", ["listener", "radio"])
    uses = [(each.service, each.provider, each.required) for each in child(graph, "radio").uses]
    assert uses == [("clock", "clock", True), ("lamp", "", False)]
    assert child(graph, "listener").effects == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.name = "x"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue] the error under test


async def test_it_says_why_a_plugin_is_pending_and_who_would_provide_what_is_missing() -> None:
    async with open_kernel(on_error=lambda report: None) as root:
        fiber = root.plugin(listener)
        await fiber
        missing = describe(fiber).missing
        assert [(each.service, each.reason) for each in missing] == [
            ("radio", "no plugin provides it"),
            ("clock", "no plugin provides it"),
        ]
        root.plugin(radio)
        await fiber
        missing = describe(fiber).missing
        assert missing[0].reason == "`radio` would provide it and is PENDING for `clock`"
        assert missing[0].declared_by == ("radio",)
        failed = root.plugin(broken)
        with pytest.raises(ValueError, match="no battery"):
            await failed
        assert describe(fiber).missing[1].reason == "`broken` would provide it and is FAILED: no battery"
        assert describe(failed).error == "ValueError: no battery"
        assert describe(failed).missing == ()


async def test_it_tells_a_provider_that_did_not_provide_from_one_that_is_not_ready() -> None:
    ready = anyio.Event()

    @plugin(provides=(CLOCK,))
    async def slow(ctx: Context) -> None:
        ctx.provide(CLOCK, "tick")
        await ready.wait()

    @plugin(provides=(RADIO,))
    def idle(ctx: Context) -> None: ...

    async def group(ctx: Context) -> None:
        await ctx.plugin(clock)
        await ready.wait()

    async with open_kernel() as root:
        fiber = root.plugin(listener)
        root.plugin(slow)
        root.plugin(idle)
        isolated = root.isolate(CLOCK, RADIO, label="own")
        other = isolated.plugin(listener)
        isolated.plugin(group)
        await anyio.wait_all_tasks_blocked()
        assert [each.reason for each in describe(fiber).missing] == [
            "`idle` may provide it, is ACTIVE, and did not",
            "`slow` would provide it and is LOADING",
        ]
        assert [(each.realm, each.reason) for each in describe(other).missing] == [
            ("own", "no plugin provides it"),
            ("own", "`group` would provide it and is LOADING"),
        ]
        ready.set()


async def test_it_shows_one_that_waits_to_replace_another() -> None:
    graphs: list[FiberDescription] = []

    async def check(ctx: Context) -> None:
        graphs.append(root.describe())

    async with open_kernel() as root:
        old = await root.plugin(clock)
        await old.replace(clock, name="new", check=check)
        (graph,) = graphs
        assert (child(graph, "new").state, child(graph, "new").held) == (FiberState.ACTIVE, True)
        assert not child(root.describe(), "new").held
