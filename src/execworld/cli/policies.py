"""Options that say what a command may do in its world."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import click

from execworld.seams import (
    ConfigurationError,
    Dimension,
    NetworkMode,
    NetworkPolicy,
    Provider,
    Requirement,
    ResourceLimits,
    SandboxMode,
    SandboxPolicy,
)

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_KEY: Final = "execworld.policy"
_SIZE: Final = re.compile(r"(\d+)([KMG]?)", re.ASCII)
_FACTORS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LIMITS: Final = {
    "pids": "processes",
    "memory": "memory_bytes",
    "cpu": "cpu_s",
    "file": "file_size_bytes",
    "wall": "wall_s",
    "output": "output_bytes",
}
_SECONDS: Final = frozenset({"cpu", "wall"})


@dataclass(slots=True)
class PolicyChoice:
    """What was asked for on the command line.

    Attributes:
        given: Parts of a policy by their option; what is not there was not asked for.
        explain: Say how the world would be confined, and run nothing.
    """

    given: dict[str, Any] = field(default_factory=dict[str, Any])
    explain: bool = False

    def policy(self, provider: Provider[Any]) -> SandboxPolicy | None:
        """The policy; None when nothing was asked for.

        Raises:
            ConfigurationError: the parts contradict each other.
        """
        if not self.given:
            return None
        given, usual = self.given, provider.default_policy and provider.default_policy(None)
        mode = SandboxMode(given.get("mode", SandboxMode.WORKSPACE_WRITE))
        place = os.path.abspath if usual is not None else str  # of this host, or of a world that is elsewhere
        workspace = given.get("workspace")
        if workspace is None and mode is SandboxMode.WORKSPACE_WRITE:
            workspace = usual and usual.workspace
            if workspace is None:
                raise ConfigurationError(
                    f"workspace-write in world `{provider.name}` needs a directory of that world",
                    hint="name it: --workspace DIR",
                )
        strict, dimensions = given.get("require", (False, {}))
        return SandboxPolicy(
            mode=mode,
            workspace=None if workspace is None else place(workspace),
            read_roots=tuple(map(place, given.get("read", ()))),
            write_roots=tuple(map(place, given.get("write", ()))),
            hidden=tuple(map(place, given.get("hide", ()))),
            network=given.get("net", NetworkPolicy()),
            limits=given.get("limit", ResourceLimits()),
            require=Requirement.STRICT if strict else Requirement.DEFAULT,
            require_dimensions=dimensions,
        )


def chosen_policy() -> PolicyChoice:
    """The choice of the command that is running."""
    context = click.get_current_context(silent=True)
    if context is None:
        return PolicyChoice()
    choice: PolicyChoice = context.meta.setdefault(_KEY, PolicyChoice())
    return choice


def policy_options(command: CommandT) -> CommandT:
    """The options of a policy. They are no parameters of the command: see `chosen_policy`."""
    for decorate in reversed(_POLICY_OPTIONS):
        command = decorate(command)
    return command


def parse_network(text: str) -> NetworkPolicy:
    """``none``, ``all`` or ``tcp:PORT[,PORT...]``.

    Raises:
        ValueError: it is neither.
    """
    if text in (NetworkMode.NONE, NetworkMode.ALL):
        return NetworkPolicy(NetworkMode(text))
    kind, _, ports = text.partition(":")
    numbers = ports.split(",")
    if kind != "tcp" or not all(re.fullmatch(r"\d{1,5}", number, re.ASCII) for number in numbers):
        raise ValueError("write it as none, all or tcp:PORT[,PORT...]")
    return NetworkPolicy(NetworkMode.PORTS, tuple(map(int, numbers)))


def parse_limits(text: str) -> dict[str, float | int]:
    """``NAME=VALUE[,...]`` as fields of `ResourceLimits`.

    Raises:
        ValueError: a name is unknown, or a value is none.
    """
    limits: dict[str, float | int] = {}
    for part in text.split(","):
        name, separator, value = part.partition("=")
        if not separator or name not in _LIMITS:
            import difflib  # of use to nobody who spells it right

            near = difflib.get_close_matches(name, (*_LIMITS, *_LIMITS.values()), n=1)
            known = next(
                (short for short, full in _LIMITS.items() if near and near[0] in (short, full)), None
            )
            meant = f"; did you mean `{known}`?" if known else ""
            raise ValueError(f"write it as NAME=VALUE[,...] with a NAME of {', '.join(_LIMITS)}{meant}")
        match = _SIZE.fullmatch(value.upper())
        if name in _SECONDS:
            limits[_LIMITS[name]] = float(value)
        elif match is None or (name == "pids" and match[2]):
            raise ValueError(
                f"{name} is a whole number" + ("" if name == "pids" else ", with K, M or G for a size")
            )
        else:
            limits[_LIMITS[name]] = int(match[1]) * _FACTORS[match[2]]
    return limits


def parse_requirement(text: str) -> tuple[Dimension, bool] | None:
    """``DIMENSION=yes|no``; None for ``strict``.

    Raises:
        ValueError: it is neither.
    """
    if text == Requirement.STRICT:
        return None
    name, _, answer = text.partition("=")
    if name not in list(Dimension) or answer not in ("yes", "no"):
        raise ValueError(f"write it as strict or DIMENSION=yes|no with a DIMENSION of {', '.join(Dimension)}")
    return Dimension(name), answer == "yes"


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    choice: PolicyChoice = context.meta.setdefault(_KEY, PolicyChoice())
    name = str(parameter.name)
    if name == "explain":
        choice.explain = bool(value)
    elif value not in (None, ()):
        try:
            choice.given[name] = _PARSERS[name](value) if name in _PARSERS else value
        except (ValueError, ConfigurationError) as error:
            message = error.message if isinstance(error, ConfigurationError) else str(error)
            raise click.BadParameter(message, context, parameter) from error


def _limits(values: tuple[str, ...]) -> ResourceLimits:
    limits: dict[str, Any] = {}
    for value in values:
        limits |= parse_limits(value)
    return ResourceLimits(**limits)


def _requirements(values: tuple[str, ...]) -> tuple[bool, dict[Dimension, bool]]:
    parsed = [parse_requirement(value) for value in values]
    return None in parsed, dict(item for item in parsed if item is not None)


def _path(text: str) -> str:
    if not text.strip():
        raise ValueError("a blank path names no place, and above all not the current directory")
    return text


def _paths(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_path, texts))


_PARSERS: Final[dict[str, Callable[[Any], Any]]] = {
    "net": parse_network,
    "limit": _limits,
    "require": _requirements,
    "workspace": _path,
    "read": _paths,
    "write": _paths,
    "hide": _paths,
}


def _option(*names: str, **details: Any) -> Callable[[CommandT], CommandT]:
    return click.option(*names, expose_value=False, callback=_keep, **details)


_POLICY_OPTIONS: Final = (
    _option("--mode", type=click.Choice([str(mode) for mode in SandboxMode]), help="What may be written."),
    _option("--workspace", metavar="DIR", help="Directory that may be written; by default the current one."),
    _option(
        "--read", metavar="DIR", multiple=True, help="Let only these and the workspace be read. Repeatable."
    ),
    _option("--write", metavar="DIR", multiple=True, help="Let this directory be written, too. Repeatable."),
    _option("--hide", metavar="PATH", multiple=True, help="Let this not be read. Repeatable."),
    _option("--net", metavar="none|tcp:PORT,...|all", help="Which network may be used; by default all."),
    _option(
        "--limit",
        metavar="NAME=VALUE,...",
        multiple=True,
        help="pids, memory, cpu, file, wall or output; sizes with K, M or G, times in seconds.",
    ),
    _option(
        "--require",
        metavar="strict|DIM=yes|no",
        multiple=True,
        help="Which dimensions must be enforced. Repeatable.",
    ),
    _option("--explain", is_flag=True, help="Say how the world is confined, and run nothing."),
)
