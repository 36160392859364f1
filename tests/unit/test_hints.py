"""Hints are read by people at a command line and by agents with tools, not by authors of Python alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON_WORDS = re.compile(
    r"""
    \w+=\w+           # recursive=True
    | \w\(\)          # start()
    | \b(None|True|False|cwd|argv|on_output|subprocess)\b
    """,
    re.VERBOSE,
)
SOURCES = [
    path
    for root in ("src", "seams", "providers", "policies")
    for path in sorted((ROOT / root).rglob("*.py"))
    if not {"testing", "cli"} & set(path.parts)
]


def texts(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def hints(path: Path) -> Iterator[str]:
    """Every text that is passed as ``hint``, or kept in a name that says hint."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.keyword) and node.arg == "hint":
            yield from texts(node.value)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and "hint" in target.id.lower() for target in targets):
                yield from texts(node.value)


def test_no_hint_is_worded_in_python() -> None:
    worded = {
        f"{path.relative_to(ROOT)}: {hint}"
        for path in SOURCES
        for hint in hints(path)
        if PYTHON_WORDS.search(hint)
    }
    assert not worded
