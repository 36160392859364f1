"""A provider whose engine a test can make weaker, plugins that misbehave, and compositions of texts."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import anyio

from execworld.config import Composition, Layer, PluginType, Registry, compose, plugin_type
from execworld.config.plugins import SHIPPED
from execworld.config.reading import Source, read_document
from execworld.kernel import FS, SANDBOX, SUBPROCESS, WORLD, Context, Plugin, plugin
from execworld.machine.local.machine import LocalMachine
from execworld.machine.world import WorldSettings, open_machine_world
from execworld.policies.parts import PARTS
from execworld.seams import (
    Boundary,
    CleanupIncomplete,
    Dimension,
    DimensionEnforcement,
    Enforcement,
    EnforcementState,
    OpenRequest,
    Probe,
    Provider,
    Sandbox,
    SandboxPolicy,
    World,
    WorldClaims,
    WorldIdentity,
)
from execworld.testing.worlds import CuttableMachine
from execworld.world import load_provider, open_world

GUARDS: Final = """
refuse_downgrade: {use: refuse_downgrade}
keep_one_world: {use: keep_one_world}
hold_floor: {use: hold_floor}
"""


@dataclass(frozen=True, slots=True)
class BoxConfig:
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}
    image: str = "debian"


@dataclass
class Engine:
    """What makes boxes. It says that it enforces what it does not: no test here lets a program try."""

    boundary: Boundary = Boundary.CONTAINER
    unenforced: frozenset[Dimension] = frozenset()
    leaves: str = ""
    gate: anyio.Event | None = None
    links: list[CuttableMachine] = field(default_factory=list[CuttableMachine])
    opened: list[World] = field(default_factory=list[World])

    def provider(self) -> Provider[BoxConfig]:
        return Provider("box", "a box", BoxConfig, self._open, self._probe, claims=self._claims)

    @asynccontextmanager
    async def _open(self, request: OpenRequest[BoxConfig]) -> AsyncGenerator[World]:
        asked, required = request.policy.asked(), request.policy.required()
        entries = {
            each: DimensionEnforcement(
                each in asked,
                each in required,
                EnforcementState.ABSENT if each in self.unenforced else EnforcementState.ENFORCED,
                why_not="the engine is weaker" if each in self.unenforced else "",
            )
            for each in asked
        }
        settings = WorldSettings(
            identity=WorldIdentity("box", f"box-{len(self.opened)}"),
            policy=request.policy,
            enforcement=Enforcement(entries),
            boundary=self.boundary,
        )
        link = CuttableMachine(LocalMachine(), settings.identity.world_id)
        self.links.append(link)
        async with open_machine_world(link, settings) as world:
            self.opened.append(world)
            yield world
        if self.gate is not None:
            await self.gate.wait()
        if self.leaves:
            raise CleanupIncomplete("not proven gone", leftovers=(self.leaves,))

    async def _probe(self) -> Probe:
        return Probe(available=True)

    def _claims(self, config: BoxConfig, policy: SandboxPolicy) -> WorldClaims:
        return WorldClaims(Boundary.CONTAINER, images=(config.image,), hosts=())


class FakeSandbox(Sandbox):
    """Says that everything holds."""

    def __init__(self, world: World, policy: SandboxPolicy, view_id: str) -> None:
        self._world = world
        self._policy = policy
        self._view_id = view_id

    @property
    def world_id(self) -> str:
        return self._world.world_id

    @property
    def view_id(self) -> str:
        return self._view_id

    @property
    def policy(self) -> SandboxPolicy:
        return self._policy

    @property
    def enforcement(self) -> Enforcement:
        return Enforcement(
            {
                each: DimensionEnforcement(True, True, EnforcementState.ENFORCED, by="magic")
                for each in Dimension
            }
        )

    async def confine(self, policy: SandboxPolicy) -> World:
        return self._world


@plugin(inject=(WORLD,), provides=(SANDBOX,))
def fake_sandbox(ctx: Context) -> None:
    """The same view by its name, and a report that nothing has proven."""
    world = ctx.get(WORLD)
    ctx.provide(SANDBOX, FakeSandbox(world, world.policy, world.view_id))


@plugin(inject=(WORLD,), provides=(SANDBOX,))
def foreign_sandbox(ctx: Context) -> None:
    world = ctx.get(WORLD)
    ctx.provide(SANDBOX, FakeSandbox(world, SandboxPolicy.full_access(), "of-nothing"))


@plugin(provides=(FS,))
async def host_files(ctx: Context) -> AsyncGenerator[None]:
    async with open_world("local") as other:
        ctx.provide(FS, other.fs)
        yield


@plugin()
def shadow(ctx: Context) -> None:
    """Files of the host in a realm of their own, for whoever is applied there."""
    ctx.isolate(FS).plugin(host_files)


@asynccontextmanager
async def _other_world(ctx: Context) -> AsyncGenerator[None]:
    async with open_world("local") as other:
        for key in PARTS:
            ctx.provide(key, other if key == WORLD else getattr(other, key.name))
        yield


@plugin()
def shadow_all(ctx: Context) -> None:
    """A whole world of its own in the realm `other`."""
    ctx.isolate(*PARTS, label="other").plugin(Plugin("other_world", _other_world, provides=PARTS))


class Tool:
    """A consumer that knows seams alone, and writes down each time it starts and ends."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def plugin(self) -> Plugin:
        @plugin(name="tool", inject=(FS, SUBPROCESS))
        async def tool(ctx: Context) -> AsyncGenerator[None]:
            self.events.append(f"start {ctx.fs.world_id}")
            yield
            self.events.append("end")

        return tool


@dataclass
class Setting:
    """Everything that a test of compositions needs."""

    engine: Engine = field(default_factory=Engine)
    tool: Tool = field(default_factory=Tool)
    plugins: dict[str, Any] = field(default_factory=dict[str, Any])
    guards: set[str] = field(default_factory=set[str])

    def registry(self) -> Registry:
        plugins: dict[str, PluginType] = {
            **SHIPPED,
            "tool": plugin_type(self.tool.plugin()),
            **{name: plugin_type(each, guards=name in self.guards) for name, each in self.plugins.items()},
        }
        for each in (fake_sandbox, foreign_sandbox, shadow, shadow_all):
            plugins[each.name] = plugin_type(each)
        worlds: dict[str, Provider[Any]] = {
            "box": self.engine.provider(),
            "local": load_provider("local"),
            "landlock": load_provider("landlock"),
        }
        return Registry(worlds, plugins)

    def compose(self, *texts: str) -> Composition:
        """The composition of documents, the lowest first."""
        layers = tuple(
            Layer("patch", f"{index}.yml", read_document(text.encode(), Source("patch", f"{index}.yml", "/")))
            for index, text in enumerate(texts)
        )
        return compose(layers, self.registry())
