"""How a shell is started on a terminal, and how it says that a command is over.

The prompt ends in a mark that nobody sees: OSC 133 (the semantic prompt of FinalTerm), with the exit status of the last
command, a secret, and a count. The secret is drawn for each terminal, typed to the shell, and kept by it in a variable
that its children do not inherit, so that no program finds it in its environment or in the arguments of the shell. A
mark without it is a program's own. The count tells a prompt that is drawn again from a new one.
"""

from __future__ import annotations

import hmac
import posixpath
import re
import secrets
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from execworld.seams.values import value_class

TERMINAL_ENVIRONMENT: Final[Mapping[str, str | None]] = MappingProxyType(
    {
        # A reader of text pages by itself, and needs no colours.
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "MANPAGER": "cat",
        "SYSTEMD_PAGER": "cat",
        "NO_COLOR": "1",
        # Start-up files of shells and of their line editor are not read, and no history is kept.
        "BASH_ENV": None,
        "ENV": None,
        "PROMPT_COMMAND": None,
        "SHELLOPTS": None,
        "BASHOPTS": None,
        "PS1": None,
        "PS2": None,
        "INPUTRC": "/dev/null",
        "HISTFILE": "",
        "HISTCONTROL": "ignorespace",
    }
)

_MARK: Final = re.compile(r"133;D;([0-9]{1,3});aid=([0-9a-f]{32});n=([0-9]{1,18})")
_GREATEST_STATUS: Final = 255


@value_class
class PromptMark:
    """A prompt was drawn: the exit status of the command before it, and the how-many-eth it is."""

    status: int
    count: int


class PromptedShell:
    """A shell whose prompts can be told from what programs write."""

    def __init__(self, path: str, *, silent: bool = False) -> None:
        """
        Args:
            path: Of any shell that understands POSIX.
            silent: It shows no prompt, no line editor and no echo: only what commands write.
        """
        self._path = path
        self.silent = silent
        self._secret = secrets.token_hex(16)

    @property
    def argv(self) -> list[str]:
        if posixpath.basename(self._path) == "bash":
            return [self._path, "--norc", "--noprofile", *(["--noediting"] if self.silent else []), "-i"]
        return [self._path, "-i"]

    @property
    def first_line(self) -> str:
        """What is typed to the shell first; any POSIX shell understands it.

        It begins with a blank, so that it is not in the history, and holds no escape character, so that its echo is no
        mark.
        """
        count = r"\$((_execworld_prompts=\${_execworld_prompts:-0}+1))"
        start, end = r"${BASH_VERSION:+\\[}", r"${BASH_VERSION:+\\]}"  # bash counts what takes no room apart
        mark = rf"$(printf '\033]133;D;')\$?;aid={self._secret};n={count}$(printf '\007')"
        shown = "" if self.silent else r"\$ "
        # An exclamation mark is one: bash looks nothing up in its history.
        bash = r"""[ -z "$BASH_VERSION" ] || { set +H; PROMPT_COMMAND='PS1=$_execworld_prompt'; }"""
        quiet = " PS2=; stty -echo 2>/dev/null;" if self.silent else ""
        return f' {bash};{quiet} PS1="{shown}{start}{mark}{end}"; _execworld_prompt=$PS1'

    def prompt_mark(self, kind: str, body: str) -> PromptMark | None:
        """The mark that a command string is; None for one of a program."""
        match = _MARK.fullmatch(body) if kind == "OSC" else None
        if match is None or not hmac.compare_digest(match.group(2), self._secret):
            return None
        status = int(match.group(1))
        return PromptMark(status, int(match.group(3))) if status <= _GREATEST_STATUS else None
