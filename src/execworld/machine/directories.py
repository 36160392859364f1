"""Private directories of a world: temporary files and caches of its views, and targets of probes."""

from __future__ import annotations

import errno
from typing import Final

import anyio

from execworld.machine.base import Machine
from execworld.machine.batch import Batch, BatchFailed
from execworld.machine.confining import PrivateDirectories
from execworld.machine.denials import is_inside
from execworld.machine.operations import RealPath
from execworld.machine.owned import OwnedDirectory, Use, disown, make_owned, remove_tree
from execworld.seams.errors import ExecworldError, SandboxReason, SandboxUnavailable
from execworld.seams.paths import decode_path

_PARTS: Final = (b"temp", b"cache", b"scratch")


class WorldDirectories:
    """Made by the first cell that needs them, removed with the world.

    They lie below the first temporary directory of the world. Where a policy lets write there, its scratch directory
    has to lie below another one.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._made: dict[bytes, OwnedDirectory] = {}
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
        left: list[str] = []
        for made in self._made.values():
            try:
                await remove_tree(self._machine, made.path)
                await disown(self._machine, made)
            except (ExecworldError, OSError):
                left.append(decode_path(made.path))
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
        return made.path

    async def _make_below(self, root: bytes) -> OwnedDirectory:
        batch = Batch()
        real = batch.add(RealPath(root))
        canonical = (await self._machine.run(batch))[real]
        return await make_owned(self._machine, canonical, Use.WORLD, _PARTS)


def _unusable(message: str) -> SandboxUnavailable:
    return SandboxUnavailable(message, reason=SandboxReason.ROOT_UNUSABLE, op="sandbox.confine")
