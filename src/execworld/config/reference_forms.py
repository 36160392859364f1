"""How a reference is written, and what of it is settled when it is read."""

from __future__ import annotations

import os
import re
from typing import Final

from execworld.config.nodes import EnvironmentNode, FileNode, Origin
from execworld.config.problems import fault

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def environment_reference(name: str, origin: Origin, default: str | None = None) -> EnvironmentNode:
    """``!env NAME``. The variable is not looked at.

    Raises:
        ConfigurationError: *name* cannot be the name of one.
    """
    if not _NAME.fullmatch(name):
        raise fault(
            origin,
            "`!env` takes the name of a variable and nothing else",
            "write `!env NAME`, or `!env {name: NAME, default: VALUE}`",
        )
    return EnvironmentNode(name, default, origin)


def file_reference(path: str, origin: Origin, directory: str) -> FileNode:
    """``!file PATH``, relative to *directory*. The file is not looked at.

    Raises:
        ConfigurationError: *path* is none.
    """
    if not path or "\0" in path:
        raise fault(origin, "`!file` takes the path of a file")
    if path.startswith("~"):
        raise fault(origin, "`~` is not expanded", "write the path out, or relative to this document")
    return FileNode(os.path.join(directory, path), origin)
