"""The paths that a policy speaks of, sorted by what is done with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from execworld.confinement.installation import NOT_HERE, Installation
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
class Kept:
    """What of the installation lies below roots that may be written.

    Attributes:
        paths: Outermost; to be read-only all the same.
        anchors: Directories between a root and one of them, outermost first. One that is renamed would take along what
            is below it and leave its name to others, which a mount at it prevents.
        exposed: What cannot be kept: a root lies in it, or it is found by a link that may be replaced.
    """

    paths: tuple[bytes, ...] = ()
    anchors: tuple[bytes, ...] = ()
    exposed: tuple[bytes, ...] = ()


def kept_of(installation: Installation, writable: Sequence[bytes]) -> Kept:
    paths: list[bytes] = []
    exposed: list[bytes] = []
    for installed in installation.installed:
        whole = installed.path
        cut = bool(installed.parts) and any(contains(whole, root) for root in writable)
        for path in installed.parts if cut else (whole,):
            if any(contains(path, root) for root in writable):
                exposed.append(path)
            elif any(contains(root, path) for root in writable):
                paths.append(path)
    kept = outermost(paths)
    links = [
        link
        for link in installation.links
        if any(contains(root, link) for root in writable) and not any(contains(path, link) for path in kept)
    ]
    return Kept(kept, _anchors(kept, writable), outermost((*exposed, *links)))


def _anchors(kept: Sequence[bytes], writable: Sequence[bytes]) -> tuple[bytes, ...]:
    found: set[bytes] = set()
    for path in kept:
        above = path.rpartition(b"/")[0]
        while any(contains(root, above) and above != root for root in writable):
            found.add(above)
            above = above.rpartition(b"/")[0]
    return tuple(sorted(found, key=lambda item: (item.count(b"/"), item)))


@record
class PolicyPaths:
    """Attributes:
    writable: Outermost writable roots: workspace, write roots, temp, cache.
    readable: What may be read besides, without what programs need to start; None for everything.
    hidden: Outermost hidden paths.
    given: All that must be there, each to be pinned.
    own_temp: TMPDIR of a view that may write nothing else; None where it is one of the writable roots.
    installation: What the host runs and programs could rewrite, but for the covers.
    """

    writable: tuple[bytes, ...]
    readable: tuple[bytes, ...] | None
    hidden: tuple[bytes, ...]
    given: tuple[bytes, ...]
    kinds: PathKinds
    own_temp: bytes | None = None
    installation: Kept = Kept()

    @property
    def kept(self) -> tuple[bytes, ...]:
        """What of the installation is there to be kept as it is, outermost."""
        return self.present(self.installation.paths)

    def kind(self, path: bytes) -> PathKind:
        """What is there as far as known; a path of the policy is a directory until known better."""
        found = self.kinds.get(path)
        if found is not None:
            return found
        known = path in self.given or path in self.installation.paths or path in self.installation.anchors
        return PathKind.DIRECTORY if known else _USUAL.get(path, PathKind.MISSING)

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


def policy_paths(
    policy: SandboxPolicy,
    directories: CellDirectories,
    kinds: PathKinds,
    installation: Installation = NOT_HERE,
) -> PolicyPaths:
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
    roots = outermost(writable)
    return PolicyPaths(
        writable=roots,
        readable=None if readable is None else outermost(readable),
        hidden=outermost(hidden),
        given=tuple(dict.fromkeys((*writable, *workspace, *read_roots, *hidden))),
        kinds=kinds,
        own_temp=directories.temp if policy.mode is SandboxMode.READ_ONLY else None,
        installation=kept_of(installation, writable),
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


def surveyed(
    policy: SandboxPolicy, directories: CellDirectories, installation: Installation
) -> tuple[bytes, ...]:
    """Every path whose kind decides about the plan."""
    paths = policy_paths(policy, directories, {}, installation)
    return tuple(
        dict.fromkeys(
            (
                *paths.given,
                *paths.installation.paths,
                *paths.installation.anchors,
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
