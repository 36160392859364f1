"""Private directories of a world: temporary files and caches of its views, and targets of probes."""

from __future__ import annotations

import errno
import secrets
from typing import Final

import anyio

from execworld.machine.base import Machine
from execworld.machine.batch import Batch, BatchFailed, Results, StepError
from execworld.machine.confining import PrivateDirectories
from execworld.machine.denials import is_inside
from execworld.machine.operations import MakeDirectory, RealPath, RemoveDirectory
from execworld.seams.errors import ExecworldError, SandboxReason, SandboxUnavailable
from execworld.seams.files import FileKind, WalkError
from execworld.seams.filesystem import FileSystem
from execworld.seams.paths import decode_path

_NAME_ATTEMPTS: Final = 8
_REMOVAL_ATTEMPTS: Final = 32
_PARTS: Final = (b"temp", b"cache", b"scratch")


class WorldDirectories:
    """Made by the first cell that needs them, removed with the world.

    They lie below the first temporary directory of the world. Where a policy lets write there, its scratch directory
    has to lie below another one.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._made: dict[bytes, bytes] = {}
        self._making = anyio.Lock()

    async def make(self, writable: tuple[bytes, ...]) -> PrivateDirectories:
        """The directories for a cell that may write to *writable*, in canonical form.

        Raises:
            SandboxUnavailable: they cannot be made.
        """
        roots = self._machine.facts.temp_roots
        if not roots:
            raise _unusable("the world has no directory for temporary files that it may write to")
        async with self._making:
            first = await self._below(roots[0])
            for root in roots:
                base = await self._below(root)
                if not any(is_inside(place, base) for place in writable):
                    return PrivateDirectories(first + b"/temp", first + b"/cache", base + b"/scratch")
        raise _unusable("the policy lets write everywhere, so that nothing can be proven to be denied")

    async def aclose(self) -> list[str]:
        """Remove everything. Returns what could not be removed."""
        if not self._made:
            return []
        from execworld.machine.fs import MachineFileSystem  # much code, which only the end of a cell needs

        left: list[str] = []
        fs = MachineFileSystem(self._machine, world_id="", view_id="", cwd="/", check=lambda op: None)
        for base in self._made.values():
            try:
                await _remove(fs, decode_path(base))
            except (ExecworldError, OSError):
                left.append(decode_path(base))
        self._made.clear()
        return left

    async def _below(self, root: bytes) -> bytes:
        made = self._made.get(root)
        if made is None:
            try:
                made = self._made[root] = await self._make_below(root)
            except BatchFailed as failure:
                reason = errno.errorcode.get(failure.error.status, str(failure.error.status))
                raise _unusable(f"no directory can be made in {decode_path(root)}: {reason}") from failure
        return made

    async def _make_below(self, root: bytes) -> bytes:
        for _ in range(_NAME_ATTEMPTS):
            batch = Batch()
            real = batch.add(RealPath(root))
            canonical = (await self._machine.run(batch))[real]
            base = canonical.rstrip(b"/") + b"/execworld-" + secrets.token_hex(8).encode()
            results = await self._make_all(base)
            if not isinstance(results.values[0], StepError):
                return base
        raise _unusable(f"no free name in {decode_path(root)}")

    async def _make_all(self, base: bytes) -> Results:
        batch = Batch()
        batch.add(MakeDirectory(base, 0o700), undo=RemoveDirectory(base), tolerate=[errno.EEXIST])
        for part in _PARTS:
            path = base + b"/" + part
            batch.add(MakeDirectory(path, 0o700), undo=RemoveDirectory(path), tolerate=[errno.EEXIST])
        return await self._machine.run(batch)


async def _remove(fs: FileSystem, path: str) -> None:
    try:
        await fs.remove(path, recursive=True, missing_ok=True)
        return
    except PermissionError:
        pass
    # Tools write-protect directories in their caches; the owner may undo that, one level at a time.
    await fs.set_mode(path, 0o700)
    for _ in range(_REMOVAL_ATTEMPTS):
        shut: list[str] = []
        async for entry in fs.walk(path):
            if isinstance(entry, WalkError) or entry.kind is FileKind.DIRECTORY:
                shut.append(entry.path)
        for directory in shut:
            await fs.set_mode(directory, 0o700)
        try:
            await fs.remove(path, recursive=True, missing_ok=True)
            return
        except PermissionError:
            continue
    await fs.remove(path, recursive=True, missing_ok=True)


def _unusable(message: str) -> SandboxUnavailable:
    return SandboxUnavailable(message, reason=SandboxReason.ROOT_UNUSABLE, op="sandbox.confine")
