"""``execworld fs``."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Awaitable, Callable
from typing import Final

import click

from execworld.cli import exits
from execworld.cli.descriptors import Sink
from execworld.cli.explaining import explain_world
from execworld.cli.listing import format_json, format_names
from execworld.cli.messages import is_terminal, note, report, say
from execworld.cli.piping import STANDARD_STREAM, read_to_stdout, write_from_stdin
from execworld.cli.progress import show_progress
from execworld.cli.supervision import run_supervised
from execworld.cli.transfer import Transfer
from execworld.cli.worlds import WorldChoice, world_options
from execworld.seams import (
    DirectoryEntry,
    FileError,
    FileMissing,
    FileSystem,
    InvalidPath,
    NotDirectory,
    decode_path,
    printable_path,
)
from execworld.world.host_files import open_host_files

_STDOUT: Final = 1

PUT_EPILOG = """\b
Examples:
  execworld fs put -w docker://debian:bookworm notes.md /project/
  execworld fs put -w ssh://user@host -r src /project/src
  git diff | execworld fs put -w local - /tmp/change.patch

\b
`-` is standard input; a file of that name is `./-`.
"""
GET_EPILOG = """\b
Examples:
  execworld fs get -w ssh://user@host /var/log/app.log
  execworld fs get -w ssh://user@host -r /project/out results
  execworld fs get -w local /tmp/change.patch - | git apply

