"""The floor of the machine, in a file that its users cannot edit. No variable and no option names another one."""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from execworld.config.floors import FloorFold
from execworld.config.layers import Layer, refuse_misnamed
from execworld.config.problems import fault
from execworld.config.reading import MAX_BYTES, Source, read_document
from execworld.config.regular_files import FLAGS, read_regular
from execworld.seams import ConfigurationError
from execworld.seams.floor import Floor
from execworld.seams.values import record

PATH: Final = "/etc/execworld/floor.yml"
_ROOT: Final = 0
_MAY_CHANGE: Final = stat.S_IWGRP | stat.S_IWOTH
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = FLAGS | os.O_NOFOLLOW
_HINT: Final = "it and all directories above it must belong to root, and nobody else may write to them"


def read_floor() -> Floor | None:
    """The floor of this machine; None where it has none.

    Raises:
        ConfigurationError, FloorViolated: as of `SystemFloor.read`.
    """
    layer = SystemFloor().read()
    if layer is None or "floor" not in layer.root.entries:
        return None
    fold = FloorFold()
    fold.lay(layer.root.entries["floor"])
    return fold.floor


@record
class SystemFloor:
    """Where the floor of the machine is. What is not the default is for tests.

    Attributes:
        path: Of the file, below *anchor*.
        anchor: The directory from which on everything on the way is looked at.
        owner: To whom all of it must belong.
    """

    path: str = PATH
    anchor: str = "/"
    owner: int = _ROOT

    def read(self) -> Layer | None:
        """The layer that the floor is; None where the machine has none.

        Every directory on the way is opened in the one before, and looked at when it is open, so that nothing can be
        put in its place in between.

        Raises:
            ConfigurationError: there is one, and it cannot be read or trusted. Then nothing may be started.
        """
        try:
            data = self._content()
        except FileNotFoundError:
            refuse_misnamed(self.path)
            return None
        except OSError as error:
            reason = "a link is on the way" if error.errno in (errno.ELOOP, errno.ENOTDIR) else error.strerror
            message = f"the floor of this machine, {self.path}, cannot be read: {reason}"
            raise ConfigurationError(message, file=self.path, hint=_HINT) from error
        source = Source("system", self.path, os.path.dirname(self.path))
        root = read_document(data, source)
        for name, origin in root.keys.items():
            if name != "floor":
                raise fault(
                    origin, f"`{name}` has no place here", "this document has a section `floor` alone"
                )
        layer = Layer("system", self.path, root)
        if "floor" in root.entries:
            FloorFold().lay(root.entries["floor"])
        return layer

    def _content(self) -> bytes:
        *directories, name = os.path.relpath(self.path, self.anchor).split("/")
        at = os.open(self.anchor, _DIRECTORY)
        try:
            self._check(at, self.anchor)
            way = self.anchor
            for each in directories:
                inner = os.open(each, _DIRECTORY, dir_fd=at)
                os.close(at)
                at = inner
                way = os.path.join(way, each)
                self._check(at, way)
            descriptor = os.open(name, _FILE, dir_fd=at)
        finally:
            os.close(at)
        try:
            self._check(descriptor, self.path)
            return read_regular(descriptor, MAX_BYTES)
        finally:
            os.close(descriptor)

    def _check(self, descriptor: int, path: str) -> None:
        found = os.fstat(descriptor)
        problem = ""
        if found.st_uid != self.owner:
            problem = f"belongs to user {found.st_uid}"
        elif found.st_mode & _MAY_CHANGE:
            problem = f"may be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
        if problem:
            message = f"the floor of this machine, {self.path}, cannot be trusted: {path} {problem}"
            raise ConfigurationError(message, file=path, hint=_HINT)
