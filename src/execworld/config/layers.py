"""The layers of a composition, from the defaults that are shipped to what was typed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final

from execworld.config.nodes import MappingNode, Origin
from execworld.config.problems import fault, suggestion
from execworld.config.reading import MAX_BYTES, Source, read_document, read_value
from execworld.config.regular_files import read_regular_file
from execworld.seams import ConfigurationError
from execworld.seams.values import record
from execworld.world.locations import Locations, misnamed

DEFAULTS: Final = os.path.join(os.path.dirname(__file__), "defaults.yml")
_PROFILE: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)


@record
class Layer:
    """One document of a composition.

    Attributes:
        name: Which layer it is: ``defaults``, ``profile NAME``, ``home``, ``patch``, ``set``.
        file: Where it was read from.
    """

    name: str
    file: str
    root: MappingNode


@record
class Wanted:
    """Which layers are asked for.

    Attributes:
        profile: Name of a profile; None for none.
        patches: Files that are laid over all others, in this order.
        settings: ``KEY.KEY=VALUE``, laid over even those.
        home: Take the home layer, where there is one.
        alone: Leave out the defaults, the profile and the home layer.
    """

    profile: str | None = None
    patches: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    home: bool = True
    alone: bool = False


def read_layers(wanted: Wanted, locations: Locations) -> tuple[Layer, ...]:
    """The layers in order, the lowest first.

    Raises:
        ConfigurationError: one cannot be read, or is not what it should be.
    """
    layers: list[Layer] = []
    if not wanted.alone:
        layers.append(read_layer("defaults", DEFAULTS))
        if wanted.profile is not None:
            layers.append(read_layer(f"profile {wanted.profile}", find_profile(wanted.profile, locations)))
        if wanted.home:
            layers += _home(locations)
    layers += [read_layer("patch", path) for path in wanted.patches]
    layers += [read_setting(text) for text in wanted.settings]
    return tuple(layers)


def read_layer(name: str, path: str) -> Layer:
    """The layer in the file *path*.

    Raises:
        ConfigurationError: it cannot be read, or is no document.
    """
    source = Source(name, path, os.path.dirname(os.path.abspath(path)))
    return Layer(name, path, read_document(_read(path), source))


def read_setting(text: str) -> Layer:
    """The layer that ``KEY.KEY=VALUE`` is. The value is written as in a document; paths are relative to where we are.

    Raises:
        ConfigurationError: it is not of that form.
    """
    path, separator, value = text.partition("=")
    source = Source("set", f"--set {path}", os.getcwd(), first_column=len(path) + 1)
    start = Origin("set", f"--set {path}", 1, 1)
    keys = path.split(".")
    if not separator or not all(keys):
        raise fault(start, "write it as KEY.KEY=VALUE", "for example world.config.image=debian")
    node = read_value(value, source)
    for key in reversed(keys):
        node = MappingNode({key: node}, {key: start}, start)
    assert isinstance(node, MappingNode)
    return Layer("set", source.file, node)


def check_profile_name(name: str, locations: Locations) -> None:
    """Refuse what could name a file somewhere else.

    Raises:
        ConfigurationError: *name* cannot be the name of a profile.
    """
    if not _PROFILE.fullmatch(name):
        message = "the name of a profile has small letters, digits, `-` and `_`, and no more than 64 of them"
        raise ConfigurationError(message, hint=f"profiles are looked for in {locations.profiles}")


def begin_document(path: str, text: str) -> None:
    """Write a new document, and the directories that it needs, for this user alone.

    Raises:
        ConfigurationError: there is one already, or it cannot be written.
    """
    refuse_misnamed(path)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigurationError(
            f"{path} exists already", file=path, hint="edit it, or remove it first"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}", file=path) from error


def find_profile(name: str, locations: Locations) -> str:
    """The file of the profile *name*.

    Raises:
        ConfigurationError: there is none, or *name* cannot be the name of one.
    """
    check_profile_name(name, locations)
    path = locations.profile(name)
    if not os.path.lexists(path):
        refuse_misnamed(path)
        known = locations.profile_names()
        hint = suggestion(name, known, "profiles")
        raise ConfigurationError(f"there is no profile `{name}`: {path} does not exist", file=path, hint=hint)
    return path


def _home(locations: Locations) -> Iterable[Layer]:
    refuse_misnamed(locations.home)
    return (read_layer("home", locations.home),) if os.path.lexists(locations.home) else ()


def refuse_misnamed(path: str) -> None:
    """Refuse a document that was put beside *path*, where nobody looks.

    Raises:
        ConfigurationError: there is one.
    """
    for other in misnamed(path):
        if os.path.lexists(other):
            message = f"{other} would never be read"
            raise ConfigurationError(message, file=other, hint=f"rename it to {path}")


def _read(path: str) -> bytes:
    try:
        return read_regular_file(path, MAX_BYTES)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigurationError(f"{path} cannot be read: {reason}", file=path) from error
