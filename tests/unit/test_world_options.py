"""Options of a provider: an unknown name or a wrong value is an error that says which, never a default."""

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, TypeVar

import pytest

from execworld.seams import ConfigurationError, OpenRequest, Probe, Provider, World
from execworld.world import environment_variable
from execworld.world.options import validate_options

ConfigT = TypeVar("ConfigT")


class Pull(StrEnum):
    ALWAYS = "always"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Mount:
    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}
    source: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Config:
    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}
    image: str = "debian"
    port: int = 22
    tty: bool = False
    user: str | None = None
    pull: Pull = Pull.MISSING
    mounts: tuple[Mount, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    lifetime_s: float = 1.0

    def __post_init__(self) -> None:
        if self.lifetime_s <= 0:
            raise ConfigurationError("lifetime_s must be positive", hint="10 is a good value")
        if self.image == "bad":
            raise ValueError("no such image")


@dataclass(frozen=True, slots=True)
class Demanding:
    host: str
    port: int = 22


def _open(request: OpenRequest[ConfigT]) -> AbstractAsyncContextManager[World]:
    raise NotImplementedError


async def _probe() -> Probe:
    return Probe(False)


DOCK = Provider("dock", "for a test", Config, _open, _probe)
REMOTE = Provider("remote", "for a test", Demanding, _open, _probe)


def test_no_options_are_the_defaults() -> None:
    assert validate_options(DOCK, {}) == Config()


def test_values_arrive_as_the_types_that_the_configuration_states() -> None:
    config = validate_options(
        DOCK,
        {
            "image": "alpine",
            "port": 2222,
            "pull": "always",
            "mounts": [{"source": "/a"}],
            "labels": {"a": "b"},
        },
    )
    assert config == Config("alpine", 2222, pull=Pull.ALWAYS, mounts=(Mount("/a"),), labels={"a": "b"})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("image", "22", "22"),
        ("image", "", ""),
        ("image", '["not a list"]', '["not a list"]'),
        ("port", "2222", 2222),
        ("tty", "true", True),
        ("tty", "no", False),
        ("user", "null", "null"),
        ("pull", "always", Pull.ALWAYS),
        ("mounts", '[{"source": "/a", "writable": true}]', (Mount("/a", True),)),
        ("labels", '{"a": "b"}', {"a": "b"}),
        ("lifetime_s", "2.5", 2.5),
    ],
)
def test_text_of_the_command_line_is_converted(name: str, text: str, value: object) -> None:
    assert getattr(validate_options(DOCK, {name: text}, text=True), name) == value


@pytest.mark.parametrize("name", ["imge", "Image", "image ", "IMAGE"])
def test_an_unknown_name_is_refused_with_the_nearest(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        validate_options(DOCK, {name: "x"})
    assert f"no option `{name}`" in caught.value.message
    assert "did you mean `image`?" in caught.value.hint


def test_an_unknown_name_far_from_all_lists_them() -> None:
    with pytest.raises(ConfigurationError) as caught:
        validate_options(DOCK, {"zzzzzz": "x"})
    assert caught.value.hint.startswith("its options: image, port")


def test_an_unknown_name_inside_a_value_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="mounts"):
        validate_options(DOCK, {"mounts": [{"source": "/a", "writeable": True}]})


@pytest.mark.parametrize(
    ("options", "location"),
    [
        ({"port": "secret-value"}, "option `port`"),
        ({"image": ["secret-value"]}, "option `image`"),
        ({"mounts": "secret-value"}, "option `mounts`"),
        ({"labels": '{"a": {"b": "secret-value"}}'}, "option `labels"),
        ({"pull": "secret-value"}, "option `pull`"),
    ],
)
def test_a_wrong_value_is_named_and_not_repeated(options: dict[str, object], location: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        validate_options(DOCK, options, text=True)
    assert location in caught.value.message
    assert "secret-value" not in str(caught.value)
    assert "secret-value" not in repr(caught.value.__cause__)


def test_what_the_configuration_itself_refuses_arrives_as_it_said_it() -> None:
    with pytest.raises(ConfigurationError) as caught:
        validate_options(DOCK, {"lifetime_s": 0})
    assert caught.value.message == "lifetime_s must be positive"
    assert caught.value.hint == "10 is a good value"
    with pytest.raises(ConfigurationError, match="no such image"):
        validate_options(DOCK, {"image": "bad"})


def test_a_missing_value_is_named() -> None:
    with pytest.raises(ConfigurationError, match="needs a value for `host`"):
        validate_options(REMOTE, {})
    with pytest.raises(ConfigurationError, match="needs a value for `host`"):
        validate_options(REMOTE, {"port": 1})
    assert validate_options(REMOTE, {"host": "h"}) == Demanding("h")


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXECWORLD_TEST", "")
    assert environment_variable("EXECWORLD_TEST") is None
    monkeypatch.setenv("EXECWORLD_TEST", "x")
    assert environment_variable("EXECWORLD_TEST") == "x"
    monkeypatch.delenv("EXECWORLD_TEST")
    assert environment_variable("EXECWORLD_TEST") is None


def test_opening_without_options_imports_no_validator() -> None:
    """pydantic alone costs a third of the time that a whole run may take."""
    program = "import json, sys, execworld.world, execworld.seams; print(json.dumps(sorted(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
    modules = set(json.loads(output))
    assert "execworld.world" in modules
    assert modules.isdisjoint({"pydantic", "rich", "typer", "docker", "asyncssh", "paramiko", "e2b", "httpx"})
