"""Marks of prompts: only those of this terminal, whole, and nothing else."""

from __future__ import annotations

import re

import pytest

from execworld.tools.terminals.shells import PromptedShell


def secret_of(shell: PromptedShell) -> str:
    found = re.search(r"aid=([0-9a-f]{32});", shell.first_line)
    assert found is not None
    return found.group(1)


def test_the_own_mark_is_known() -> None:
    shell = PromptedShell("/bin/sh")
    mark = shell.prompt_mark("OSC", f"133;D;7;aid={secret_of(shell)};n=12")
    assert mark is not None
    assert (mark.status, mark.count) == (7, 12)


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("DCS", "133;D;0;aid={};n=1"),
        ("OSC", "133;D;0;aid={};n="),
        ("OSC", "133;D;256;aid={};n=1"),
        ("OSC", "133;D;0;aid={}0;n=1"),
        ("OSC", "133;D;0;aid={};n=1;"),
        ("OSC", "133;D;0;aid={};n=1\n"),
        ("OSC", "133;D;٣;aid={};n=1"),
        ("OSC", " 133;D;0;aid={};n=1"),
        ("OSC", "133;D;0"),
    ],
)
def test_anything_else_is_none(kind: str, form: str) -> None:
    shell = PromptedShell("/bin/sh")
    assert shell.prompt_mark(kind, form.format(secret_of(shell))) is None


def test_each_terminal_has_its_own_secret() -> None:
    one, other = PromptedShell("/bin/sh"), PromptedShell("/bin/sh")
    assert other.prompt_mark("OSC", f"133;D;0;aid={secret_of(one)};n=1") is None
    assert secret_of(one) not in " ".join(one.argv)


@pytest.mark.parametrize("silent", [False, True])
def test_the_line_that_is_typed_is_no_mark_itself(silent: bool) -> None:
    """Its echo must not be one; and a terminal must take it."""
    line = PromptedShell("/bin/bash", silent=silent).first_line
    assert line.isascii()
    assert line.isprintable()
    assert len(line) < 1000
    assert line.startswith(" ")
