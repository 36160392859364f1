"""Wrong files: what `FileSystem` does."""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from execworld.seams import (
    DirectoryEntry,
    EditOutcome,
    FileInfo,
    FileKind,
    FileTarget,
    FileVersion,
    NotObserved,
    NotText,
    World,
    WriteOutcome,
)
from execworld.testing.mutants.mutant import Delegate, DelegateWorld, Mutant, with_fs


class _IgnoresVersions(Delegate):
    async def write_bytes(
        self, path: Any, data: bytes, *, expected: Any = None, **options: Any
    ) -> WriteOutcome:
        return await self._write("write_bytes", path, data, expected, options)

    async def write_text(self, path: Any, text: str, *, expected: Any = None, **options: Any) -> WriteOutcome:
        return await self._write("write_text", path, text, expected, options)

    async def write_stream(
        self, path: Any, chunks: Any, *, expected: Any = None, **options: Any
    ) -> WriteOutcome:
        return await self._write("write_stream", path, chunks, expected, options)

    async def _write(self, name: str, path: Any, content: Any, expected: Any, options: Any) -> WriteOutcome:
        demand = None if isinstance(expected, FileVersion) else expected
        outcome: WriteOutcome = await getattr(self.inner, name)(path, content, expected=demand, **options)
        return outcome


class _JudgesAbsenceEarly(Delegate):
    async def write_stream(
        self, path: Any, chunks: Any, *, expected: Any = None, **options: Any
    ) -> WriteOutcome:
        if expected == "absent":
            if await self.inner.lstat(path) is not None:
                raise NotObserved("it exists", path=str(path))
            expected = None
        outcome: WriteOutcome = await self.inner.write_stream(path, chunks, expected=expected, **options)
        return outcome


class _FollowsDanglingLinks(Delegate):
    async def write_text(self, path: Any, text: str, *, expected: Any = None, **options: Any) -> WriteOutcome:
        info: FileInfo | None = await self.inner.lstat(path)
        if expected == "absent" and info is not None and info.kind is FileKind.SYMLINK:
            expected = None
        outcome: WriteOutcome = await self.inner.write_text(path, text, expected=expected, **options)
        return outcome


class _ListsByLocale(Delegate):
    async def list_directory(self, path: Any) -> list[DirectoryEntry]:
        entries: list[DirectoryEntry] = await self.inner.list_directory(path)
        return sorted(entries, key=lambda entry: entry.name.casefold())


class _HidesHiddenNames(Delegate):
    async def list_directory(self, path: Any) -> list[DirectoryEntry]:
        return [entry for entry in await self.inner.list_directory(path) if not entry.name.startswith(".")]


class _UnifiesLineEnds(Delegate):
    async def edit_text(self, path: Any, old: str, new: str, **options: Any) -> EditOutcome:
        outcome: EditOutcome = await self.inner.edit_text(path, old, new, **options)
        written: WriteOutcome = await self.inner.write_text(
            path,
            (await self.inner.read_text(path, encoding="latin-1")).replace("\r\n", "\n"),
            encoding="latin-1",
        )
        return replace(outcome, version=written.version)


class _DropsTheMark(Delegate):
    async def read_text(self, path: Any, **options: Any) -> str:
        text: str = await self.inner.read_text(path, **options)
        return text.removeprefix("\ufeff")

    async def edit_text(self, path: Any, old: str, new: str, **options: Any) -> EditOutcome:
        outcome: EditOutcome = await self.inner.edit_text(path, old, new, **options)
        data: bytes = await self.inner.read_bytes(path)
        if data.startswith(codecs.BOM_UTF8):
            written: WriteOutcome = await self.inner.write_bytes(path, data.removeprefix(codecs.BOM_UTF8))
            return replace(outcome, version=written.version)
        return outcome


