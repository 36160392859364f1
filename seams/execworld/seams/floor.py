"""`Floor`: the least that a composition must hold, which layers above can only raise."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, cast

from execworld.seams.allowed_names import (
    is_host_allowed,
    is_host_pattern_within,
    is_image_pattern_within,
)
from execworld.seams.containment import lies_within_any
from execworld.seams.enforcement import Dimension
from execworld.seams.identity import Boundary
from execworld.seams.policy import NetworkPolicy, ResourceLimits, SandboxMode, SandboxPolicy
from execworld.seams.policy_order import (
    Shortfall,
    is_mode_within,
    is_network_within,
    limits_beyond,
    show_network,
    writable_roots,
)
from execworld.seams.provider import WorldClaims
from execworld.seams.values import value_class


@value_class
class Floor:
    """What is demanded of a world and of the policy in it. Where something is None, anything will do.

    Attributes:
        boundary: The world is separated from the host by at least this.
        worlds: Kinds of worlds that may be used.
        mode: The widest mode.
        require: Dimensions that the policy must ask for and require.
        network: The widest network.
        limits: The largest limits; each that is set must be set by the policy, too.
        writable: Directories beyond which nothing may be written.
        hidden: Paths that must be hidden.
        environment: Variables of the host that may be let through.
        images: Images that a world may be made of: names, or what they begin with, followed by ``*``.
        hosts: Other hosts that may be reached: names, or what they end with, after ``*.``. This host needs no leave.
        guards: Guards of which a composition must have an enabled row.
    """

    boundary: Boundary | None = None
    worlds: tuple[str, ...] | None = None
    mode: SandboxMode | None = None
    require: tuple[Dimension, ...] = ()
    network: NetworkPolicy | None = None
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    writable: tuple[str, ...] | None = None
    hidden: tuple[str, ...] = ()
    environment: tuple[str, ...] | None = None
    images: tuple[str, ...] | None = None
    hosts: tuple[str, ...] | None = None
    guards: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for item in ("worlds", "require", "writable", "hidden", "environment", "images", "hosts", "guards"):
            value = getattr(self, item)
            if value is not None:
                object.__setattr__(self, item, tuple(sorted(set(value))))

    def loosened_by(self, stated: Floor) -> tuple[Shortfall, ...]:
        """Where *stated*, said by a layer above, demands less than this floor, or what cannot be compared with it.

        What a layer does not say, or only adds to what must be enforced, hidden or enabled, loosens nothing.
        """
        lost: list[Shortfall] = []
        if self.boundary and stated.boundary and not stated.boundary.at_least(self.boundary):
            lost.append(_loosened("boundary", str(self.boundary), str(stated.boundary)))
        if self.mode and stated.mode and not is_mode_within(stated.mode, self.mode):
            lost.append(_loosened("mode", str(self.mode), str(stated.mode)))
        if self.network and stated.network and not is_network_within(stated.network, self.network):
            lost.append(_loosened("network", show_network(self.network), show_network(stated.network)))
        lost += [
            _loosened(f"limits.{name}", str(getattr(self.limits, name)), str(value))
            for name in limits_beyond(stated.limits, self.limits)
            if (value := getattr(stated.limits, name)) is not None
        ]
        for name, outside in (
            ("worlds", _beyond_names),
            ("environment", _beyond_names),
            ("writable", _beyond_paths),
            ("images", _beyond_images),
            ("hosts", _beyond_hosts),
        ):
            allowed, wanted = getattr(self, name), getattr(stated, name)
            if allowed is not None and wanted is not None and (added := outside(wanted, allowed)):
                lost.append(_loosened(name, _listed(allowed), _listed(added)))
        return tuple(lost)

    def tightened_by(self, stated: Floor) -> Floor:
        """This floor and *stated* together. *stated* must not loosen it (`loosened_by`)."""

        def chosen(name: str) -> Any:
            value = getattr(stated, name)
            return getattr(self, name) if value is None else value

        bounds = {
            item.name: getattr(
                self.limits if getattr(stated.limits, item.name) is None else stated.limits, item.name
            )
            for item in fields(ResourceLimits)
        }
        return Floor(
            boundary=chosen("boundary"),
            worlds=chosen("worlds"),
            mode=chosen("mode"),
            require=(*self.require, *stated.require),
            network=chosen("network"),
            limits=ResourceLimits(**bounds),
            writable=chosen("writable"),
            hidden=(*self.hidden, *stated.hidden),
            environment=chosen("environment"),
            images=chosen("images"),
            hosts=chosen("hosts"),
            guards=(*self.guards, *stated.guards),
        )

    def lost_in(self, other: Floor) -> tuple[Shortfall, ...]:
        """What this floor demands and *other* does not, or only in a way that cannot be compared."""
        lost = list(self.loosened_by(other))
        named = {each.subject.split(".")[1] for each in lost}
        both = self.tightened_by(other)
        for item in fields(Floor):
            if item.name not in named and getattr(both, item.name) != getattr(other, item.name):
                wanted, found = getattr(self, item.name), getattr(other, item.name)
                lost.append(_loosened(item.name, _demand(wanted), _demand(found)))
        return tuple(lost)

    def lacks(self, kind: str, claims: WorldClaims, policy: SandboxPolicy) -> tuple[Shortfall, ...]:
        """What a world of *kind* under *policy* does not hold of this floor.

        Args:
            kind: Name of its provider.
            claims: What is known of it. Before it is opened that is what the provider says.
            policy: What everything in it must obey.
        """
        return (*self._lacking_in_world(kind, claims), *self.lacking_in_policy(policy))

    def lacking_in_policy(self, policy: SandboxPolicy) -> tuple[Shortfall, ...]:
        """What *policy* does not hold of this floor, wherever it is applied."""
        lost: list[Shortfall] = []
        if self.mode and not is_mode_within(policy.mode, self.mode):
            lost.append(Shortfall("policy.mode", f"{self.mode} at the widest", str(policy.mode)))
        if self.network and not is_network_within(policy.network, self.network):
            lost.append(
                Shortfall(
                    "policy.network",
                    f"{show_network(self.network)} at the widest",
                    show_network(policy.network),
                )
            )
        if self.writable is not None and (wider := _beyond_paths(writable_roots(policy), self.writable)):
            lost.append(
                Shortfall("policy.write_roots", f"nothing beyond {_listed(self.writable)}", _listed(wider))
            )
        if bared := tuple(path for path in self.hidden if not lies_within_any(path, policy.hidden)):
            lost.append(Shortfall("policy.hidden", f"{_listed(bared)} hidden", _listed(policy.hidden)))
        for name in limits_beyond(policy.limits, self.limits):
            given = getattr(policy.limits, name)
            lost.append(
                Shortfall(
                    f"policy.limits.{name}",
                    f"at most {getattr(self.limits, name)}",
                    "no limit" if given is None else str(given),
                )
            )
        if self.environment is not None and (let_in := _beyond_names(policy.environment, self.environment)):
            lost.append(
                Shortfall("policy.environment", f"no more than {_listed(self.environment)}", _listed(let_in))
            )
        required = policy.required()
        lost += [
            Shortfall("policy.require", f"{dimension} enforced", "no demand for it")
            for dimension in self.require
            if dimension not in required
        ]
        return tuple(lost)

    def _lacking_in_world(self, kind: str, claims: WorldClaims) -> tuple[Shortfall, ...]:
        lost: list[Shortfall] = []
        if self.worlds is not None and kind not in self.worlds:
            lost.append(Shortfall("world.use", _any_of(self.worlds), kind))
        if self.boundary and not claims.boundary.at_least(self.boundary):
            lost.append(Shortfall("world.boundary", f"{self.boundary} at least", str(claims.boundary)))
        if self.images is not None:
            if claims.images is None:
                lost.append(Shortfall("world.image", _any_of(self.images), "an image that is not known"))
            elif refused := _beyond_images(claims.images, self.images):
                lost.append(Shortfall("world.image", _any_of(self.images), _listed(refused)))
        if self.hosts is not None:
            if claims.hosts is None:
                lost.append(Shortfall("world.host", _any_of(self.hosts), "a host that is not known"))
            elif refused := tuple(host for host in claims.hosts if not is_host_allowed(host, self.hosts)):
                lost.append(Shortfall("world.host", _any_of(self.hosts), _listed(refused)))
        return tuple(lost)


def _loosened(name: str, wanted: str, found: str) -> Shortfall:
    return Shortfall(f"floor.{name}", wanted, found)


def _demand(value: object) -> str:
    if isinstance(value, NetworkPolicy):
        return show_network(value)
    if isinstance(value, ResourceLimits):
        bounds = [(item.name, getattr(value, item.name)) for item in fields(value)]
        return ", ".join(f"{name} {bound}" for name, bound in bounds if bound is not None) or "no demand"
    if isinstance(value, tuple):
        return _listed(cast("tuple[str, ...]", value))
    return "no demand" if value is None else str(value)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) if names else "nothing"


def _any_of(names: tuple[str, ...]) -> str:
    return f"one of {', '.join(names)}" if len(names) > 1 else (names[0] if names else "nothing at all")


def _beyond_names(names: tuple[str, ...], allowed: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in allowed)


def _beyond_paths(paths: tuple[str, ...], allowed: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path for path in paths if not lies_within_any(path, allowed))


def _beyond_images(patterns: tuple[str, ...], allowed: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(
        item for item in patterns if not any(is_image_pattern_within(item, each) for each in allowed)
    )


def _beyond_hosts(patterns: tuple[str, ...], allowed: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(item for item in patterns if not any(is_host_pattern_within(item, each) for each in allowed))
