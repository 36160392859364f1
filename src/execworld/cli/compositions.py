"""Options that say which composition. What reads documents is imported when one is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from execworld.seams.values import record

if TYPE_CHECKING:
    from execworld.config import Composition, Wanted

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


@record
class CompositionChoice:
    """Which composition was asked for, in the words of `execworld.config.Wanted`."""

    profile: str | None = None
    patches: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    no_home: bool = False
    alone: bool = False

    def wanted(self, *further: str) -> Wanted:
        """The layers, with *further* patches over those that were named."""
        from execworld.config import Wanted

        return Wanted(
            profile=self.profile,
            patches=(*self.patches, *further),
            settings=self.settings,
            home=not self.no_home,
            alone=self.alone,
        )

    def load(self, *further: str, reads: bool = True) -> Composition:
        """The composition, whether it holds its floor or not. Nothing is started.

        Args:
            further: As of `wanted`.
            reads: Look up what references stand for.

        Raises:
            ConfigurationError, FloorViolated: as of `execworld.config.compose`.
        """
        from execworld.config import load_unheld
        from execworld.config.references import Lookup

        return load_unheld(self.wanted(*further), lookup=Lookup(reads=reads))


def chosen_composition() -> CompositionChoice | None:
    """What the options of `layer_options` say for the command that is running; None when there are none of them."""
    context = click.get_current_context(silent=True)
    given: dict[str, Any] = {} if context is None else context.meta.get(_KEY, {})
    if not given:
        return None
    return CompositionChoice(
        profile=given.get("profile"),
        patches=given.get("patches", ()),
        settings=given.get("settings", ()),
        no_home=given.get("no_home", False),
        alone=given.get("alone", False),
    )


def layer_options(command: CommandT) -> CommandT:
    """The same options for what opens a world. They are no parameters of the command: see `chosen_composition`."""
    for names, details in reversed(_DECLARATIONS):
        command = click.option(*names, expose_value=False, callback=_keep, **details)(command)
    return command


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        context.meta.setdefault(_KEY, {})[str(parameter.name)] = value


def composition_options(command: CommandT) -> CommandT:
    """The options of a composition, as parameters `profile`, `patches`, `settings`, `no_home` and `alone`."""
    for names, details in reversed(_DECLARATIONS):
        command = click.option(*names, **details)(command)
    return command


_KEY: Final = "execworld.composition"
_DECLARATIONS: Final[tuple[tuple[tuple[str, ...], dict[str, Any]], ...]] = (
    (("--profile",), {"metavar": "NAME", "help": "Lay this profile over the defaults."}),
    (
        ("--patch", "patches"),
        {
            "metavar": "FILE",
            "multiple": True,
            "help": "Lay this document over all others. Repeatable; later wins.",
        },
    ),
    (
        ("--set", "settings"),
        {"metavar": "KEY.KEY=VALUE", "multiple": True, "help": "Lay one value over even those. Repeatable."},
    ),
    (("--no-home",), {"is_flag": True, "help": "Leave out the user's own config.yml."}),
    (
        ("--alone",),
        {"is_flag": True, "help": "Take the patches alone: no defaults, no profile, no config.yml."},
    ),
)