class _RefusesLateNuls(Delegate):
    async def read_text(self, path: Any, **options: Any) -> str:
        text: str = await self.inner.read_text(path, **options)
        if "\0" in text:
            raise NotText("a NUL", path=str(path))
        return text


class _DecodesByChunk(Delegate):
    @asynccontextmanager
    async def open_text_reader(self, path: Any, *, encoding: str = "utf-8") -> AsyncGenerator[Any]:
        async with self.inner.open_text_reader(path, encoding=encoding) as chunks:

            async def decoded() -> AsyncGenerator[str]:
                async for chunk in chunks:
                    data = chunk.encode(encoding)
                    for start in range(0, len(data), 4096):
                        yield data[start : start + 4096].decode(encoding, "replace")

            yield decoded()


class _TruncatesSilently(Delegate):
    async def read_bytes(self, path: Any, *, max_bytes: int = 1 << 26) -> bytes:
        data: bytes = await self.inner.read_bytes(path)
        return data[:max_bytes]


class _FollowsTheLastLink(Delegate):
    async def lstat(self, path: Any) -> FileInfo | None:
        info: FileInfo | None = await self.inner.stat(path)
        return info


class _ContainsByPrefix(Delegate):
    def contains(self, parent: FileTarget, child: FileTarget) -> bool:
        self.inner.contains(parent, child)  # other worlds are refused as they should
        return child.process_path.startswith(parent.process_path)


class _TakesAnyTarget(Delegate):
    async def read_text(self, path: Any, **options: Any) -> str:
        if isinstance(path, FileTarget):
            path = path.process_path
        text: str = await self.inner.read_text(path, **options)
        return text


class _BreaksHardLinks(Delegate):
    async def write_text(self, path: Any, text: str, **options: Any) -> WriteOutcome:
        outcome: WriteOutcome = await self.inner.write_text(
            path, text, **options | {"break_hard_links": True}
        )
        return outcome


class _RemovesThroughLinks(Delegate):
    async def remove(self, path: Any, *, recursive: bool = False, **options: Any) -> None:
        if recursive:
            info: FileInfo | None = await self.inner.lstat(path)
            if info is not None and info.kind is FileKind.SYMLINK:
                await self.inner.remove((await self.inner.resolve(path)).process_path, recursive=True)
        await self.inner.remove(path, recursive=recursive, **options)


class _RenamesOverOthers(Delegate):
    async def rename(self, source: Any, target: Any, *, replace: bool = False) -> None:
        await self.inner.rename(source, target, replace=True)


class _WritesInPlace(Delegate):
    """Truncates and rewrites an existing file through a command, as a shell redirection does."""

    def __init__(self, world: World) -> None:
        super().__init__(world.fs)
        self._subprocess = world.subprocess

    async def write_bytes(self, path: Any, data: bytes, **options: Any) -> WriteOutcome:
        info: FileInfo | None = await self.inner.stat(path)
        if options or info is None or info.kind is not FileKind.FILE:
            outcome: WriteOutcome = await self.inner.write_bytes(path, data, **options)
            return outcome
        target: FileTarget = await self.inner.resolve(path)
        await self._subprocess.run(
            ["sh", "-c", 'cat >"$1"', "sh", target.process_path.encode("utf-8", "surrogateescape")],
            stdin=data,
        )
        info = await self.inner.stat(path)
        assert info is not None
        return WriteOutcome(created=False, version=info.version, path=target.process_path)


class _LeavesATrace(Delegate):
    async def write_bytes(self, path: Any, data: bytes, **options: Any) -> WriteOutcome:
        outcome: WriteOutcome = await self.inner.write_bytes(path, data, **options)
        await self.inner.write_bytes(outcome.path + ".bak", data)
        return outcome


class _GuessesVersions(Delegate):
    async def write_text(self, path: Any, text: str, **options: Any) -> WriteOutcome:
        outcome: WriteOutcome = await self.inner.write_text(path, text, **options)
        return replace(outcome, version=replace(outcome.version, changed_ns=outcome.version.modified_ns - 1))


