"""What is read as a plugin, and what is refused rather than guessed."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar, Self

import pytest
from pydantic import BaseModel

from execworld.kernel import Context, FiberState, Key, as_plugin, open_kernel, plugin
from execworld.seams import PluginAmbiguous, PluginInvalid

if TYPE_CHECKING:
    from decimal import Decimal

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(10)]

CLOCK = Key[str]("clock")
RADIO = Key[str]("radio")


class Settings(BaseModel, extra="forbid"):
    text: str = "default"


def module(called: str, /, **members: object) -> ModuleType:
    made = ModuleType(called)
    vars(made).update(members)
    return made


class Recorder:
    """A plugin that is a class, with all declarations that there are."""

    name = "recorder"
    inject = (CLOCK,)
    optional: ClassVar = [RADIO]
    provides = ()
    instances: ClassVar[list["Recorder"]] = []

    def __init__(self, ctx: Context, config: Settings) -> None:
        self.text = f"{config.text} {ctx.get(CLOCK)}"
        self.started = False
        Recorder.instances.append(self)

    async def start(self) -> None:
        self.started = True


async def test_a_class_is_made_and_started() -> None:
    Recorder.instances.clear()
    async with open_kernel() as root:
        root.provide(CLOCK, "tick")
        fiber = await root.plugin(Recorder, {"text": "hello"})
        assert (fiber.name, fiber.state) == ("recorder", FiberState.ACTIVE)
        assert (fiber.plugin.inject, fiber.plugin.optional) == ((CLOCK,), (RADIO,))
    (instance,) = Recorder.instances
    assert (instance.text, instance.started) == ("hello tick", True)


async def test_a_class_that_is_a_context_manager_is_entered_and_left() -> None:
    trace: list[str] = []

    class Held:
        def __init__(self, ctx: Context) -> None:
            pass

        async def __aenter__(self) -> Self:
            trace.append("enter")
            return self

        async def __aexit__(self, *error: object) -> None:
            trace.append("leave")

    async with open_kernel() as root:
        await root.plugin(Held)
        assert trace == ["enter"]
    assert trace == ["enter", "leave"]


async def test_a_module_is_started_by_its_function() -> None:
    texts: list[str] = []

    def apply(ctx: Context, config: Settings) -> None:
        texts.append(f"{config.text} {ctx.get(CLOCK)}")

    async with open_kernel() as root:
        fiber = root.plugin(module("company.bell", apply=apply, inject=(CLOCK,)), {"text": "ding"})
        assert fiber.name == "bell"
        root.provide(CLOCK, "tick")
        await fiber
    assert texts == ["ding tick"]


async def test_functions_may_be_plain_async_or_generators_and_have_any_name() -> None:
    trace: list[str] = []

    def plain(ctx: Context) -> None:
        trace.append("plain")

    async def waiting(ctx: Context) -> None:
        trace.append("async")

    async def generator(ctx: Context) -> AsyncGenerator[None]:
        trace.append("generator")
        yield

    async with open_kernel() as root:
        for each in (plain, waiting, generator):
            assert (await root.plugin(each)).name == each.__name__
        assert root.plugin(plain, name="other").name == "other"
        assert root.plugin(plugin(name="third")(plain)).name == "third"
    assert trace[:3] == ["plain", "async", "generator"]


async def test_a_plugin_value_is_taken_as_it_is() -> None:
    declared = plugin(inject=(CLOCK, CLOCK))(_apply)
    assert as_plugin(declared) is declared
    assert declared.inject == (CLOCK,)


async def test_an_annotation_that_only_type_checkers_know_does_no_harm_to_the_other() -> None:
    def declare(ctx: "Decimal", config: "Settings") -> None: ...

    assert as_plugin(declare).config_type is Settings


def _apply(ctx: Context) -> None: ...


def _no_context() -> None: ...


def _many(ctx: Context, config: Settings, other: int) -> None: ...


def _keyword(ctx: Context, *, config: Settings) -> None: ...


def _unannotated(ctx, config):  # type: ignore[no-untyped-def]  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType] the error under test
    ...


def _no_model(ctx: Context, config: dict[str, str]) -> None: ...


def _lost(ctx: Context, config: "Decimal") -> None: ...


def _generator(ctx: Context) -> Iterator[None]:
    yield


class _Abstract(ABC):
    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx

    @abstractmethod
    def work(self) -> None: ...


class _TwoStarts:
    def __init__(self, ctx: Context) -> None: ...
    def start(self) -> None: ...
    async def __aenter__(self) -> None: ...
    async def __aexit__(self, *error: object) -> None: ...


class _Applied:
    def __init__(self, ctx: Context) -> None: ...
    def apply(self) -> None: ...


class _Misspelt:
    injects = (CLOCK,)

    def __init__(self, ctx: Context) -> None: ...


class _Instance:
    def __call__(self, ctx: Context) -> None: ...


REFUSED: list[tuple[object, str]] = [
    (None, "no plugin: an object of type `NoneType`"),
    ("name", "no plugin: an object of type `str`"),
    (_Instance(), "no plugin: an object of type `_Instance`"),
    (_no_context, "it takes a context"),
    (_many, "it takes a context"),
    (_keyword, "it takes a context"),
    (_unannotated, "`config` is not annotated with a pydantic model"),
    (_no_model, "`config` is not annotated with a pydantic model"),
    (_lost, "the annotation `Decimal` cannot be found"),
    (_generator, "a generator"),
    (_Abstract, "an abstract class"),
    (_Misspelt, "it declares `injects`, which means nothing\nhint: did you mean `inject`"),
    (module("m"), "module `m` has no `apply`"),
    (module("m", plugin=plugin()(_apply)), "hint: it holds the plugin `plugin`"),
    (module("m", apply=_apply, Inject=(CLOCK,)), "declares `Inject`.*\nhint: did you mean `inject`"),
    (module("m", apply=_apply, provide=(CLOCK,)), "hint: did you mean `provides`"),
    (module("m", apply=_apply, inject=CLOCK), "`inject` is a tuple of keys"),
    (module("m", apply=_apply, inject="clock"), "`inject` is a tuple of keys"),
    (module("m", apply=_apply, inject=("clock",)), "`inject` is a tuple of keys"),
    (module("m", apply=_apply, name=3), "`name` is no text"),
    (module("m", apply="apply"), "the `apply` of a module is a function"),
]


@pytest.mark.parametrize(("candidate", "message"), REFUSED)
def test_what_is_no_plugin_is_refused(candidate: object, message: str) -> None:
    with pytest.raises(PluginInvalid, match=message):
        as_plugin(candidate)


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        (_TwoStarts, "a class that has `start` and `__aenter__`"),
        (_Applied, "a class that has `apply`"),
        (module("m", apply=plugin(inject=(CLOCK,))(_apply)), "whose `apply` is a plugin with declarations"),
    ],
)
def test_what_could_be_two_plugins_is_refused(candidate: object, message: str) -> None:
    with pytest.raises(PluginAmbiguous, match=message):
        as_plugin(candidate)
