"""Clauses of editing text in place."""

from __future__ import annotations

import anyio
import pytest

from execworld.seams import (
    AmbiguousEdit,
    EditNotFound,
    NotRegularFile,
    NotText,
    StaleVersion,
    World,
)
from execworld.seams.testing.fs_writes import names_in
from execworld.seams.testing.probes import output_of
from execworld.seams.testing.suite import ContractSuite


class EditClauses(ContractSuite):
    """``edit_text``."""

    async def edited(
        self, world: World, path: str, content: bytes, old: str, new: str, *, every: bool = False
    ) -> bytes:
        await world.fs.write_bytes(path, content)
        await world.fs.edit_text(path, old, new, replace_all=every)
        return await world.fs.read_bytes(path)

    async def test_F46_an_absent_file_cannot_be_edited(self, world: World, scratch: str) -> None:
        """Editing what is not there is FS_STALE_VERSION, guarded or not; neither a file nor a directory is made."""
        version = (await world.fs.write_text(f"{scratch}/f", "x")).version
        await world.fs.remove(f"{scratch}/f")
        for expected in (None, version):
            with pytest.raises(StaleVersion):
                await world.fs.edit_text(f"{scratch}/f", "x", "y", expected=expected)
            with pytest.raises(StaleVersion):
                await world.fs.edit_text(f"{scratch}/d/f", "x", "y", expected=expected)
        assert await names_in(world, scratch) == []

    async def test_F47_the_guard_comes_before_the_text(self, world: World, scratch: str) -> None:
        """A stale edit is FS_STALE_VERSION although its text does not occur either."""
        version = (await world.fs.write_text(f"{scratch}/f", "one")).version
        await output_of(world, 'printf two >"$1"', f"{scratch}/f")
        with pytest.raises(StaleVersion):
            await world.fs.edit_text(f"{scratch}/f", "one", "three", expected=version)
        assert await world.fs.read_text(f"{scratch}/f") == "two"

    async def test_F48_the_text_must_occur_once(self, world: World, scratch: str) -> None:
        """An empty text or none that occurs is FS_EDIT_NOT_FOUND; several occurrences are FS_AMBIGUOUS_EDIT with
        their number, unless all are to be replaced; matching is literal, from left to right, without overlap."""
        path = f"{scratch}/f"
        await world.fs.write_text(path, "aaaa b.c")
        for old in ("", "x", "b?c", "^a"):
            with pytest.raises(EditNotFound):
                await world.fs.edit_text(path, old, "y")
        with pytest.raises(AmbiguousEdit) as caught:
            await world.fs.edit_text(path, "aa", "y")
        assert caught.value.count == 2
        assert await world.fs.read_text(path) == "aaaa b.c"
        outcome = await world.fs.edit_text(path, "aa", "y", replace_all=True)
        assert outcome.replacements == 2
        assert await world.fs.read_text(path) == "yy b.c"

    async def test_F49_line_ends_match_and_stay(self, world: World, scratch: str) -> None:
        """CRLF in the file matches LF in the arguments and the other way round; only what was replaced changes,
        mixed line ends included, and the new text takes the line ends of what it replaces."""
        path = f"{scratch}/f"
        for content, old, new, expected in (
            (b"a\r\nb\r\nc\r\n", "b", "B", b"a\r\nB\r\nc\r\n"),
            (b"a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", b"x\r\ny\r\nz\r\nc\r\n"),
            (b"a\r\nb\r\nc\r\n", "a\r\nb\r\n", "x\r\ny\r\n", b"x\r\ny\r\nc\r\n"),
            (b"a\nb\nc\n", "a\r\nb", "x\r\ny", b"x\ny\nc\n"),
            (b"a\r\nb\nc\r\nd\n", "c", "C", b"a\r\nb\nC\r\nd\n"),
            (b"a\r\nb\r\nc", "b", "x\ny", b"a\r\nx\r\ny\r\nc"),
            (b"a\nb\nc", "b", "x\ny", b"a\nx\ny\nc"),
        ):
            assert await self.edited(world, path, content, old, new) == expected

    async def test_F110_other_bytes_stay(self, world: World, scratch: str) -> None:
        """A byte order mark, a lone CR, a missing last line end and everything outside the replaced text stay as
        they are; the first line after a byte order mark can be matched."""
        path = f"{scratch}/f"
        for content, old, new, expected in (
            (b"\xef\xbb\xbfkey: 1\n", "key: 1", "key: 2", b"\xef\xbb\xbfkey: 2\n"),
            (b"\xef\xbb\xbfa\r\nb", "b", "c", b"\xef\xbb\xbfa\r\nc"),
            (b"p1\rp2\rdone\nword\n", "word", "other", b"p1\rp2\rdone\nother\n"),
            (b"p1\rp2\r\nword", "word", "other", b"p1\rp2\r\nother"),
            (b"no end", "end", "stop", b"no stop"),
            ("漢 a\u2028é".encode(), "a", "b", "漢 b\u2028é".encode()),
        ):
            assert await self.edited(world, path, content, old, new) == expected

    async def test_F50_the_new_text_is_literal(self, world: World, scratch: str) -> None:
        """Nothing in the new text is expanded, and an empty one deletes."""
        path = f"{scratch}/f"
        for new in ("$1 \\1 \\n & $$ ${x} %s", "", "old old"):
            assert await self.edited(world, path, b"<old>", "old", new) == b"<" + new.encode() + b">"

    async def test_F51_only_text_is_edited(self, world: World, scratch: str) -> None:
        """A NUL anywhere or an invalid sequence is FS_NOT_TEXT, and the file stays."""
        path = f"{scratch}/f"
        for content in (b"a\0b", b"a" * 9000 + b"\0", b"a\xff"):
            await world.fs.write_bytes(path, content)
            with pytest.raises(NotText):
                await world.fs.edit_text(path, "a", "b", replace_all=True)
            assert await world.fs.read_bytes(path) == content

    async def test_F52_the_outcome_allows_the_next_edit(self, world: World, scratch: str) -> None:
        """The outcome has the new version, and old and new text with LF line ends; a second edit with that version
        succeeds at once."""
        path = f"{scratch}/f"
        await world.fs.write_bytes(path, b"a\r\nb\r\n")
        outcome = await world.fs.edit_text(path, "a", "x")
        info = await world.fs.stat(path)
        assert info is not None
        assert (outcome.version, outcome.path, outcome.replacements) == (info.version, path, 1)
        assert (outcome.before, outcome.after) == ("a\nb\n", "x\nb\n")
        await world.fs.edit_text(path, "b", "y", expected=outcome.version)
        assert await world.fs.read_bytes(path) == b"x\r\ny\r\n"

    async def test_F53_an_edit_is_a_write(self, world: World, scratch: str) -> None:
        """Permission bits are kept, links are followed, nothing is left beside the file, and what is no regular
        file is refused at once."""
        await world.fs.write_text(f"{scratch}/f", "#!/bin/sh\necho a\n", mode=0o755)
        await world.fs.make_symlink(f"{scratch}/link", "f")
        outcome = await world.fs.edit_text(f"{scratch}/link", "echo a", "echo b")
        assert outcome.path == f"{scratch}/f"
        info = await world.fs.stat(f"{scratch}/f")
        assert info is not None
        assert info.mode == 0o755
        assert await output_of(world, '"$1"', f"{scratch}/f") == "b"
        assert await world.fs.read_link(f"{scratch}/link") == "f"
        assert await names_in(world, scratch) == ["f", "link"]
        await output_of(world, 'mkfifo "$1"', f"{scratch}/p")
        for path in (scratch, f"{scratch}/p"):
            with anyio.fail_after(5), pytest.raises(NotRegularFile):
                await world.fs.edit_text(path, "a", "b")

    async def test_F111_edits_of_one_file_queue_up(self, world: World, scratch: str) -> None:
        """Unguarded edits at the same time all take effect."""
        path = f"{scratch}/f"
        await world.fs.write_text(path, "".join(f"<{number}>" for number in range(10)))

        async def edit(number: int) -> None:
            await world.fs.edit_text(path, f"<{number}>", f"[{number}]")

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(edit, number)
        assert await world.fs.read_text(path) == "".join(f"[{number}]" for number in range(10))

    async def test_F112_other_encodings_are_edited(self, world: World, scratch: str) -> None:
        """In the encoding that the caller names, other bytes stay; a text that the encoding lacks is FS_NOT_TEXT,
        and the file stays."""
        path = f"{scratch}/f"
        await world.fs.write_bytes(path, b"caf\xe9 old\r\n")
        await world.fs.edit_text(path, "old", "né", encoding="latin-1")
        assert await world.fs.read_bytes(path) == b"caf\xe9 n\xe9\r\n"
        with pytest.raises(NotText):
            await world.fs.edit_text(path, "caf", "漢", encoding="latin-1")
        assert await world.fs.read_bytes(path) == b"caf\xe9 n\xe9\r\n"
