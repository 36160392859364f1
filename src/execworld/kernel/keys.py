"""Names with a type: of services, of events, and the services that every composition knows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeAlias, TypeVar

from execworld.seams import ConfigurationError, FileSystem, Sandbox, Shell, Subprocess, World

if TYPE_CHECKING:
    from typing import Any

ValueT = TypeVar("ValueT")
PayloadT = TypeVar("PayloadT")
ResultT = TypeVar("ResultT")
_ContravariantT = TypeVar("_ContravariantT", contravariant=True)
_CovariantT = TypeVar("_CovariantT", covariant=True)


# What a context has of its own. A service of such a name could not be read as an attribute.
_RESERVED: Final = frozenset(
    {
        "describe",
        "effect",
        "effect_async",
        "emit",
        "enter",
        "fiber",
        "find",
        "get",
        "isolate",
        "of_run",
        "on",
        "parallel",
        "plugin",
        "provide",
        "scope",
        "scoped",
        "serial",
        "settle",
        "slot",
        "start_soon",
        "waterfall",
    }
)


def _check_name(kind: str, name: str) -> None:
    if not name.isidentifier() or name.startswith("_") or name in _RESERVED:
        message = f"{kind} `{name}`: not a name that a context could have as an attribute"
        raise ConfigurationError(message, hint="a Python identifier that no method of a context has")


class Unchanged:
    """What `Next` takes for "the payload as it is"; None may be a payload."""


UNCHANGED: Final = Unchanged()


class _Name:
    """A name that is equal to others of the same kind and text. No dataclass: one cannot be called with its type."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name: Final = name

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.name == str(other)

    def __hash__(self) -> int:
        return hash((type(self), self.name))


class Key(_Name, Generic[ValueT]):
    """The name of a service, and for type checkers the type of its value: ``CLOCK = Key[Clock]("clock")``.

    Two keys of the same name mean the same service.
    """

    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(name)
        _check_name("service", name)


class Event(_Name, Generic[PayloadT, ResultT]):
    """The name of an event for `emit`, `parallel` and `serial`: ``SAVED = Event[Path, None]("saved")``."""

    __slots__ = ()


class Waterfall(_Name, Generic[PayloadT, ResultT]):
    """The name of an event for `waterfall`, whose listeners lie around each other and decide whether to go on."""

    __slots__ = ()


class Next(Protocol[_ContravariantT, _CovariantT]):
    """How a waterfall goes on: to the next listener, and behind the last one to what the dispatcher does itself."""

    def __call__(self, payload: _ContravariantT | Unchanged = UNCHANGED, /) -> Awaitable[_CovariantT]:
        """Go on, once, with *payload* in place of what this listener was given.

        Raises:
            NextMisused: it was called before, or the listener has answered already.
        """
        ...


Listener: TypeAlias = Callable[[PayloadT], "ResultT | Awaitable[ResultT | None] | None"]
WaterfallListener: TypeAlias = Callable[[PayloadT, Next[PayloadT, ResultT]], "ResultT | Awaitable[ResultT]"]

AnyKey: TypeAlias = "Key[Any]"
AnyEvent: TypeAlias = "Event[Any, Any] | Waterfall[Any, Any]"

WORLD: Final = Key[World]("world")
FS: Final = Key[FileSystem]("fs")
SUBPROCESS: Final = Key[Subprocess]("subprocess")
SHELL: Final = Key[Shell]("shell")
SANDBOX: Final = Key[Sandbox]("sandbox")
