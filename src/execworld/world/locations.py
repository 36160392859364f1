"""Where the documents of a user are: the directories of the XDG specification."""

from __future__ import annotations

import os
from typing import Final

from execworld.seams.values import record
from execworld.world.variables import environment_variable

_SUFFIX: Final = ".yml"
_MISTAKEN_SUFFIXES: Final = (".yaml", ".json", ".toml", "")


@record
class Locations:
    """Attributes:
    directory: Of all that execworld reads for this user.
    """

    directory: str

    @property
    def home(self) -> str:
        """The document of the home layer."""
        return os.path.join(self.directory, f"config{_SUFFIX}")

    @property
    def profiles(self) -> str:
        """The directory of the profiles."""
        return os.path.join(self.directory, "profiles")

    def profile(self, name: str) -> str:
        return os.path.join(self.profiles, f"{name}{_SUFFIX}")

    def profile_names(self) -> tuple[str, ...]:
        try:
            names = os.listdir(self.profiles)
        except OSError:
            return ()
        return tuple(sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)))


def has_own_document(places: Locations) -> bool:
    """Whether there is a document of the home layer, or what somebody may have meant for one."""
    if not os.path.lexists(places.directory):
        return False
    return any(os.path.lexists(path) for path in (places.home, *misnamed(places.home)))


def user_locations() -> Locations:
    """``$XDG_CONFIG_HOME/execworld``, or ``~/.config/execworld`` where that variable is unset, empty or relative.

    Source: XDG Base Directory Specification, which has relative paths ignored.
    """
    named = environment_variable("XDG_CONFIG_HOME")
    base = named if named is not None and os.path.isabs(named) else os.path.expanduser("~/.config")
    return Locations(os.path.join(base, "execworld"))


def misnamed(path: str) -> tuple[str, ...]:
    """Names under which somebody may have put the document that is read from *path* only."""
    stem = path.removesuffix(_SUFFIX)
    return tuple(f"{stem}{suffix}" for suffix in _MISTAKEN_SUFFIXES)
