"""The blocking facade mirrors the seams: a method, an argument or a default that differs is a mistake."""

import inspect
from collections.abc import Callable

import pytest

from execworld.seams import FileSystem, Process, Sandbox, Shell, Subprocess, Terminal, World
from execworld.sync import (
    SyncFileSystem,
    SyncProcess,
    SyncSandbox,
    SyncShell,
    SyncSubprocess,
    SyncTerminal,
    SyncWorld,
)

PAIRS: list[tuple[type, type]] = [
    (FileSystem, SyncFileSystem),
    (Process, SyncProcess),
    (Sandbox, SyncSandbox),
    (Shell, SyncShell),
    (Subprocess, SyncSubprocess),
    (Terminal, SyncTerminal),
]

# Leaving the context closes it; there it has the name that files and sockets use.
RENAMED = {"aclose": "close"}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def arguments(function: Callable[..., object]) -> list[tuple[str, object, object]]:
    return [
        (parameter.name, parameter.kind, parameter.default)
        for parameter in inspect.signature(function).parameters.values()
    ]


@pytest.mark.parametrize(("seam", "facade"), PAIRS, ids=lambda kind: getattr(kind, "__name__", ""))
def test_the_names_are_the_same(seam: type, facade: type) -> None:
    assert {RENAMED.get(name, name) for name in public(seam)} == public(facade)


@pytest.mark.parametrize(("seam", "facade"), PAIRS, ids=lambda kind: getattr(kind, "__name__", ""))
def test_the_arguments_are_the_same(seam: type, facade: type) -> None:
    for name in public(seam):
        original = inspect.getattr_static(seam, name)
        mirrored = inspect.getattr_static(facade, RENAMED.get(name, name))
        assert isinstance(original, property) == isinstance(mirrored, property), name
        if not isinstance(original, property):
            assert arguments(mirrored) == arguments(original), name


def test_the_world_has_every_part_but_its_closing() -> None:
    parts = {"fs", "subprocess", "shell", "sandbox"}
    assert public(World) - {"aclose"} == public(SyncWorld) | parts
