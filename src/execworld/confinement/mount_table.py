"""The mounts of the world (proc(5), mountinfo), for what more than one path leads to."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol

from execworld.confinement.installation import Installation, Installed
from execworld.confinement.paths import PROCESSES, contains
from execworld.confinement.place import PathKind, PathKinds
from execworld.machine.batch import Batch, BatchFailed, Results
from execworld.machine.operations import Open, Read, Stat
from execworld.machine.values import FileStat
from execworld.seams.paths import decode_path, encode_path
from execworld.seams.policy import SandboxPolicy
from execworld.seams.values import record

_TABLE: Final = b"/proc/self/mountinfo"
_CHUNK_BYTES: Final = 256 * 1024
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")
_PROCESS_ROOT_INODE: Final = 1
_ANY_ERROR: Final = tuple(errno.errorcode)


class BatchRunner(Protocol):
    async def run(self, batch: Batch) -> Results: ...


@record
class Mount:
    """Attributes:
    device: Number of the file system, as stat(2) has it.
    root: What of the file system is mounted.
    point: Where.
    """

    device: int
    root: bytes
    point: bytes
    kind: bytes


def parse(table: bytes) -> tuple[Mount, ...]:
    mounts: list[Mount] = []
    for line in table.splitlines():
        before, separator, after = line.partition(b" - ")
        fields = before.split(b" ")
        if not separator or len(fields) < 6:
            continue
        major, _, minor = fields[2].partition(b":")
        mounts.append(
            Mount(
                _device(int(major), int(minor)),
                _unescaped(fields[3]),
                _unescaped(fields[4]),
                after.split(b" ", 1)[0],
            )
        )
    return tuple(mounts)


async def read_mounts(machine: BatchRunner) -> tuple[Mount, ...]:
    """Nothing where the world does not tell: it has no /proc, or is no Linux."""
    batch = Batch()
    handle = batch.add(Open(_TABLE))
    read = batch.add(Read(handle.handle, _CHUNK_BYTES, close_at_end=True))
    try:
        results = await machine.run(batch)
    except BatchFailed:
        return ()
    table = data = results[read]
    while len(data) == _CHUNK_BYTES:
        batch = Batch()
        read = batch.add(Read(results[handle], _CHUNK_BYTES, close_at_end=True))
        data = (await machine.run(batch))[read]
        table += data
    return parse(table)


async def hide_everywhere(
    machine: BatchRunner, policy: SandboxPolicy, mounts: Sequence[Mount]
) -> SandboxPolicy:
    """*policy*, which also hides the other paths at which the same file system shows what it hides."""
    same = await _elsewhere(machine, mounts, [encode_path(path) for path in policy.hidden])
    return replace(policy, hidden=(*policy.hidden, *map(decode_path, same))) if same else policy


async def installed_everywhere(
    machine: BatchRunner, installation: Installation, mounts: Sequence[Mount]
) -> Installation:
    """*installation*, and the other paths at which the same files can be changed."""
    paths = [path for installed in installation.installed for path in (installed.path, *installed.parts)]
    same = await _elsewhere(machine, mounts, paths)
    return replace(installation, installed=(*installation.installed, *map(Installed, same)))


async def _elsewhere(
    machine: BatchRunner, mounts: Sequence[Mount], paths: Sequence[bytes]
) -> tuple[bytes, ...]:
    candidates = {alias: original for path in paths for alias, original in aliases(mounts, path)}
    found = await _stat(machine, tuple(dict.fromkeys((*candidates, *candidates.values()))))
    return tuple(
        alias
        for alias, original in candidates.items()
        if (seen := found.get(alias)) is not None
        and (known := found.get(original)) is not None
        and (seen.device, seen.inode) == (known.device, known.inode)
    )


def aliases(mounts: Sequence[Mount], path: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Where else *path*, or something below it, may be found, each with its path there. A later mount may hide it."""
    found: dict[bytes, bytes] = {}
    for holder in mounts:
        if not contains(holder.point, path):
            continue
        inside = _joined(holder.root, _below(holder.point, path))
        for other in mounts:
            if other.device != holder.device or other is holder:
                continue
            if contains(other.root, inside):
                alias, original = _joined(other.point, _below(other.root, inside)), path
            elif contains(inside, other.root):
                alias, original = other.point, _joined(path, _below(inside, other.root))
            else:
                continue
            if not contains(path, alias):
                found[alias] = original
    return tuple(found.items())


async def process_tables(machine: BatchRunner, mounts: Sequence[Mount]) -> PathKinds:
    """Where /proc is mounted beside /proc: below the root of a chroot, say. All processes can be seen there, too."""
    wanted = {
        mount.point: mount.device
        for mount in mounts
        if mount.kind == b"proc" and mount.root == b"/" and not contains(PROCESSES, mount.point)
    }
    found = await _stat(machine, tuple(wanted))
    return {
        path: PathKind.PROCESS_TABLE
        for path, stat in found.items()
        if (stat.device, stat.inode) == (wanted[path], _PROCESS_ROOT_INODE)
    }


async def _stat(machine: BatchRunner, paths: Sequence[bytes]) -> dict[bytes, FileStat]:
    if not paths:
        return {}
    batch = Batch()
    steps = {path: batch.add(Stat(path, follow=False), tolerate=_ANY_ERROR) for path in paths}
    results = await machine.run(batch)
    return {path: stat for path, step in steps.items() if (stat := results.get(step)) is not None}


def _device(major: int, minor: int) -> int:
    """In the encoding of 64-bit Linux, whatever this host is."""
    return (minor & 0xFF) | (major & 0xFFF) << 8 | (minor & ~0xFF) << 12 | (major & ~0xFFF) << 32


def _unescaped(field: bytes) -> bytes:
    return _ESCAPED.sub(lambda match: bytes([int(match.group(1), 8)]), field)


def _below(parent: bytes, path: bytes) -> bytes:
    return path[len(parent.rstrip(b"/")) :].lstrip(b"/")


def _joined(parent: bytes, name: bytes) -> bytes:
    return parent.rstrip(b"/") + b"/" + name if name else parent
