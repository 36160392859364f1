"""The effective document of a composition: what all layers amount to, and where each value comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from execworld.config.folding import FLOOR, POLICY, WORLD, Fold, config_options, config_type_of
from execworld.config.layers import Layer, Wanted, read_layers
from execworld.config.nodes import MappingNode, Node, Origin, ScalarNode, empty_mapping, holds_reference
from execworld.config.options import Options, check_partly, validated
from execworld.config.problems import fault
from execworld.config.references import Lookup
from execworld.config.registry import Registry, installed_registry
from execworld.config.sections import PolicySection
from execworld.config.system_floor import SystemFloor
from execworld.seams import ConfigurationError, FloorViolated, Provider, SandboxPolicy, WorldClaims
from execworld.seams.floor import Floor
from execworld.seams.policy_order import Shortfall
from execworld.seams.values import value_class
from execworld.world.locations import user_locations


@value_class
class Row:
    """One row, checked.

    Attributes:
        name: Of the row.
        use: Name of the world or the plugin.
        disabled: It is not to be started.
        config: Its options, in which references are read, so that it may hold secrets; None when disabled, and
            where references were not to be read.
        node: The row as a tree, with the place of every value, in which references are not read.
    """

    name: str
    use: str
    disabled: bool
    node: MappingNode
    config: Any = field(default=None, repr=False, compare=False)


@value_class
class Composition:
    """What is to be started.

    Attributes:
        provider: Of the world.
        rows: All rows by name; the world is one of them.
        policy: What everything in the world must obey.
        floor: What must hold at the least, of all layers and of the machine.
        document: Everything as one tree: rows, then `policy` and `floor` where a layer has them.
        layers: What it was made of, the lowest first.
        registry: What its names were looked up in.
        mode_is_said: A layer says the mode of the policy, so that it is nobody's oversight.
    """

    provider: Provider[Any]
    rows: Mapping[str, Row]
    policy: SandboxPolicy
    floor: Floor
    document: MappingNode
    layers: tuple[Layer, ...]
    registry: Registry
    mode_is_said: bool = False

    @property
    def world(self) -> Row:
        return self.rows[WORLD]

    def claims(self) -> WorldClaims:
        """What the provider says of the world before it is opened."""
        tell = self.provider.claims
        return (
            WorldClaims()
            if tell is None or self.world.config is None
            else tell(self.world.config, self.policy)
        )

    def origin(self, path: str) -> Origin | None:
        """Where the value at *path*, keys with dots between them, was said; None where no layer says it."""
        node: Node = self.document
        found: Origin | None = None
        for name in path.split("."):
            if not isinstance(node, MappingNode) or name not in node.entries:
                break
            found = node.keys[name]
            node = node.entries[name]
        return found


def compose(
    layers: tuple[Layer, ...],
    registry: Registry,
    *,
    system_floor: Layer | None = None,
    lookup: Lookup | None = None,
) -> Composition:
    """What *layers* amount to, the lowest first. Nothing is started.

    Whether it holds its floor is not asked: see `hold_floor`.

    Raises:
        ConfigurationError: something is unknown, of the wrong type or missing.
        FloorViolated: a layer would loosen the floor of those below it.
    """
    fold = Fold(registry)
    for layer in (*([system_floor] if system_floor is not None else []), *layers):
        fold.lay(layer)
    if WORLD not in fold.rows:
        raise ConfigurationError("the composition has no world", hint="give it a row `world`")
    looked_up = Lookup() if lookup is None else lookup
    rows = {name: _row(fold, name, looked_up) for name in sorted(fold.rows, key=lambda each: each != WORLD)}
    provider = registry.worlds[rows[WORLD].use]
    return Composition(
        provider=provider,
        rows=MappingProxyType(rows),
        policy=_policy(fold, provider),
        floor=fold.floor.floor,
        document=_document(fold, rows),
        layers=layers if system_floor is None else (system_floor, *layers),
        registry=registry,
        mode_is_said=fold.policy is not None and "mode" in fold.policy.entries,
    )


def shortfalls(composition: Composition) -> tuple[Shortfall, ...]:
    """What *composition* lacks of its floor, as far as can be told before it is started."""
    found = composition.floor.lacks(composition.world.use, composition.claims(), composition.policy)
    lacking = [_lacking_guard(composition, guard) for guard in composition.floor.guards]
    return (*(without_secrets(composition, each) for each in found), *filter(None, lacking))


def _lacking_guard(composition: Composition, guard: str) -> Shortfall | None:
    rows = [row for name, row in composition.rows.items() if name != WORLD and row.use == guard]
    if any(not row.disabled for row in rows):
        return None
    subject = f"{rows[0].name}.disabled" if rows else "floor.guards"
    return Shortfall(subject, f"an enabled row of `{guard}`", "a disabled one" if rows else "none")


def without_secrets(composition: Composition, lost: Shortfall) -> Shortfall:
    """*lost* without names of images and hosts that a reference may stand for."""
    if lost.subject in ("world.image", "world.host") and holds_reference(composition.world.node):
        return Shortfall(lost.subject, lost.wanted, "another, which is not shown, since it may be a secret")
    return lost


def hold_floor(composition: Composition) -> None:
    """Refuse a composition that does not hold its floor.

    Raises:
        FloorViolated: with every difference.
    """
    if lost := shortfalls(composition):
        raise FloorViolated(
            "the composition does not hold its floor\n"
            + "\n".join(
                f"{composition.origin(each.subject) or composition.world.node.origin}: {each}"
                for each in lost
            ),
            op="config.load",
            hint="`config show` tells which layer each value comes from, `floor show` who demands what",
        )


def load(
    wanted: Wanted,
    registry: Registry | None = None,
    *,
    system: SystemFloor | None = None,
) -> Composition:
    """The composition of this user on this machine, which holds the floor. Nothing is started.

    Raises:
        ConfigurationError, FloorViolated: as of `compose` and `hold_floor`.
    """
    composition = load_unheld(wanted, registry, system=system)
    hold_floor(composition)
    return composition


def load_unheld(
    wanted: Wanted,
    registry: Registry | None = None,
    *,
    system: SystemFloor | None = None,
    lookup: Lookup | None = None,
) -> Composition:
    """As `load`, for whoever only looks: it may lack what its floor demands."""
    floor = (SystemFloor() if system is None else system).read()
    layers = read_layers(wanted, user_locations())
    known = installed_registry() if registry is None else registry
    return compose(layers, known, system_floor=floor, lookup=lookup)


def _row(fold: Fold, name: str, lookup: Lookup) -> Row:
    node, key = fold.rows[name], fold.keys[name]
    use, disabled = _scalar(node, "use"), _scalar(node, "disabled") is True
    assert isinstance(use, str)
    config = None
    if not disabled:
        options = config_options(name, node, key, config_type_of(fold.registry, name, use))
        config = _config(options, lookup)
    return Row(name=name, use=use, disabled=disabled, node=node, config=config)


def _config(options: Options, lookup: Lookup) -> Any:
    if lookup.reads or not holds_reference(options.node):
        return validated(options, lookup)
    check_partly(options)
    return None


def _scalar(node: MappingNode, name: str) -> object:
    each = node.entries.get(name)
    return each.value if isinstance(each, ScalarNode) else None


def _policy(fold: Fold, provider: Provider[Any]) -> SandboxPolicy:
    usual = None if provider.default_policy is None else provider.default_policy(None)
    if fold.policy is None:
        return SandboxPolicy.full_access() if usual is None else usual
    key = fold.keys[POLICY]
    section: PolicySection = validated(Options(POLICY, fold.policy, key, PolicySection), Lookup({}))
    try:
        return section.policy(None if usual is None else usual.workspace)
    except ConfigurationError as error:
        raise fault(key, error.message, error.hint) from None


def _document(fold: Fold, rows: Mapping[str, Row]) -> MappingNode:
    entries: dict[str, Node] = {name: row.node for name, row in rows.items()}
    keys = {name: fold.keys[name] for name in rows}
    if fold.policy is not None:
        entries[POLICY], keys[POLICY] = fold.policy, fold.keys[POLICY]
    if fold.floor.node is not None:
        entries[FLOOR], keys[FLOOR] = fold.floor.node, fold.floor.node.origin
    start = keys[WORLD]
    return MappingNode(entries, keys, start) if entries else empty_mapping(start)
