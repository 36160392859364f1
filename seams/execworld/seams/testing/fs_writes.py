"""Clauses of writing files: content, atomicity, metadata, outcome."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from execworld.seams import (
    AccessDenied,
    ExecworldError,
    FileError,
    FileKind,
    HardLinked,
    NotDirectory,
    NotRegularFile,
    OutputStream,
    World,
)
from execworld.seams.testing.probes import output_of, pattern_bytes, sh
from execworld.seams.testing.suite import ContractSuite


async def names_in(world: World, path: str) -> list[str]:
    return [entry.name for entry in await world.fs.list_directory(path)]


class WriteClauses(ContractSuite):
    """Create or replace."""

    async def test_F27_a_write_without_demand_creates_or_replaces(self, world: World, scratch: str) -> None:
        """Without an expectation a write creates the file or replaces it, byte for byte and with its line ends as
        given."""
        for content in (b"", b"\0\xff\r\n\r", pattern_bytes(2_500_000), b"short"):
            outcome = await world.fs.write_bytes(f"{scratch}/f", content)
            assert outcome.path == f"{scratch}/f"
            assert await world.fs.read_bytes(f"{scratch}/f") == content
        await world.fs.write_text(f"{scratch}/f", "é\r\nx\n\r")
        assert await world.fs.read_bytes(f"{scratch}/f") == "é\r\nx\n\r".encode()

    async def test_F32_only_regular_files_are_replaced(self, world: World, scratch: str) -> None:
        """A directory or a special file is FS_NOT_REGULAR_FILE under every expectation, at once, and stays."""
        await world.fs.make_directory(f"{scratch}/d")
        await output_of(world, 'mkfifo "$1"', f"{scratch}/p")
        version = (await world.fs.write_text(f"{scratch}/f", "")).version
        for name in ("d", "p"):
            for expected in (None, "absent", version):
                with anyio.fail_after(5), pytest.raises(NotRegularFile):
                    await world.fs.write_text(f"{scratch}/{name}", "x", expected=expected)
        assert await names_in(world, scratch) == ["d", "f", "p"]
        assert await names_in(world, f"{scratch}/d") == []

    async def test_F33_parents_are_made(self, world: World, scratch: str) -> None:
        """Missing directories are created unless that is switched off."""
        await world.fs.write_text(f"{scratch}/a/b/c/f", "x")
        assert await world.fs.read_text(f"{scratch}/a/b/c/f") == "x"
        with pytest.raises(FileError) as caught:
            await world.fs.write_text(f"{scratch}/x/f", "x", parents=False)
        assert caught.value.code == "FS_NOT_FOUND"
        assert await names_in(world, scratch) == ["a"]

    async def test_F34_a_replacement_is_atomic(self, world: World, scratch: str) -> None:
        """Who opened the file before a write keeps the whole old content; the new content appears at once and whole
        under the name."""
        path, old = f"{scratch}/f", b"old " * 50_000
        await world.fs.write_bytes(path, old)
        # The descriptor of the command refers to the old file for as long as it is open.
        script = 'exec 3<"$1"; echo ready; read go; cat <&3 | wc -c; cat "$1"'
        async with world.subprocess.start(["sh", "-c", script, "sh", path], pipe_stdin=True) as process:
            while not process.read_output(OutputStream.STDOUT).data:  # noqa: ASYNC110 - bounded by the clause's time limit
                await anyio.sleep(0.01)
            await world.fs.write_bytes(path, b"new\n")
            assert process.stdin is not None
            await process.stdin.send(b"go\n")
            result = await process.wait()
        lines = result.stdout.text.splitlines()
        assert lines[1].split()[0] == str(len(old)), "a reader of the old file lost its content"
        assert lines[2] == "new"

    async def test_F35_staging_is_private(self, world: World, scratch: str) -> None:
        """While a write is under way the target is as before, and what lies beside it can be read by its owner
        alone; afterwards nothing else is there."""
        path, seen = f"{scratch}/f", list[tuple[str, int]]()
        await world.fs.write_text(path, "old", mode=0o644)

        async def source() -> AsyncIterator[bytes]:
            yield b"secret " * 1000
            yield pattern_bytes(1_200_000)
            listing = await world.fs.list_directory(scratch)
            seen.extend((entry.name, entry.info.mode) for entry in listing if entry.name != "f")
            assert await world.fs.read_text(path) == "old"
            yield b"end"

        await world.fs.write_stream(path, source())
        assert [name for name, mode in seen if mode & 0o077] == []
        assert await names_in(world, scratch) == ["f"]
        assert len(await world.fs.read_bytes(path)) == 7000 + 1_200_000 + 3

    async def test_F36_permission_bits_are_kept(self, world: World, scratch: str) -> None:
        """A replaced file keeps its permission bits, a new one gets 0666 without the world's umask, and a mode that
        is given wins."""
        await output_of(world, ': >"$1/by-command"', scratch)
        by_command = await world.fs.stat(f"{scratch}/by-command")
        await world.fs.write_text(f"{scratch}/by-fs", "")
        by_fs = await world.fs.stat(f"{scratch}/by-fs")
        assert by_command is not None
        assert by_fs is not None
        assert by_fs.mode == by_command.mode
        for mode in (0o755, 0o640, 0o400):
            path = f"{scratch}/{mode:o}"
            await world.fs.write_text(path, "a", mode=mode)
            await world.fs.write_text(path, "b")
            info = await world.fs.stat(path)
            assert info is not None
            assert info.mode == mode
        await world.fs.write_text(f"{scratch}/755", "c", mode=0o600)
        info = await world.fs.stat(f"{scratch}/755")
        assert info is not None
        assert info.mode == 0o600

    async def test_F37_a_link_is_written_through(self, world: World, scratch: str) -> None:
        """Writing to a link changes what it leads to and leaves the link, also through several links and a linked
        directory; the outcome names the file that was written."""
        await world.fs.write_text(f"{scratch}/d/f", "old")
        await world.fs.make_symlink(f"{scratch}/one", "two")
        await world.fs.make_symlink(f"{scratch}/two", "d/f")
        outcome = await world.fs.write_text(f"{scratch}/one", "new")
        assert outcome.path == f"{scratch}/d/f"
        assert not outcome.created
        assert await world.fs.read_text(f"{scratch}/d/f") == "new"
        for name in ("one", "two"):
            info = await world.fs.lstat(f"{scratch}/{name}")
            assert info is not None
            assert info.kind is FileKind.SYMLINK
        await world.fs.make_symlink(f"{scratch}/dangling", "d/later")
        outcome = await world.fs.write_text(f"{scratch}/dangling", "made")
        assert outcome.created
        assert await world.fs.read_text(f"{scratch}/d/later") == "made"

    async def test_F38_a_failed_write_leaves_nothing(self, world: World, scratch: str) -> None:
        """An error of the source reaches the caller unchanged; the target is as before, nothing is left beside it,
        and directories made for it are gone."""
        await world.fs.write_text(f"{scratch}/f", "old")

        async def source() -> AsyncIterator[bytes]:
            yield pattern_bytes(1_500_000)
            raise ZeroDivisionError

        for path in (f"{scratch}/f", f"{scratch}/new/deep/f"):
            with pytest.raises(ZeroDivisionError):
                await world.fs.write_stream(path, source())
        assert await names_in(world, scratch) == ["f"]
        assert await world.fs.read_text(f"{scratch}/f") == "old"

    async def test_F39_a_cancelled_write_leaves_nothing(self, world: World, scratch: str) -> None:
        """A write that is cancelled while its source waits changes nothing and leaves no temporary file and no
        directory; one that was cancelled before it began does not begin."""
        await world.fs.write_text(f"{scratch}/f", "old")
        for path in (f"{scratch}/f", f"{scratch}/new/f"):
            with anyio.CancelScope() as scope:

                async def source(scope: anyio.CancelScope = scope) -> AsyncIterator[bytes]:
                    yield pattern_bytes(1_500_000)
                    scope.cancel()
                    await anyio.sleep(10)

                await world.fs.write_stream(path, source())
            assert scope.cancelled_caught
        with anyio.CancelScope() as scope:
            scope.cancel()
            await world.fs.write_text(f"{scratch}/never", "x")
        assert await names_in(world, scratch) == ["f"]
        assert await world.fs.read_text(f"{scratch}/f") == "old"

    async def test_F40_the_outcome_tells_the_truth(self, world: World, scratch: str) -> None:
        """The outcome says whether the file is new and gives the version that a stat right afterwards gives. Old
        and new text, with LF line ends, come only when asked for and when both are text below the limit."""
        path = f"{scratch}/f"
        outcome = await world.fs.write_text(path, "a\r\nb", diff_limit_bytes=10)
        info = await world.fs.stat(path)
        assert info is not None
        assert (outcome.created, outcome.version, outcome.before) == (True, info.version, None)
        outcome = await world.fs.write_text(path, "c\r\n", diff_limit_bytes=10)
        info = await world.fs.stat(path)
        assert info is not None
        assert (outcome.created, outcome.version) == (False, info.version)
        assert (outcome.before, outcome.after) == ("a\nb", "c\n")
        assert (await world.fs.write_text(path, "d")).before is None
        await world.fs.write_text(path, "0123456789")
        assert (await world.fs.write_text(path, "e", diff_limit_bytes=10)).before is None
        await world.fs.write_bytes(path, b"\0\xff")
        assert (await world.fs.write_text(path, "f", diff_limit_bytes=10)).before is None

    async def test_F90_a_stream_is_written_in_order(self, world: World, scratch: str) -> None:
        """write_stream joins chunks of any size, empty ones too, and a stream of nothing makes an empty file."""
        data = pattern_bytes(3_000_000)

        async def source() -> AsyncIterator[bytes]:
            position = 0
            for size in (1, 0, 65536, 1_048_577, 3, 3_000_000):
                yield data[position : position + size]
                position += size

        async def nothing() -> AsyncIterator[bytes]:
            for chunk in list[bytes]():
                yield chunk

        outcome = await world.fs.write_stream(f"{scratch}/f", source())
        assert outcome.created
        assert await world.fs.read_bytes(f"{scratch}/f") == data
        await world.fs.write_stream(f"{scratch}/f", nothing())
        assert await world.fs.read_bytes(f"{scratch}/f") == b""

    async def test_F91_further_names_are_not_separated_silently(self, world: World, scratch: str) -> None:
        """Replacing a file that has further names is FS_HARD_LINKED and changes nothing, unless the caller allows
        it; then the other names keep the old content."""
        await world.fs.write_text(f"{scratch}/f", "old")
        await output_of(world, 'ln "$1/f" "$1/g"', scratch)
        with pytest.raises(HardLinked):
            await world.fs.write_text(f"{scratch}/f", "new")
        with pytest.raises(HardLinked):
            await world.fs.edit_text(f"{scratch}/f", "old", "new")
        assert await world.fs.read_text(f"{scratch}/f") == "old"
        await world.fs.write_text(f"{scratch}/f", "new", break_hard_links=True)
        assert await world.fs.read_text(f"{scratch}/f") == "new"
        assert await world.fs.read_text(f"{scratch}/g") == "old"

    async def test_F92_a_parent_that_is_a_file_is_told(self, world: World, scratch: str) -> None:
        """Writing below a regular file is FS_NOT_DIRECTORY or FS_NOT_FOUND, and the file stays."""
        await world.fs.write_text(f"{scratch}/f", "x")
        with pytest.raises(FileError) as caught:
            await world.fs.write_text(f"{scratch}/f/child", "y")
        assert isinstance(caught.value, NotDirectory) or caught.value.code == "FS_NOT_FOUND"
        assert await world.fs.read_text(f"{scratch}/f") == "x"

    async def test_F93_the_owner_is_kept(self, world: World, scratch: str) -> None:
        """What fs writes belongs to the user that commands run as, parents included, so a command can go on with
        it; where it may, a replacement keeps a foreign owner."""
        await world.fs.write_text(f"{scratch}/p/f", "x")
        for path in (f"{scratch}/p", f"{scratch}/p/f"):
            info = await world.fs.stat(path)
            assert info is not None
            assert info.uid == world.facts.uid
        await output_of(world, 'echo y >>"$1/p/f" && : >"$1/p/g"', scratch)
        if world.facts.uid == 0 and (await sh(world, 'chown 12345:54321 "$1/p/f"', scratch)).ok:
            await world.fs.write_text(f"{scratch}/p/f", "z")
            info = await world.fs.stat(f"{scratch}/p/f")
            assert info is not None
            assert (info.uid, info.gid) == (12345, 54321)

    async def test_F94_a_forbidden_write_is_told(self, world: World, scratch: str) -> None:
        """Where ordinary permissions forbid writing, the error is FS_PERMISSION_DENIED, and nothing is left. Root
        is not bound by them."""
        await world.fs.make_directory(f"{scratch}/d")
        await world.fs.set_mode(f"{scratch}/d", 0o500)
        try:
            if world.facts.uid == 0:
                await world.fs.write_text(f"{scratch}/d/f", "x")
            else:
                with pytest.raises(AccessDenied):
                    await world.fs.write_text(f"{scratch}/d/f", "x")
                assert await names_in(world, f"{scratch}/d") == []
        finally:
            await world.fs.set_mode(f"{scratch}/d", 0o700)

    @pytest.mark.parametrize(
        "path", ["/proc/version", "/proc/nothing/f", "/dev/null/f", "/dev/full", "/sys/kernel/f", "/"]
    )
    async def test_F56_every_failure_has_a_code(self, world: World, path: str) -> None:
        """Whatever the operating system says to a write, edit, removal or listing, the caller gets an error of the
        tree with a code, the operation, the world and the path."""
        for call in (
            lambda: world.fs.write_text(path, "x"),
            lambda: world.fs.edit_text(path, "a", "b"),
            lambda: world.fs.make_directory(path, exist_ok=False),
            lambda: world.fs.make_symlink(path, "x"),
            lambda: world.fs.list_directory(f"{path}/x"),
        ):
            with pytest.raises(ExecworldError) as caught:
                await call()
            error = caught.value
            assert str(error.code).startswith("FS_")
            assert error.op.startswith("fs.")
            assert error.world == world.world_id
            assert isinstance(error, OSError)

    async def test_F95_writes_of_one_file_do_not_mix(self, world: World, scratch: str) -> None:
        """Of many writes at once each is atomic: the file holds the content of one of them, and nothing is left
        beside it."""
        contents = [bytes([65 + number]) * 100_000 for number in range(8)]
        async with anyio.create_task_group() as tasks:
            for content in contents:
                tasks.start_soon(world.fs.write_bytes, f"{scratch}/f", content)
        assert await world.fs.read_bytes(f"{scratch}/f") in contents
        assert await names_in(world, scratch) == ["f"]
