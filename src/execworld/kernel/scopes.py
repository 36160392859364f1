"""Scopes: registrations that belong to one subject, for example one session, and vanish for all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from execworld.kernel.effects import Effect
from execworld.seams import RegistrationConflict

if TYPE_CHECKING:
    from execworld.kernel.context import Context
    from execworld.kernel.fiber import Fiber

EntryT = TypeVar("EntryT")


class Scope:
    """A subject. Inside it all is seen that is registered in one around it, and the nearest of a name counts.

    Listeners hear what is dispatched in their scope and in those inside it. It is a way to route, not to protect.

    Attributes:
        lineage: The scope itself and those around it, the nearest first.
    """

    def __init__(self, name: str, parent: Scope | None = None) -> None:
        self.name: Final = name
        self.parent: Final = parent
        self.lineage: Final[tuple[Scope, ...]] = (self, *(parent.lineage if parent else ()))

    def __repr__(self) -> str:
        return f"<Scope {' in '.join(scope.name for scope in self.lineage)}>"


class Registry(Generic[EntryT]):
    """Entries by name, in one layer for everybody and one for each scope, each until the plugin ends that added it."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._layers: dict[Scope | None, dict[str, list[_Entry[EntryT]]]] = {}

    def add(self, ctx: Context, name: str, entry: EntryT) -> Effect:
        """Register *entry* in the scope of *ctx*, which may hide one of the same name in a layer around it.

        Raises:
            RegistrationConflict: the layer has the name already, by a plugin that this one does not replace.
        """
        scope = ctx.scope
        added = _Entry(ctx.fiber, entry)
        for other in self._layers.get(scope, {}).get(name, ()):
            if not added.owner.may_replace(other.owner):
                message = f"{self._kind} `{name}` is registered already, by plugin `{other.owner.name}`"
                raise RegistrationConflict(message, hint="leave one of them out, or register it in a scope")

        def put() -> Callable[[], None]:
            self._layers.setdefault(scope, {}).setdefault(name, []).append(added)
            return lambda: self._remove(scope, name, added)

        return ctx.effect(put, name=f"{self._kind} {name}")

    def _remove(self, scope: Scope | None, name: str, entry: _Entry[EntryT]) -> None:
        layer = self._layers[scope]
        layer[name].remove(entry)
        if not layer[name]:
            del layer[name]
        if not layer:
            del self._layers[scope]

    def get(self, ctx: Context, name: str) -> EntryT | None:
        """The entry that *ctx* sees under this name."""
        return self.view(ctx).get(name)

    def view(self, ctx: Context) -> Mapping[str, EntryT]:
        """Everything that *ctx* sees, in the order in which names were first registered, the outermost layer first."""
        scopes: tuple[Scope | None, ...] = ctx.scope.lineage if ctx.scope is not None else ()
        seen: dict[str, EntryT] = {}
        for scope in (None, *reversed(scopes)):
            for name, entries in self._layers.get(scope, {}).items():
                for each in entries:
                    if each.owner.is_audible_to(ctx.fiber):
                        seen[name] = each.value
        return seen

    @property
    def layer_count(self) -> int:
        """How many layers hold anything."""
        return len(self._layers)


class _Entry(Generic[EntryT]):
    def __init__(self, owner: Fiber, value: EntryT) -> None:
        self.owner = owner
        self.value = value
