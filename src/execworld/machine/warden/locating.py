"""Finding the warden's binary."""

from __future__ import annotations

import os
import platform
import stat
from pathlib import Path
from typing import Final

from execworld.seams.errors import WorldUnavailable

VARIABLE: Final = "EXECWORLD_WARDEN"
_DIRECTORY: Final = Path(__file__).with_name("bin")
# e_machine of an ELF header, elf(5).
_ELF_MACHINES: Final = {"x86_64": 62, "aarch64": 183}
_SAME_ARCHITECTURE: Final = {"amd64": "x86_64", "arm64": "aarch64"}


def locate_warden(architecture: str | None = None) -> Path:
    """The binary for *architecture*, by default that of this host.

    ``EXECWORLD_WARDEN``, when not empty, names another one. Nothing else is ever tried.

    Raises:
        WorldUnavailable: there is none, or what is there is no such binary.
    """
    wanted = architecture or platform.machine()
    wanted = _SAME_ARCHITECTURE.get(wanted.lower(), wanted)
    if named := os.environ.get(VARIABLE):
        return _checked(Path(named), wanted, f"{VARIABLE} names it: correct or unset the variable")
    if wanted not in _ELF_MACHINES:
        raise WorldUnavailable(
            f"there is no warden for {wanted}",
            op="world.open",
            hint=f"wardens exist for {', '.join(_ELF_MACHINES)}",
        )
    return _checked(
        _DIRECTORY / f"warden-{wanted}",
        wanted,
        "install a wheel that is built for this architecture, or install from source with a C compiler at hand, "
        f"or name a binary by {VARIABLE}",
    )


def _checked(path: Path, architecture: str, hint: str) -> Path:
    problem = _problem(path, architecture)
    if problem:
        raise WorldUnavailable(f"no warden at {path}: {problem}", op="world.open", hint=hint)
    return path.absolute()


def _problem(path: Path, architecture: str) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return "it is no file"
        if not os.access(path, os.X_OK):
            return "it cannot be executed"
        with path.open("rb") as file:
            header = file.read(20)
    except OSError as error:
        return error.strerror or str(error)
    if header[:4] != b"\x7fELF" or header[5:6] != b"\x01":
        return "it is no program for Linux"
    if int.from_bytes(header[18:20], "little") != _ELF_MACHINES.get(architecture):
        return f"it is no program for {architecture}"
    return ""
