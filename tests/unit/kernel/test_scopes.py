"""Scopes: what is registered in one is there for it and for those inside it, and for nobody else."""

from collections.abc import Callable

import pytest

from execworld.kernel import Context, Event, Registry, Scope, open_kernel
from execworld.seams import RegistrationConflict

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(10)]

SAVED = Event[str, None]("saved")

PRESET = Scope("preset")
ONE = Scope("one", PRESET)
OTHER = Scope("other", PRESET)


def noting(trace: list[str], name: str) -> Callable[[str], None]:
    def note(payload: str) -> None:
        trace.append(f"{name}:{payload}")

    return note


async def test_listeners_hear_their_scope_and_those_inside_it() -> None:
    trace: list[str] = []
    async with open_kernel() as root:
        root.on(SAVED, noting(trace, "all"))
        for scope in (PRESET, ONE, OTHER):
            root.scoped(scope).on(SAVED, noting(trace, scope.name))
        root.scoped(ONE).emit(SAVED, "1")
        await root.scoped(PRESET).parallel(SAVED, "2")
        root.emit(SAVED, "3")
    assert trace[:3] == ["all:1", "preset:1", "one:1"]
    assert sorted(trace[3:5]) == ["all:2", "preset:2"]
    assert trace[5:] == ["all:3"]


async def test_plugins_belong_to_the_scope_in_which_they_were_applied() -> None:
    trace: list[str] = []

    def start(ctx: Context) -> None:
        assert ctx.scope is ONE
        ctx.on(SAVED, noting(trace, "one"))

    async with open_kernel() as root:
        await root.scoped(ONE).plugin(start)
        root.scoped(OTHER).emit(SAVED, "x")
        root.scoped(ONE).emit(SAVED, "y")
    assert trace == ["one:y"]


async def test_the_nearest_entry_of_a_name_counts_and_its_end_shows_the_one_behind_it() -> None:
    tools = Registry[str]("tool")
    async with open_kernel() as root:
        one, other = root.scoped(ONE), root.scoped(OTHER)
        tools.add(root, "bash", "everybody's")
        tools.add(root.scoped(PRESET), "read", "preset's")
        shadow = tools.add(one, "bash", "one's")
        assert dict(tools.view(one)) == {"bash": "one's", "read": "preset's"}
        assert dict(tools.view(other)) == {"bash": "everybody's", "read": "preset's"}
        assert dict(tools.view(root)) == {"bash": "everybody's"}
        assert tools.get(root, "read") is None
        shadow.dispose()
        assert tools.get(one, "bash") == "everybody's"
        assert tools.layer_count == 2
    assert tools.layer_count == 0


async def test_entries_end_with_the_plugin_that_added_them() -> None:
    tools = Registry[str]("tool")

    def start(ctx: Context) -> None:
        tools.add(ctx, "bash", "x")

    async with open_kernel() as root:
        fiber = await root.plugin(start)
        assert tools.get(root, "bash") == "x"
        await fiber.dispose()
        assert tools.get(root, "bash") is None
        await root.plugin(start)
        assert tools.get(root, "bash") == "x"


async def test_a_name_is_registered_once_in_a_layer() -> None:
    tools = Registry[str]("tool")

    def start(ctx: Context) -> None:
        tools.add(ctx, "bash", "x")

    async with open_kernel() as root:
        await root.plugin(start)
        with pytest.raises(
            RegistrationConflict, match="tool `bash` is registered already, by plugin `start`"
        ):
            tools.add(root, "bash", "y")
        tools.add(root.scoped(ONE), "bash", "y")
        assert root.describe().effects == 2
