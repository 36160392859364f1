"""Tools in the world of a command, and the person at its terminal."""

from __future__ import annotations

import dataclasses
import json
import os
import termios
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from execworld.assembly import RunningComposition
from execworld.assembly.tooling import open_tools
from execworld.cli.messages import is_terminal
from execworld.cli.worlds import WorldChoice
from execworld.tools.approval import Answer, ApprovalRequest
from execworld.tools.json_values import thaw
from execworld.tools.toolset import Toolset, toolset
from execworld.world.machine_floor import read_machine_floor

_TERMINAL: Final = "/dev/tty"
_SHOWN_CHARACTERS: Final = 4000
_LINE_BYTES: Final = 4096


@asynccontextmanager
async def open_toolset(choice: WorldChoice) -> AsyncGenerator[Toolset]:
    """Open the world, and the tools in it."""
    running: list[RunningComposition] = []
    async with choice.open(running.append) as world:
        if running:
            async with open_tools(running[0], approve=ask_on_terminal) as tools:
                yield tools
            return
        floor = read_machine_floor()
        claims = None
        if floor is not None:
            claims = dataclasses.replace(choice, quiet=True).resolve().claims(world.policy)
        async with toolset(world, approve=ask_on_terminal, floor=floor, claims=claims) as tools:
            yield tools


async def ask_on_terminal(request: ApprovalRequest) -> Answer:
    """Ask whoever sits at our terminal, whatever our input and output are; unavailable if nobody does.

    What is shown may come from a model: none of its characters controls the terminal. What was typed before the
    question is no answer to it.
    """
    try:
        terminal = os.open(_TERMINAL, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return Answer.UNAVAILABLE
    try:
        if not is_terminal(terminal) or os.tcgetpgrp(terminal) != os.getpgrp():
            return Answer.UNAVAILABLE  # in the background, where reading would stop us
        termios.tcflush(terminal, termios.TCIFLUSH)
        _write(terminal, question(request))
        return await _read_answer(terminal)
    except OSError:
        return Answer.UNAVAILABLE
    finally:
        os.close(terminal)


def question(request: ApprovalRequest) -> bytes:
    """What is shown: in ASCII, and without any character that controls a terminal."""
    arguments = json.dumps(thaw(request.call.arguments))
    lines = [f"execworld: `{request.call.name}` {arguments}"]
    lines += [f"  {line}" for line in request.reason.split("\n")]
    return "".join(f"{_plain(line)}\n" for line in lines).encode("ascii") + b"Allow this once? [y/N] "


def _plain(line: str) -> str:
    shown = "".join(
        character if character.isprintable() and character.isascii() else f"\\u{ord(character):04x}"
        for character in line[:_SHOWN_CHARACTERS]
    )
    left_out = len(line) - _SHOWN_CHARACTERS
    return shown + (f" [... {left_out} characters omitted ...]" if left_out > 0 else "")


def _write(terminal: int, data: bytes) -> None:
    while data:
        data = data[os.write(terminal, data) :]


async def _read_answer(terminal: int) -> Answer:
    line = b""
    while not line.endswith(b"\n"):
        await anyio.wait_readable(terminal)
        chunk = os.read(terminal, _LINE_BYTES)
        if not chunk:
            _write(terminal, b"\n")
            return Answer.CANCELLED
        line = (line + chunk)[-_LINE_BYTES:]
    return Answer.ALLOWED_ONCE if line.strip().lower() in (b"y", b"yes") else Answer.REJECTED
