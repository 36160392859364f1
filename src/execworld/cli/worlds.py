"""Options that say which world, and what is said when it opens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import click

from execworld.cli.compositions import CompositionChoice, chosen_composition, layer_options
from execworld.cli.messages import STDERR, is_terminal, note, say
from execworld.cli.policies import PolicyChoice, chosen_policy, policy_options
from execworld.seams import Boundary, ConfigurationError, ExecworldError, OnProgress, World
from execworld.seams.values import record
from execworld.world import ResolvedWorld, environment_variable, list_providers, resolve_world
from execworld.world.locations import has_own_document, user_locations

if TYPE_CHECKING:
    from execworld.assembly import RunningComposition

VARIABLE: Final = "EXECWORLD_WORLD"
DEFAULT_WORLD: Final = "landlock"

OnRunning: TypeAlias = "Callable[[RunningComposition], None]"
CommandT = TypeVar("CommandT", bound=Callable[..., Any])


@record
class WorldChoice:
    """Which world was asked for.

    Attributes:
        name: Name or URL from the command line; None when it was not given there.
        config: Options as text.
        quiet: Say nothing about the world.
        policy: What may be done in it.
        composition: The layers that say all of this instead; None when a name does.
    """

    name: str | None
    config: dict[str, str]
    quiet: bool = False
    policy: PolicyChoice = field(default_factory=chosen_policy)
    composition: CompositionChoice | None = field(default_factory=chosen_composition)

    def resolve(self) -> ResolvedWorld[Any]:
        """Find the world and check its options. Nothing is started.

        Raises:
            ConfigurationError: no world was named and the default is not installed; never another one instead.
            UsageError: a composition was given where only a name is understood.
        """
        if self.composition is not None:
            raise click.UsageError("this takes a world by its name, and no composition: use -w")
        preset = environment_variable(VARIABLE)
        if self.name is not None:
            if preset is not None and preset != self.name and not self.quiet:
                note(f"-w {_shown(self.name)} is used, not {VARIABLE}={_shown(preset)}")
            return resolve_world(self.name, self.config, text=True)
        if preset is not None:
            try:
                return resolve_world(preset, self.config, text=True)
            except ExecworldError as error:
                error.hint = f"{error.hint}\nthe world was named by the variable {VARIABLE}".lstrip("\n")
                raise
        if all(listing.name != DEFAULT_WORLD for listing in list_providers()):
            message = f"no world was named, and the default world `{DEFAULT_WORLD}` is not installed"
            hint = f"name one: `-w local` runs on this host without confinement; or set {VARIABLE}"
            raise ConfigurationError(message, hint=hint)
        return resolve_world(DEFAULT_WORLD, self.config, text=True)

    @asynccontextmanager
    async def open(self, on_running: OnRunning = lambda _: None) -> AsyncGenerator[World]:
        """Open the world, by its name or by a composition, and say what does not hold in it.

        Args:
            on_running: Gets the composition, if it is one.
        """
        if self.quiet or not is_terminal(STDERR):
            async with self._opening(None, on_running) as world:
                self._announce(world)
                yield world
            return
        from execworld.cli.progress import show_opening

        with show_opening() as bar:
            async with self._opening(bar, on_running) as world:
                bar.finish()
                self._announce(world)
                yield world

    def effective_composition(self) -> CompositionChoice | None:
        """The composition that was asked for, or that of the user's own document where nothing else was said."""
        if self.composition is not None:
            return self.composition
        places = user_locations()
        if not has_own_document(places):
            return None
        preset = environment_variable(VARIABLE)
        said = [
            *(["-w"] if self.name is not None else [VARIABLE] if preset is not None else []),
            *(["--config"] if self.config else []),
            *(f"--{option}" for option in self.policy.given),
        ]
        if not said:
            return CompositionChoice()
        if not self.quiet:
            note(f"{places.home} is not read, because {said[0]} says what is opened")
        return None

    def _opening(
        self, on_progress: OnProgress | None, on_running: OnRunning
    ) -> AbstractAsyncContextManager[World]:
        composition = self.effective_composition()
        if composition is None:
            return self._by_name(on_progress)
        self._refuse_contradictions()
        from execworld.cli.composed import open_composed

        return open_composed(composition, on_progress, quiet=self.quiet, on_running=on_running)

    @asynccontextmanager
    async def _by_name(self, on_progress: OnProgress | None) -> AsyncGenerator[World]:
        chosen = self.resolve()
        policy = self.policy.policy(chosen.provider)
        async with chosen.open(policy=policy, on_progress=on_progress) as world:
            yield world

    def _refuse_contradictions(self) -> None:
        """Refuse what a composition would have to ignore."""
        if self.name is not None:
            raise click.UsageError(
                "a composition names the world: leave out -w, or write --set world.use=NAME"
            )
        if self.config:
            raise click.UsageError(
                "with a composition, write --set world.config.NAME=VALUE instead of --config"
            )
        if self.policy.given:
            option = next(iter(self.policy.given))
            message = (
                f"with a composition, the policy is its section `policy`: write --set instead of --{option}"
            )
            raise click.UsageError(message)
        preset = environment_variable(VARIABLE)
        if preset is not None and not self.quiet:
            note(f"the composition says which world, not {VARIABLE}={_shown(preset)}")

    def _announce(self, world: World) -> None:
        """Say what does not hold in *world*, once."""
        if self.quiet:
            return
        kind = world.identity.kind
        if world.facts.boundary is Boundary.NONE and not world.policy.confines:
            say(f"execworld: world {kind}: unconfined")
        for dimension in world.enforcement.unenforced():
            entry = world.enforcement.entries[dimension]
            say(f"execworld: world {kind}: {dimension} is {entry.state}: {entry.why_not}")


def _shown(name: str) -> str:
    """The name without an address, which may hold a password."""
    scheme, separator, _ = name.partition("://")
    return f"{scheme}://..." if separator else name


def world_options(command: CommandT) -> CommandT:
    """The options ``-w``, ``--config`` and ``-q``, as parameters ``world_name``, ``config`` and ``quiet``, and those
    of a policy and of a composition, which are none."""
    command = layer_options(policy_options(command))
    for decorate in reversed(_WORLD_OPTIONS):
        command = decorate(command)
    return command


def parse_config(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    config: dict[str, str] = {}
    for value in values:
        name, separator, text = value.partition("=")
        if not separator or not name:
            raise click.BadParameter("write it as NAME=VALUE", context, parameter)
        if name in config:
            raise click.BadParameter(f"`{name}` is given twice", context, parameter)
        config[name] = text
    return config


_WORLD_OPTIONS: Final = (
    click.option(
        "-w",
        "--world",
        "world_name",
        metavar="WORLD",
        help=f"Name or URL of the world; without it {VARIABLE}, else {DEFAULT_WORLD}.",
    ),
    click.option(
        "--config",
        metavar="NAME=VALUE",
        multiple=True,
        callback=parse_config,
        help="An option of the world; a list or mapping as JSON. Repeatable.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Say nothing about the world."),
)
