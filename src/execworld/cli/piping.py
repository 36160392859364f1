"""``-`` in place of a file of this host: standard input or output, streamed."""

from __future__ import annotations

from typing import Final

from execworld.cli.descriptors import Sink, read_chunks
from execworld.seams import FileKind, FileSystem, NotRegularFile, decode_path, printable_path

STANDARD_STREAM: Final = "-"
_STDIN: Final = 0
_STDOUT: Final = 1


async def write_from_stdin(fs: FileSystem, target: bytes) -> None:
    """Make *target* hold what comes from standard input. It appears whole at the end of the input, or not at all.

    Raises:
        NotRegularFile: *target* is a directory: what comes from a stream has no name that it could get there.
        FileError: it could not be written.
    """
    info = None if target.endswith(b"/") else await fs.stat(target)
    if target.endswith(b"/") or (info is not None and info.kind is FileKind.DIRECTORY):
        message = f"{printable_path(target)} is a directory"
        raise NotRegularFile(message, path=decode_path(target), hint="name the file in it")
    await fs.write_stream(target, read_chunks(_STDIN), parents=False)


async def read_to_stdout(fs: FileSystem, source: bytes) -> None:
    """Write the content of *source* to standard output.

    Raises:
        FileError: it could not be read.
    """
    sink = Sink(_STDOUT)
    try:
        async with fs.open_reader(source) as chunks:
            async for chunk in chunks:
                await sink.write(chunk)
    finally:
        sink.close()
