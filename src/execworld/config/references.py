"""What references stand for. It is read at the last moment, and goes nowhere but into the options of its row."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from execworld.config.nodes import EnvironmentNode, FileNode, Reference
from execworld.config.problems import fault
from execworld.config.regular_files import read_regular_file
from execworld.seams.values import record

MAX_FILE_BYTES: Final = 64 << 10


@record
class Lookup:
    """Where references are looked up.

    Attributes:
        environment: Variables, as bytes; of this process when None.
        reads: Whether they are looked up at all. Whoever only shows a composition need not have its secrets.
    """

    environment: Mapping[bytes, bytes] | None = None
    reads: bool = True

    def text_of(self, node: Reference) -> str:
        """What *node* stands for.

        Raises:
            ConfigurationError: there is nothing to be had. The message holds no part of a value.
        """
        return self._variable(node) if isinstance(node, EnvironmentNode) else _content(node)

    def _variable(self, node: EnvironmentNode) -> str:
        variables = os.environb if self.environment is None else self.environment
        name = node.name.encode("ascii")
        value = variables.get(name)
        if not value:
            if node.default is not None:
                return node.default
            raise fault(
                node.origin,
                f"the variable `{node.name}` is {'not set' if value is None else 'set, but empty'}",
                "set it, or say what to take instead: `!env {name: NAME, default: VALUE}`",
            )
        text = _decoded(value)
        if text is None:
            raise fault(node.origin, f"the variable `{node.name}` is not UTF-8")
        return text


def _content(node: FileNode) -> str:
    try:
        data = read_regular_file(node.path, MAX_FILE_BYTES)
    except OSError as error:
        raise fault(node.origin, f"{node.path} cannot be read: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise fault(node.origin, f"{node.path} is larger than {MAX_FILE_BYTES} bytes")
    text = _decoded(data)
    if text is None:
        raise fault(node.origin, f"{node.path} is not UTF-8")
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")


def _decoded(data: bytes) -> str | None:
    """*data* as text; None when it is none. The error of the decoder holds the value, so it must not get out."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
