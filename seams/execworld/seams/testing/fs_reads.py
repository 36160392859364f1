"""Clauses of reading files."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from execworld.seams import (
    AccessDenied,
    FileMissing,
    NotRegularFile,
    NotText,
    TooLarge,
    World,
)
from execworld.seams.testing.probes import output_of, pattern_bytes, sh
from execworld.seams.testing.suite import ContractSuite


async def streamed_text(world: World, path: str, encoding: str = "utf-8") -> str:
    async with world.fs.open_text_reader(path, encoding=encoding) as chunks:
        return "".join([chunk async for chunk in chunks])


class ReadClauses(ContractSuite):
    """Whole contents, ranges and streams."""

    async def test_F15_text_is_exact(self, world: World, scratch: str) -> None:
        """read_text decodes strictly and changes nothing: line ends of all kinds, a byte order mark and a missing
        last line end stay as they are."""
        content = "\ufeffone\r\ntwo\rthree\n\n漢字 😀\u2028end"
        await world.fs.write_bytes(f"{scratch}/f", content.encode())
        assert await world.fs.read_text(f"{scratch}/f") == content
        assert await streamed_text(world, f"{scratch}/f") == content

    async def test_F16_a_late_nul_is_text(self, world: World, scratch: str) -> None:
        """A NUL among the first 8192 bytes makes content binary; a later one does not."""
        path = f"{scratch}/f"
        for position in (0, 8191):
            await world.fs.write_bytes(path, b"a" * position + b"\0" + b"b" * 9000)
            with pytest.raises(NotText):
                await world.fs.read_text(path)
            with pytest.raises(NotText):
                await streamed_text(world, path)
        await world.fs.write_bytes(path, b"a" * 8192 + b"\0b")
        assert await world.fs.read_text(path) == "a" * 8192 + "\0b"
        assert await streamed_text(world, path) == "a" * 8192 + "\0b"

    async def test_F17_only_regular_files_are_read(self, world: World, scratch: str) -> None:
        """Absent is FS_NOT_FOUND; a directory, a FIFO and a device are FS_NOT_REGULAR_FILE at once: nothing that
        could block is opened."""
        await output_of(world, 'mkfifo "$1"', f"{scratch}/fifo")
        await world.fs.make_symlink(f"{scratch}/link", "fifo")
        with anyio.fail_after(5):
            for path in (scratch, f"{scratch}/fifo", f"{scratch}/link", "/dev/zero"):
                with pytest.raises(NotRegularFile):
                    await world.fs.read_bytes(path)
                with pytest.raises(NotRegularFile):
                    await world.fs.read_text(path)
                with pytest.raises(NotRegularFile):
                    await world.fs.read_range(path, offset=0, size_bytes=1)
                with pytest.raises(NotRegularFile):
                    await streamed_text(world, path)
        for read in (world.fs.read_bytes, world.fs.read_text):
            with pytest.raises(FileMissing) as caught:
                await read(f"{scratch}/absent")
            assert caught.value.path == f"{scratch}/absent"

    async def test_F18_a_stream_equals_the_whole(self, world: World, scratch: str) -> None:
        """The joined chunks of a text stream equal read_text although characters fall on every boundary; an empty
        file gives no text."""
        await world.fs.write_text(f"{scratch}/empty", "")
        assert await streamed_text(world, f"{scratch}/empty") == ""
        for shift in range(4):
            text = "a" * shift + "é漢😀\r\n" * 30_000
            await world.fs.write_text(f"{scratch}/f", text)
            assert await streamed_text(world, f"{scratch}/f") == text
            assert await world.fs.read_text(f"{scratch}/f") == text

    async def test_F19_a_stream_can_be_left(self, world: World, scratch: str) -> None:
        """Leaving a stream early, or being cancelled in it, frees its handle: it can be done more often than a
        process may have open files."""
        await world.fs.write_bytes(f"{scratch}/f", pattern_bytes(200_000))
        for number in range(300):
            with anyio.CancelScope() as scope:
                async with world.fs.open_reader(f"{scratch}/f") as chunks:
                    async for chunk in chunks:
                        assert chunk
                        if number % 50 == 0:
                            scope.cancel()
                            await anyio.lowlevel.checkpoint()
                        break

    async def test_F20_the_size_limit_is_exact(self, world: World, scratch: str) -> None:
        """A file of just the limit is read; one byte more is FS_TOO_LARGE and never a truncated content."""
        await world.fs.write_bytes(f"{scratch}/f", b"x" * 1000)
        assert await world.fs.read_bytes(f"{scratch}/f", max_bytes=1000) == b"x" * 1000
        assert await world.fs.read_text(f"{scratch}/f", max_bytes=1000) == "x" * 1000
        with pytest.raises(TooLarge):
            await world.fs.read_bytes(f"{scratch}/f", max_bytes=999)
        with pytest.raises(TooLarge):
            await world.fs.read_text(f"{scratch}/f", max_bytes=999)

    async def test_F21_a_read_never_mixes_two_versions(self, world: World, scratch: str) -> None:
        """A stream that was opened before an atomic replacement delivers the old content to its end; reads that
        race with replacements give one of the two contents."""
        path, old, new = f"{scratch}/f", b"o" * 400_000, b"n" * 400_000
        await world.fs.write_bytes(path, old)
        async with world.fs.open_reader(path) as chunks:
            received = await anext(chunks)
            await world.fs.write_bytes(path, new)
            async for chunk in chunks:
                received += chunk
        assert received == old

        async def write() -> None:
            for number in range(10):
                await world.fs.write_bytes(path, old if number % 2 else new)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            for _ in range(20):
                assert await world.fs.read_bytes(path) in (old, new)

    async def test_F70_a_large_file_is_read_byte_for_byte(self, world: World, scratch: str) -> None:
        """Content larger than any single transfer arrives complete and in order, whole and streamed."""
        data = pattern_bytes(5 * 1024 * 1024 + 3)
        await world.fs.write_bytes(f"{scratch}/f", data)
        assert await world.fs.read_bytes(f"{scratch}/f") == data
        async with world.fs.open_reader(f"{scratch}/f") as chunks:
            assert b"".join([chunk async for chunk in chunks]) == data
        assert (await output_of(world, 'wc -c <"$1"', f"{scratch}/f")).split()[0] == str(len(data))

    async def test_F71_a_range_is_exact(self, world: World, scratch: str) -> None:
        """read_range gives the bytes asked for, fewer only at the end of the file, and none beyond it."""
        data = pattern_bytes(3_000_000)
        await world.fs.write_bytes(f"{scratch}/f", data)
        for offset, size in (
            (0, 0),
            (0, 1),
            (5, 10),
            (1_048_575, 2),
            (0, 3_000_000),
            (2_999_999, 10),
            (100, 2_500_000),
        ):
            assert (
                await world.fs.read_range(f"{scratch}/f", offset=offset, size_bytes=size)
                == data[offset:][:size]
            )
        assert await world.fs.read_range(f"{scratch}/f", offset=3_000_000, size_bytes=10) == b""
        assert await world.fs.read_range(f"{scratch}/f", offset=4_000_000, size_bytes=10) == b""

    async def test_F72_files_without_a_size_are_read(self, world: World) -> None:
        """A kernel file that states no size is read to its end, and still bounded by the limit."""
        if world.facts.os != "linux":
            return  # only Linux has such files
        assert "Name:" in await world.fs.read_text("/proc/self/status")
        assert await world.fs.read_bytes("/proc/sys/kernel/ostype") == b"Linux\n"
        with pytest.raises(TooLarge):
            await world.fs.read_bytes("/proc/self/status", max_bytes=10)

    async def test_F73_other_encodings_are_chosen(self, world: World, scratch: str) -> None:
        """Content that is not UTF-8 is FS_NOT_TEXT, and is read in the encoding that the caller names."""
        await world.fs.write_bytes(f"{scratch}/f", b"caf\xe9\n")
        with pytest.raises(NotText):
            await world.fs.read_text(f"{scratch}/f")
        with pytest.raises(NotText):
            await streamed_text(world, f"{scratch}/f")
        assert await world.fs.read_text(f"{scratch}/f", encoding="latin-1") == "café\n"
        assert await streamed_text(world, f"{scratch}/f", "latin-1") == "café\n"
        await world.fs.write_bytes(f"{scratch}/cut", "é".encode()[:1])
        with pytest.raises(NotText):
            await streamed_text(world, f"{scratch}/cut")

    async def test_F74_the_limit_holds_for_a_growing_file(self, world: World, scratch: str) -> None:
        """A file that grows while it is read fails with FS_TOO_LARGE once it passes the limit, or gives a content
        within it; memory never grows with the file."""
        path = f"{scratch}/f"
        await world.fs.write_bytes(path, b"x" * 1000)
        async with world.subprocess.start(
            ["sh", "-c", 'while :; do printf "%01000d" 0; done >>"$1"', "sh", path]
        ):
            for _ in range(5):
                try:
                    assert len(await world.fs.read_bytes(path, max_bytes=100_000)) <= 100_000
                except TooLarge:
                    break

    async def test_F75_missing_rights_are_told(self, world: World, scratch: str) -> None:
        """What ordinary permissions forbid is FS_PERMISSION_DENIED. Root is not bound by them and reads the
        file."""
        path = f"{scratch}/f"
        await world.fs.write_text(path, "x", mode=0o600)
        await sh(world, 'chmod 000 "$1"', path)
        if world.facts.uid == 0:
            assert await world.fs.read_text(path) == "x"
        else:
            with pytest.raises(AccessDenied):
                await world.fs.read_text(path)

    async def test_F76_an_empty_file_is_no_special_case(self, world: World, scratch: str) -> None:
        """Nothing can be written and read, in every way."""
        await world.fs.write_bytes(f"{scratch}/f", b"")
        assert await world.fs.read_bytes(f"{scratch}/f") == b""
        assert await world.fs.read_text(f"{scratch}/f") == ""
        assert await world.fs.read_range(f"{scratch}/f", offset=0, size_bytes=10) == b""
        assert await world.fs.read_bytes(f"{scratch}/f", max_bytes=0) == b""
        async with world.fs.open_reader(f"{scratch}/f") as chunks:
            assert [chunk async for chunk in chunks if chunk] == []
