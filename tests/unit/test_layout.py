"""The shape of the source tree, where a slip would be silent: one stray file hides a whole source root."""

import importlib.machinery
import io
import os
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
ROOTS = ("src", "seams", "providers", "policies")
MODULE_LINES = 600

# Directories that hold what tools made. A hidden one is a tool's as well, but for the project's own.
GENERATED = {"__pycache__", "build", "dist", "node_modules"}
OWN_HIDDEN = {".ci"}

SUPPRESSION = re.compile(
    r"""
    \#\s*(?:
        type:\s*ignore(?:\[[^\]]*\])?
      | pyright:\s*(?:ignore(?:\[[^\]]*\])?|basic|\w+\s*=\s*\w+)
      | (?:(?:ruff|flake8):\s*)?noqa(?::\s*[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*)?
      | pragma:\s*no\s+(?:cover|branch)
    )
    """,
    re.VERBOSE,
)
A_REASON = re.compile(r"[^\W\d_]{2,}\W+[^\W\d_]{2,}")  # two words at the least

# In two parts, so that this file does not match itself.
PRIVATE_PATH = re.compile(rb"(?<![\w.-])/wor" + rb"k/")


def files(directory: Path) -> Iterator[Path]:
    """Every file of the project under *directory*, without what tools made."""
    for parent, directories, names in os.walk(directory):
        directories[:] = [
            name
            for name in directories
            if name not in GENERATED and (not name.startswith(".") or name in OWN_HIDDEN)
        ]
        for name in names:
            path = Path(parent, name)
            # In a linked worktree .git is a file, with the path of the repository.
            if name != ".git" and path.is_file() and not path.is_symlink():
                yield path


def python_files() -> list[Path]:
    return sorted(path for path in files(REPOSITORY) if path.suffix == ".py")


def portions() -> list[Path]:
    """What lies directly in the namespace: `seams/execworld/seams`, `src/execworld/machine`, ..."""
    found: list[Path] = []
    for root in ROOTS:
        namespace = REPOSITORY / root / "execworld"
        if namespace.is_dir():
            found += [path for path in namespace.iterdir() if path.name not in GENERATED]
    return sorted(found)


def relative(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def comments(source: bytes) -> Iterator[tuple[int, str]]:
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def unexplained(comment: str) -> bool:
    """Whether *comment* suppresses a check and gives no reason after it."""
    suppressions = list(SUPPRESSION.finditer(comment))
    return bool(suppressions) and not A_REASON.search(comment, suppressions[-1].end())


@pytest.mark.parametrize("root", ROOTS)
def test_no_root_closes_the_namespace(root: str) -> None:
    """A regular package `execworld` in one root hides all other roots in an editable install."""
    assert not (REPOSITORY / root / "execworld" / "__init__.py").exists()


def test_there_are_portions() -> None:
    """The tests below would hold of an empty tree."""
    assert REPOSITORY / "seams/execworld/seams" in portions()


def test_each_portion_is_a_typed_package() -> None:
    """Type checkers honour `py.typed` in a regular package, not in the namespace above it.

    A portion that is a single module has no place for the marker, so its users would see no types.
    """
    missing = [
        f"{relative(portion)}/{name}"
        for portion in portions()
        for name in ("__init__.py", "py.typed")
        if not (portion / name).is_file()
    ]
    assert missing == []


@pytest.mark.parametrize("name", ["seams", "providers", "policies"])
def test_a_source_root_is_no_package(name: str) -> None:
    """With the checkout on the path, `import seams` must not be a second copy of `execworld.seams`."""
    spec = importlib.machinery.PathFinder.find_spec(name, [str(REPOSITORY)])
    assert spec is None or spec.origin is None, f"importable from {spec.origin}"
    assert sorted((REPOSITORY / name).glob("*.py")) == []


def test_modules_are_short() -> None:
    """One concept a module; whoever needs more lines has found a second one."""
    long: dict[str, int] = {}
    for path in python_files():
        lines = len(path.read_bytes().splitlines())
        if lines > MODULE_LINES:
            long[relative(path)] = lines
    assert long == {}


def test_each_suppression_gives_its_reason() -> None:
    """`# noqa: S101 - why` on the same line, so that nobody has to guess whether it still holds."""
    found = [
        f"{relative(path)}:{line}: {comment}"
        for path in python_files()
        for line, comment in comments(path.read_bytes())
        if unexplained(comment)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("# a plain comment", False),
        ("# type: ignore", True),
        ("# type: ignore[arg-type]", True),
        ("# type: ignore[arg-type]  # the stub omits bytes", False),
        ("# noqa", True),
        ("# noqa: S101", True),
        ("# noqa: S101, E501", True),
        ("# noqa: S101 - narrows the type only", False),
        ("# type: ignore[misc]  # noqa: S101", True),
        ("# type: ignore[misc]  # noqa: S101 - both are wrong here", False),
        ("# ruff: noqa: T201", True),
        ("# pyright: ignore[reportPrivateUsage]", True),
        ("# pyright: ignore[reportPrivateUsage] the SDK has no public name", False),
        ("# pragma: no cover", True),
    ],
)
def test_a_suppression_without_a_reason_is_recognised(comment: str, expected: bool) -> None:
    assert unexplained(comment) is expected


def test_no_file_names_a_private_path() -> None:
    """The tree speaks of itself; a path of the machine it was written on helps nobody."""
    found: list[str] = []
    for path in files(REPOSITORY):
        content = path.read_bytes()
        if b"\0" not in content and PRIVATE_PATH.search(content):
            found.append(relative(path))
    assert found == []
