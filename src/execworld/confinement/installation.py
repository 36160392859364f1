"""What the host itself runs and goes by: the installation of execworld and of its interpreter, and its documents.

No program may rewrite them. One that may acts unconfined the next time somebody calls execworld.
"""

from __future__ import annotations

import importlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from typing import Final

from execworld.seams.values import record

_MOST_LINKS: Final = 40  # MAXSYMLINKS of Linux
_SCRIPT: Final = "execworld"
_PACKAGE: Final = "execworld"
_VERSION: Final = f"python{sys.version_info[0]}.{sys.version_info[1]}"
# As sysconfig has them; its own answers take longer than a world takes to open.
_PARTS: Final = ("bin", f"lib/{_VERSION}", f"lib64/{_VERSION}", "pyvenv.cfg")
_SITES: Final = ("site-packages", "dist-packages")


@record
class Installed:
    """One part of an installation, canonical.

    Attributes:
        path: A directory or a file.
        parts: What of it counts where the whole cannot be kept, because a policy names it, or something in it, as a
            root that may be written.
    """

    path: bytes
    parts: tuple[bytes, ...] = ()


@record
class Installation:
    """Attributes:
    installed: What lies at canonical paths.
    links: Symbolic links on the way there, by which the host finds it, each by its canonical name.
    """

    installed: tuple[Installed, ...] = ()
    links: tuple[bytes, ...] = ()


NOT_HERE: Final = Installation()
"""Of a place that is not where this process runs."""


def own_installation(*wardens: str | os.PathLike[str], obeyed: Iterable[str] = ()) -> Installation:
    """That of this process, together with the *wardens* that it starts, and the documents by which it goes."""
    found = _Found()
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)):
        found.add(prefix, *(os.path.join(prefix, part) for part in _PARTS))
    for site in sys.path:
        if os.path.basename(site) in _SITES:
            found.add(site)
    for directory in _package_directories():
        found.add(os.path.dirname(directory), directory)
    for path in (*wardens, *obeyed):
        found.add(os.path.abspath(path))
    if sys.executable:
        found.follow(sys.executable)
    script = os.path.abspath(sys.argv[0]) if sys.argv else ""
    if os.path.basename(script) == _SCRIPT:
        found.add(script)
    return Installation(tuple(found.installed), tuple(sorted(found.links)))


class _Found:
    def __init__(self) -> None:
        self.installed: list[Installed] = []
        self.links: set[bytes] = set()

    def add(self, path: str, *parts: str) -> None:
        whole = self.follow(path)
        if whole is None:
            return
        resolved = (self.follow(part) for part in parts)
        one = Installed(whole, tuple(dict.fromkeys(part for part in resolved if part is not None)))
        if one not in self.installed:
            self.installed.append(one)

    def follow(self, path: str) -> bytes | None:
        """The canonical form of *path*, if there is something; the links on the way are kept."""
        real, links = follow_links(os.fsencode(os.path.abspath(path)))
        self.links.update(links)
        return real


def follow_links(path: bytes) -> tuple[bytes | None, tuple[bytes, ...]]:
    """The canonical form of an absolute path, None when nothing is there; and every link on the way, canonical."""
    links: list[bytes] = []
    left = [name for name in reversed(path.split(b"/")) if name not in (b"", b".")]
    at = b"/"
    while left:
        name = left.pop()
        if name == b"..":
            at = os.path.dirname(at)
            continue
        here = os.path.join(at, name)
        try:
            if not stat.S_ISLNK(os.lstat(here).st_mode):
                at = here
                continue
            target = os.readlink(here)
        except OSError:
            return None, tuple(links)
        links.append(here)
        if len(links) > _MOST_LINKS:
            return None, tuple(links)
        if target.startswith(b"/"):
            at = b"/"
        left += [name for name in reversed(target.split(b"/")) if name not in (b"", b".")]
    return at, tuple(links)


def _package_directories() -> Iterator[str]:
    """Every portion of the namespace package."""
    for path in importlib.import_module(_PACKAGE).__path__:
        if os.path.isdir(path):
            yield path
