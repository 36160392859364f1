"""From what a caller gives as a path to the bytes that go to the machine.

A path is made absolute and lexically normalised before anything else happens, so ``link/../f`` is ``f``
beside the link, as it is displayed, and every operation means the same file by the same spelling.
"""

from __future__ import annotations

import hashlib
import posixpath
from urllib.parse import quote_from_bytes

from execworld.seams.files import FileTarget
from execworld.seams.paths import WorldPath, decode_path, encode_path
from execworld.seams.values import record


@record
class Location:
    """A path argument.

    Attributes:
        given: As the caller gave it, as text.
        display: Absolute and lexically normalised; links are not resolved.
    """

    given: str
    display: bytes

    @property
    def text(self) -> str:
        return decode_path(self.display)

    @property
    def parent(self) -> bytes:
        return parent_of(self.display)

    @property
    def name(self) -> bytes:
        return name_of(self.display)


class BlankPath(ValueError):
    """The path is empty or white space only."""


class UnusablePath(ValueError):
    """The path holds a NUL, or a surrogate that stands for no byte."""


def locate(path: WorldPath | FileTarget, cwd: bytes) -> Location:
    """Read a path argument.

    Raises:
        BlankPath, UnusablePath
    """
    if isinstance(path, FileTarget):
        path = path.display_path
    try:
        raw = encode_path(path)
    except UnicodeEncodeError as error:
        message = "it holds a surrogate that stands for no byte"
        raise UnusablePath(message) from error
    if not raw.strip():
        message = "it is blank"
        raise BlankPath(message)
    if b"\0" in raw:
        message = "it holds a NUL"
        raise UnusablePath(message)
    return Location(decode_path(raw), normalise(raw if raw.startswith(b"/") else cwd + b"/" + raw))


def normalise(path: bytes) -> bytes:
    """Lexically, with one slash at the beginning (posixpath keeps two, which POSIX leaves to the
    implementation).
    """
    return b"/" + posixpath.normpath(path).lstrip(b"/")


def parent_of(path: bytes) -> bytes:
    """Directory of an absolute normalised path; that of ``/`` is ``/``."""
    return path.rpartition(b"/")[0] or b"/"


def name_of(path: bytes) -> bytes:
    """Last component of an absolute normalised path; that of ``/`` is ``.``."""
    return path.rpartition(b"/")[2] or b"."


def join(directory: bytes, name: bytes) -> bytes:
    return directory.rstrip(b"/") + b"/" + name


def is_inside(parent: bytes, child: bytes) -> bool:
    """Whether *child* is *parent* or below it; both absolute and normalised."""
    return child == parent or child.startswith(parent.rstrip(b"/") + b"/")


def target_key(world_id: str, canonical: bytes) -> str:
    """A digest, so that nobody is tempted to read a path out of it."""
    return hashlib.blake2b(world_id.encode() + b"\0" + canonical, digest_size=16).hexdigest()


def file_url(path: str) -> str:
    return "file://" + quote_from_bytes(encode_path(path))
