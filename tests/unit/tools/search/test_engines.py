"""Two engines, one answer."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from execworld.seams import World
from execworld.tools.search.matches import Found
from execworld.tools.search.searching import Engine, search_content
from execworld.world import open_world

pytestmark = pytest.mark.anyio

PATTERNS = [
    "needle",
    r"needle\b",
    r"\bneedle$",
    "^needle",
    "^$",
    "^",
    "$",
    ".",
    r"^.{3}$",
    r"n[^e]",
    r"[^a-z\s]",
    "é",
    "(?i)É",
    "(?i)NEEDLE",
    r"\w+\d{2,}",
    r"\W",
    r"\S\s\S",
    r"x*y",
    r"(a|b)*c",
    r"(?:needle|pin)s?",
    r"a{2,3}b",
    r"-rf",
    "--help",
    r"\.",
    r"\x{e9}",
    r"[\]\-\\]",
    r"\t",
    r"^\s*$",
    r"needle|^$",
    r"(^|x)needle($|y)",
    r"\b",
    "[[:upper:]]{2}",
    r"\r",
    "(?i)k",
    "(?i)[^k]",
]


def make_hostile_tree(root: Path) -> None:
    (root / "plain.txt").write_text("needle\nNEEDLE pin\nneedles 99\n\nx needle\n")
    (root / "no-end.txt").write_text("a\nneedle")
    (root / "crlf.txt").write_bytes(b"needle\r\n\r\nabc\r\nlast needle")
    (root / "cr.txt").write_bytes(b"p1\rneedle\rdone\nabc\n")
    (root / "bom.txt").write_bytes(b"\xef\xbb\xbfneedle: 1\n\xef\xbb\xbf\n")
    (root / "latin.txt").write_bytes(b"caf\xe9 needle\n\xff\xfe\xe2\x82\xc3\xa9\nplain\n\xff\n")
    (root / "utf8.txt").write_text("é É \u212a k K \u017f s\nñandú99\n")
    (root / "utf16.txt").write_bytes("needle\n".encode("utf-16"))
    (root / "binary").write_bytes(b"needle\n\0needle\n")
    (root / "late-binary").write_bytes(b"needle\n" * 20_000 + b"\0\n")
    (root / "empty").write_bytes(b"")
    (root / "only-newlines").write_bytes(b"\n\n\n")
    (root / "long.txt").write_text("z" * 3000 + "é" * 2000 + " needle\n" + "y" * 1999 + "é needle\n")
    (root / ".hidden").write_text("needle hidden\n")
    (root / ".gitignore").write_text("ignored.txt\n")
    (root / "ignored.txt").write_text("needle ignored\n")
    (root / ".ignore").write_text("*.txt\n")
    (root / ".git").mkdir()
    (root / ".git/config").write_text("needle internals\n")
    (root / "sub/.git").mkdir(parents=True)
    (root / "sub/.git/x").write_text("needle\n")
    (root / "sub/deep").mkdir()
    (root / "sub/deep/a.py").write_text("needle = aab\n-rf --help [x] \\ \t.\n")
    (root / "sub/deep/a.PY").write_text("needle\n")
    (root / "sub/link").symlink_to("../plain.txt")
    (root / "sub/loop").symlink_to("..")
    (root / "sub/dangling").symlink_to("nowhere")
    (root / "-rf").write_text("needle option\n")
    (root / "--help").write_text("needle\n")
    (root / "a\nb").write_text("needle in a name of two lines\n")
    (root / " lead").write_text("needle\n")
    (root / "[x]*").write_text("needle\n")
    Path(os.fsdecode(os.fsencode(root) + b"/fo\xff.t")).write_text("needle\n")
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(root / "socket"))


async def ask(
    world: World,
    pattern: str,
    engine: Engine,
    path: str = ".",
    *,
    include: str | None = None,
    limit: int = 250,
) -> Found:
    target = await world.fs.resolve(path)
    info = await world.fs.stat(target)
    assert info is not None
    return await search_content(
        world,
        pattern,
        target,
        info.kind,
        prune=(".git",),
        engine=engine,
        timeout_s=30,
        include=include,
        limit=limit,
    )


@pytest.fixture
async def tree(tmp_path: Path) -> Path:
    if shutil.which("rg") is None:
        message = "ripgrep is compared with: sh scripts/ci-tools brings it"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    make_hostile_tree(tmp_path)
    return tmp_path


async def test_both_engines_give_the_same_answer(tree: Path) -> None:
    async with open_world("local", cwd=str(tree)) as world:
        for pattern in PATTERNS:
            for include, limit in ((None, 250), ("*.txt", 250), ("sub/**/*.{py,x}", 250), ("[a-f]*", 7)):
                one = await ask(world, pattern, Engine.RIPGREP, include=include, limit=limit)
                other = await ask(world, pattern, Engine.PORTABLE, include=include, limit=limit)
                assert one == other, (pattern, include)


async def test_both_engines_agree_on_single_files(tree: Path) -> None:
    (tree / "huge-line.txt").write_text("x" * (1024 * 1024 + 10) + " needle\nneedle after\n")
    async with open_world("local", cwd=str(tree)) as world:
        for name in (
            "plain.txt",
            "binary",
            "late-binary",
            "-rf",
            "a\nb",
            "sub/link",
            "empty",
            "huge-line.txt",
        ):
            one = await ask(world, "needle", Engine.RIPGREP, name)
            other = await ask(world, "needle", Engine.PORTABLE, name)
            assert one == other, name
            expected = 0 if name in ("binary", "late-binary", "empty") else None
            assert expected is None or one.total == expected


async def test_what_is_found_is_what_is_there(tree: Path) -> None:
    async with open_world("local", cwd=str(tree)) as world:
        found = await ask(world, "needle", Engine.PORTABLE)
    paths = {match.path for match in found.matches}
    assert b"fo\xff.t" in paths
    assert b"a\nb" in paths
    assert b".hidden" in paths
    assert b"ignored.txt" in paths
    assert not any(b".git/" in path or b"binary" in path or b"link" in path for path in paths)
    assert next(match for match in found.matches if match.path == b"latin.txt").text is None
