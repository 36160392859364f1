"""A registry for tests, and compositions of documents that are written in the test itself."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Final

import pytest
from pydantic import BaseModel, ConfigDict

from execworld.config import Composition, Layer, Lookup, PluginType, Registry, compose
from execworld.config.reading import Source, read_document
from execworld.seams import (
    Boundary,
    ConfigurationError,
    OpenRequest,
    Probe,
    Provider,
    SandboxPolicy,
    World,
    WorldClaims,
)


class Pull(StrEnum):
    ALWAYS = "always"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Mount:
    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}
    source: str
    target: str = "/mnt"
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Build:
    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}
    context: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class BoxConfig:
    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}
    image: str = field(default="", metadata={"help": "what it is made of"})
    build: Build | str | None = None
    pull: Pull = Pull.MISSING
    port: int = 22
    weight: float = 1.0
    tty: bool = False
    user: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    mounts: tuple[Mount, ...] = ()
    names: tuple[str, ...] = ()
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])

    def __post_init__(self) -> None:
        if self.image.startswith("bad"):
            raise ConfigurationError(f"no such image: {self.image!r}", hint="another one")


@dataclass(frozen=True, slots=True)
class PlainConfig:
    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}
    host: str = "here"


class AuditConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    path: str = "/log"
    level: int = 1


@dataclass(frozen=True, slots=True)
class NeedyConfig:
    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}
    key: str
    other: str = ""


def _open(request: OpenRequest[Any]) -> AbstractAsyncContextManager[World]:
    raise NotImplementedError


async def _probe() -> Probe:
    return Probe(False)


def _box_claims(config: BoxConfig, policy: SandboxPolicy) -> WorldClaims:
    return WorldClaims(Boundary.CONTAINER, images=(config.image,) if config.image else None, hosts=())


def _plain_claims(config: PlainConfig, policy: SandboxPolicy) -> WorldClaims:
    boundary = Boundary.KERNEL_POLICY if policy.confines else Boundary.NONE
    return WorldClaims(boundary, images=(), hosts=() if config.host == "here" else (config.host,))


WORKSPACE: Final = "/project"


def _usual_policy(cwd: str | None) -> SandboxPolicy:
    return SandboxPolicy.workspace_write(WORKSPACE)


BOX: Final = Provider("box", "a box", BoxConfig, _open, _probe, claims=_box_claims)
PLAIN: Final = Provider(
    "plain", "a plain place", PlainConfig, _open, _probe, default_policy=_usual_policy, claims=_plain_claims
)
SILENT: Final = Provider("silent", "says nothing of itself", PlainConfig, _open, _probe)
REGISTRY: Final = Registry(
    worlds={"box": BOX, "plain": PLAIN, "silent": SILENT},
    plugins={
        "audit": PluginType(AuditConfig, summary="writes down what happens"),
        "needy": PluginType(NeedyConfig),
        "hold": PluginType(AuditConfig, guards=True),
    },
)
DEFAULTS: Final = "world: {use: plain}"


def layer(text: str, file: str = "x.yml", name: str = "patch", directory: str = "/d") -> Layer:
    return Layer(name, file, read_document(text.encode(), Source(name, file, directory)))


def composed(
    *texts: str,
    environment: Mapping[str, str] | None = None,
    registry: Registry = REGISTRY,
    system: str | None = None,
) -> Composition:
    """The composition of documents that are called `1.yml`, `2.yml` and so on, the lowest first."""
    layers = tuple(layer(text, f"{number}.yml") for number, text in enumerate(texts, 1))
    variables = {name.encode(): value.encode() for name, value in (environment or {}).items()}
    return compose(
        layers,
        registry,
        system_floor=None if system is None else layer(system, "floor.yml", "system"),
        lookup=Lookup(variables),
    )


def refused(*texts: str, environment: Mapping[str, str] | None = None) -> ConfigurationError:
    """The error of a composition that is wrong."""
    with pytest.raises(ConfigurationError) as caught:
        composed(*texts, environment=environment)
    return caught.value


def place(error: ConfigurationError) -> str:
    return f"{error.file}:{error.line}:{error.column}"
