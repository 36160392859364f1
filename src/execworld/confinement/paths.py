"""The paths that a policy speaks of, sorted by what is done with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from execworld.confinement.place import CellDirectories, PathKind, PathKinds
from execworld.seams.errors import ConfigurationError
from execworld.seams.policy import SandboxMode, SandboxPolicy
from execworld.seams.values import record

PLAIN_DEVICES: Final = (b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/random", b"/dev/urandom")
TERMINAL: Final = b"/dev/tty"
TERMINALS: Final = b"/dev/pts"
TERMINAL_MASTER: Final = b"/dev/ptmx"
SHARED_MEMORY: Final = b"/dev/shm"
PROCESSES: Final = b"/proc"
ROOT: Final = b"/"
REPLACED: Final = frozenset({TERMINALS, TERMINAL_MASTER, SHARED_MEMORY, PROCESSES, *PLAIN_DEVICES, TERMINAL})
"""Where a private file system or another mount may come to lie."""

SYSTEM_ROOTS: Final = (
    b"/usr",
    b"/bin",
    b"/sbin",
    b"/lib",
    b"/lib32",
    b"/lib64",
    b"/libx32",
    b"/etc",
    b"/opt",
    PROCESSES,
)
"""What programs need to start; readable whatever the read roots are."""

SOCKET_PLACES: Final = (
    b"/run",
    b"/var/run",
    b"/tmp/.X11-unix",
    b"/var/lib/lxd/unix.socket",
    b"/var/lib/incus/unix.socket",
    b"/var/snap/lxd/common/lxd/unix.socket",
)
"""Where daemons, container engines among them, listen."""

_USUAL: Final[PathKinds] = {
    **dict.fromkeys((b"/usr", b"/etc", PROCESSES, TERMINALS, SHARED_MEMORY, b"/run"), PathKind.DIRECTORY),
    **dict.fromkeys((*PLAIN_DEVICES, TERMINAL, TERMINAL_MASTER), PathKind.OTHER),
}


def contains(parent: bytes, path: bytes) -> bool:
    """Whether *path* is *parent* or lies below it. Both are resolved."""
    return path == parent or path.startswith(parent.rstrip(b"/") + b"/")


def outermost(paths: Iterable[bytes]) -> tuple[bytes, ...]:
    """Those that lie below none of the others."""
    kept: list[bytes] = []
    for path in sorted(set(paths), key=lambda item: (item.count(b"/"), item)):
        if not any(contains(other, path) for other in kept):
            kept.append(path)
    return tuple(kept)


@record
class PolicyPaths:
    """Attributes:
    writable: Outermost writable roots: workspace, write roots, temp, cache.
    readable: What may be read besides, without what programs need to start; None for everything.
    hidden: Outermost hidden paths.
    given: All that must be there, each to be pinned.
    """

    writable: tuple[bytes, ...]
    readable: tuple[bytes, ...] | None
    hidden: tuple[bytes, ...]
    given: tuple[bytes, ...]
    kinds: PathKinds

    def kind(self, path: bytes) -> PathKind:
        """What is there as far as known; a path of the policy is a directory until known better."""
        found = self.kinds.get(path)
        if found is not None:
            return found
        return PathKind.DIRECTORY if path in self.given else _USUAL.get(path, PathKind.MISSING)

    def is_directory(self, path: bytes) -> bool:
        return self.kind(path) is PathKind.DIRECTORY

    def present(self, paths: Iterable[bytes]) -> tuple[bytes, ...]:
        """Those that can be pinned as they stand."""
        return tuple(path for path in paths if self.kind(path) in (PathKind.DIRECTORY, PathKind.OTHER))

    @property
    def process_tables(self) -> tuple[bytes, ...]:
        """Mounts of procfs: that at /proc, and those elsewhere that were found."""
        return (
            PROCESSES,
            *(path for path, kind in self.kinds.items() if kind is PathKind.PROCESS_TABLE),
        )

    @property
    def hidden_outside_of_readable(self) -> bool:
        """Whether not granting them is enough to hide the hidden paths."""
        if self.readable is None:
            return not self.hidden
        granted = (*self.readable, *self.writable, *self.present(SYSTEM_ROOTS))
        return not any(
            contains(root, path) or contains(path, root) for path in self.hidden for root in granted
        )

    def in_use_below(self, path: bytes) -> bool:
        """Whether a new file system at *path* would hide something that the policy grants."""
        return any(contains(path, other) for other in (*self.writable, *(self.readable or ())))


def policy_paths(policy: SandboxPolicy, directories: CellDirectories, kinds: PathKinds) -> PolicyPaths:
    """Raises:
    ConfigurationError: what is hidden and what is granted contradict each other.
    """
    workspace = [_bytes(policy.workspace)] if policy.workspace else []
    read_roots = [_bytes(path) for path in policy.read_roots]
    hidden = [_bytes(path) for path in policy.hidden]
    writable: list[bytes] = []
    if policy.mode is SandboxMode.WORKSPACE_WRITE:
        writable = [
            *workspace,
            *(_bytes(path) for path in policy.write_roots),
            directories.temp,
            directories.cache,
        ]
    readable = (*workspace, *read_roots) if read_roots else None
    _refuse_contradictions(writable, readable or workspace, hidden)
    return PolicyPaths(
        writable=outermost(writable),
        readable=None if readable is None else outermost(readable),
        hidden=outermost(hidden),
        given=tuple(dict.fromkeys((*writable, *workspace, *read_roots, *hidden))),
        kinds=kinds,
    )


def _refuse_contradictions(
    writable: Sequence[bytes], readable: Sequence[bytes], hidden: Sequence[bytes]
) -> None:
    if ROOT in writable:
        raise ConfigurationError(
            "policy workspace-write cannot have `/` as a root that may be written",
            hint="name a directory, or choose full-access",
        )
    for path in hidden:
        for root in (*writable, *readable):
            if contains(path, root):
                raise ConfigurationError(
                    f"hidden path {_text(path)} contains {_text(root)}, which the policy grants",
                    hint="hide what lies beside it, or grant with read_roots only what is needed",
                )


def surveyed(policy: SandboxPolicy, directories: CellDirectories) -> tuple[bytes, ...]:
    """Every path whose kind decides about the plan."""
    paths = policy_paths(policy, directories, {})
    return tuple(
        dict.fromkeys(
            (
                *paths.given,
                *SYSTEM_ROOTS,
                *SOCKET_PLACES,
                *PLAIN_DEVICES,
                TERMINAL,
                TERMINALS,
                TERMINAL_MASTER,
                SHARED_MEMORY,
            )
        )
    )


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _text(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