\b
`-` is standard output; a file of that name is `./-`.
"""


@click.group("fs", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """List, read, copy and remove files of a world."""


@command.command("ls", epilog="Example: execworld fs ls -w local -l /tmp")
@world_options
@click.option("-l", "long", is_flag=True, help="With type, mode, owner, size and time (UTC).")
@click.option("-0", "--null", "null", is_flag=True, help="End each name with a NUL instead of a line feed.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
@click.argument("path", default=".")
def list_command(
    world_name: str | None,
    config: dict[str, str],
    quiet: bool,
    long: bool,
    null: bool,
    as_json: bool,
    path: str,
) -> int:
    """List a directory, or name a single file."""

    async def work(fs: FileSystem) -> int:
        entries = await _entries(fs, os.fsencode(path))
        if as_json:
            data = format_json(entries)
        else:
            end = b"\0" if null else b"\n"
            data = format_names(entries, terminal=is_terminal(_STDOUT), end=end, long=long)
        await Sink(_STDOUT).write(data)
        return 0

    return _with_files(WorldChoice(world_name, config, quiet), work)


@command.command("cat", epilog="Example: execworld fs cat -w local /etc/hostname")
@world_options
@click.argument("paths", nargs=-1, required=True)
def cat_command(world_name: str | None, config: dict[str, str], quiet: bool, paths: tuple[str, ...]) -> int:
    """Write the content of files to standard output, byte for byte."""

    async def work(fs: FileSystem) -> int:
        code = 0
        for path in paths:
            try:
                await read_to_stdout(fs, os.fsencode(path))
            except FileError as error:
                code = report(error)
        return code

    return _with_files(WorldChoice(world_name, config, quiet), work)


@command.command("put", epilog=PUT_EPILOG)
@world_options
@click.option("-r", "--recursive", is_flag=True, help="Copy directories with their content.")
@click.argument("sources", nargs=-1, required=True)
@click.argument("target")
def put_command(
    world_name: str | None,
    config: dict[str, str],
    quiet: bool,
    recursive: bool,
    sources: tuple[str, ...],
    target: str,
) -> int:
    """Copy files of this host into a world.

    A file appears whole or not at all. Modes are kept, links are copied as links. What could not be copied is listed,
    and the exit code is then 1.
    """

    piped = STANDARD_STREAM in sources
    if piped and (recursive or len(sources) > 1):
        raise click.UsageError("`-` is one file, and goes alone")

    async def work(fs: FileSystem) -> int:
        if piped:
            await write_from_stdin(fs, os.fsencode(target))
            return 0
        async with open_host_files() as here:
            return await _transfer(here, fs, sources, target, recursive=recursive, quiet=quiet)

    return _with_files(WorldChoice(world_name, config, quiet), work)


@command.command("get", epilog=GET_EPILOG)
@world_options
@click.option("-r", "--recursive", is_flag=True, help="Copy directories with their content.")
@click.argument("source")
@click.argument("target", default=".")
def get_command(
    world_name: str | None, config: dict[str, str], quiet: bool, recursive: bool, source: str, target: str
) -> int:
    """Copy a file or directory of a world to this host.

    A file appears whole or not at all. Modes are kept, links are copied as links. What could not be copied is listed,
    and the exit code is then 1.
    """

    piped = target == STANDARD_STREAM
    if piped and recursive:
        raise click.UsageError("`-` is one file, and no directory")

    async def work(fs: FileSystem) -> int:
        if piped:
            await read_to_stdout(fs, os.fsencode(source))
            return 0
        async with open_host_files() as here:
            return await _transfer(fs, here, (source,), target, recursive=recursive, quiet=quiet)

    return _with_files(WorldChoice(world_name, config, quiet), work)


@command.command("rm", epilog="Example: execworld fs rm -w local -r /tmp/scratch")
@world_options
@click.option("-r", "--recursive", is_flag=True, help="Remove directories with their content.")
@click.option("-f", "--force", is_flag=True, help="A file that does not exist is no error.")
@click.argument("paths", nargs=-1, required=True)
def remove_command(
    world_name: str | None,
    config: dict[str, str],
    quiet: bool,
    recursive: bool,
    force: bool,
    paths: tuple[str, ...],
) -> int:
    """Remove files, links (never what they lead to) and directories."""

    async def work(fs: FileSystem) -> int:
        code = 0
        for path in paths:
            try:
                if recursive and posixpath.normpath(path) in ("/", "//"):
                    raise InvalidPath("the root directory is not removed", path=path, op="fs.remove")
                if recursive and posixpath.basename(path.rstrip("/")) in (".", ".."):
                    message = f"{printable_path(path)} is not removed, because it is where somebody stands"
                    raise InvalidPath(message, path=path, op="fs.remove", hint="name the directory")
                await fs.remove(os.fsencode(path), recursive=recursive, missing_ok=force)
            except FileError as error:
                code = report(error)
        return code

    return _with_files(WorldChoice(world_name, config, quiet), work)


def _with_files(choice: WorldChoice, work: Callable[[FileSystem], Awaitable[int]]) -> int:
    if choice.policy.explain:
        return explain_world(choice)

    async def opened() -> int:
        async with choice.open() as world:
            return await work(world.fs)

    return run_supervised(opened)


async def _entries(fs: FileSystem, path: bytes) -> list[DirectoryEntry]:
    try:
        return await fs.list_directory(path)
    except NotDirectory:
        pass
    target = await fs.resolve(path)
    siblings = await fs.list_directory(posixpath.dirname(target.display_path))
    name = posixpath.basename(target.display_path)
    found = [entry for entry in siblings if entry.name == name]
    if not found:
        raise FileMissing(
            f"no such file: {printable_path(path)}", path=decode_path(path), op="fs.list_directory"
        )
    return found


async def _transfer(
    source: FileSystem,
    target: FileSystem,
    paths: tuple[str, ...],
    place: str,
    *,
    recursive: bool,
    quiet: bool,
) -> int:
    code = 0
    with show_progress(quiet=quiet) as progress:
        transfer = Transfer(source, target, progress)
        for path in paths:
            try:
                await transfer.copy(
                    os.fsencode(path), os.fsencode(place), recursive=recursive, into=len(paths) > 1
                )
            except FileError as error:
                code = report(error)
    for change in transfer.notes:
        note(f"{printable_path(change.path)}: {change.reason}")
    for loss in transfer.losses:
        say(f"execworld: not copied: {printable_path(loss.path)}: {loss.reason}")
    return exits.FAILURE if transfer.losses else code