class _CopiesWithoutMode(Delegate):
    async def copy(self, source: Any, target: Any, **options: Any) -> None:
        await self.inner.copy(source, target, **options)
        info: FileInfo | None = await self.inner.stat(target)
        if info is not None and info.kind is FileKind.FILE:
            await self.inner.set_mode(target, 0o644)


FILE_MUTANTS = (
    Mutant(
        "mutant ignores-versions",
        "replaces whatever version is there",
        ("F-31", "F-42", "F-43", "F-64", "F-100", "F-101"),
        world=with_fs(_IgnoresVersions),
    ),
    Mutant(
        "mutant judges-absence-early",
        "looks before it writes, and not when it publishes",
        ("F-29[file]", "F-29[dangling-link]"),
        world=with_fs(_JudgesAbsenceEarly),
    ),
    Mutant(
        "mutant follows-dangling-links",
        "creates what a dangling link leads to",
        ("F-45",),
        world=with_fs(_FollowsDanglingLinks),
    ),
    Mutant(
        "mutant lists-by-locale", "orders names without their case", ("F-22",), world=with_fs(_ListsByLocale)
    ),
    Mutant("mutant hides-hidden-names", "leaves dot files out", ("F-22",), world=with_fs(_HidesHiddenNames)),
    Mutant(
        "mutant unifies-line-ends",
        "rewrites every line end of an edited file",
        ("F-49", "F-52", "F-110", "F-112"),
        world=with_fs(_UnifiesLineEnds),
    ),
    Mutant(
        "mutant drops-the-mark",
        "loses a byte order mark",
        ("F-15", "F-110"),
        world=with_fs(_DropsTheMark),
    ),
    Mutant("mutant refuses-late-nuls", "calls text binary", ("F-16",), world=with_fs(_RefusesLateNuls)),
    Mutant(
        "mutant decodes-by-chunk", "tears characters at chunk ends", ("F-18",), world=with_fs(_DecodesByChunk)
    ),
    Mutant(
        "mutant truncates-silently",
        "gives the first part of what is too large",
        ("F-20", "F-72"),
        world=with_fs(_TruncatesSilently),
    ),
    Mutant(
        "mutant follows-the-last-link",
        "gives the metadata of a link's target for the link",
        ("F-11", "F-37", "F-45"),
        world=with_fs(_FollowsTheLastLink),
    ),
    Mutant("mutant contains-by-prefix", "compares paths as text", ("W-6",), world=with_fs(_ContainsByPrefix)),
    Mutant(
        "mutant takes-any-target", "uses targets of other worlds", ("W-7",), world=with_fs(_TakesAnyTarget)
    ),
    Mutant(
        "mutant breaks-hard-links", "separates names silently", ("F-91",), world=with_fs(_BreaksHardLinks)
    ),
    Mutant(
        "mutant removes-through-links",
        "removes what a link leads to",
        ("F-122",),
        world=with_fs(_RemovesThroughLinks),
    ),
    Mutant(
        "mutant renames-over-others",
        "replaces the target of a rename silently",
        ("F-124", "F-125"),
        world=with_fs(_RenamesOverOthers),
    ),
    Mutant(
        "mutant writes-in-place",
        "truncates a file and fills it again",
        ("F-21", "F-34"),
        world=lambda world: DelegateWorld.of(world, fs=_WritesInPlace(world)),
    ),
    Mutant("mutant leaves-a-trace", "leaves a second file", ("F-95", "F-9"), world=with_fs(_LeavesATrace)),
    Mutant(
        "mutant guesses-versions",
        "returns a version that is not that of the file",
        ("F-40", "F-43", "F-64", "F-102", "F-103"),
        world=with_fs(_GuessesVersions),
    ),
    Mutant("mutant copies-without-mode", "loses the mode", ("F-127",), world=with_fs(_CopiesWithoutMode)),
)
