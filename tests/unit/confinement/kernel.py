"""A small model of what the kernel makes of a plan: mounts that lie over each other, and Landlock's walk upwards.

It says of a path whether it can be read and written after all steps, so that plans are judged by their effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from execworld.machine.cell import (
    AttachTree,
    CellPlan,
    CellStep,
    CloneTree,
    MountAttribute,
    NewFileSystem,
    Pin,
    PrivateMounts,
    Restrict,
    Ruleset,
    SetMountAttributes,
    Unshare,
)

WRITE_FILE, READ_FILE, MAKE_REG, REFER = 1 << 1, 1 << 2, 1 << 8, 1 << 13


class Refused(Exception):
    """The kernel would refuse the step."""


@dataclass
class Mount:
    """*root* is the path within *fs* that shows at *at* of the parent."""

    fs: str
    root: bytes
    parent: Mount | None = None
    at: bytes = b"/"
    attributes: MountAttribute = MountAttribute.NONE


@dataclass(frozen=True)
class Place:
    """A path in a mount, both fixed."""

    mount: Mount
    path: bytes

    @property
    def inode(self) -> tuple[str, bytes]:
        below = self.path[len(self.mount.at.rstrip(b"/")) :].lstrip(b"/")
        root = self.mount.root.rstrip(b"/")
        return self.mount.fs, root + b"/" + below if below else (root or b"/")


@dataclass
class Kernel:
    files: frozenset[bytes] = frozenset()
    mounts: list[Mount] = field(default_factory=lambda: [Mount("host", b"/")])
    pins: list[Place] = field(default_factory=list[Place])
    trees: list[Mount] = field(default_factory=list[Mount])
    rulesets: list[Ruleset] = field(default_factory=list[Ruleset])
    private: bool = False

    def apply(self, plan: CellPlan) -> Kernel:
        for step in plan.steps:
            self._apply(step)
        if plan.lock.ruleset is not None:
            self.rulesets.append(plan.lock.ruleset)
        return self

    def writable(self, path: bytes) -> bool:
        return not self.look(path).mount.attributes & MountAttribute.READ_ONLY and self._permits(
            path, WRITE_FILE
        )

    def creatable_below(self, path: bytes) -> bool:
        return not self.look(path).mount.attributes & MountAttribute.READ_ONLY and self._permits(
            path, MAKE_REG
        )

    def readable(self, path: bytes) -> bool:
        """The content that the world has there, not whatever covers it."""
        return self.look(path).inode == ("host", path) and self._permits(path, READ_FILE)

    def device_works(self, path: bytes) -> bool:
        found = self.look(path)
        return not found.mount.attributes & MountAttribute.NO_DEVICES and found.inode == ("host", path)

    def renames_between(self, one: bytes, other: bytes) -> bool:
        return all(self._permits(path, REFER, always_denied=True) for path in (one, other))

    def look(self, path: bytes) -> Place:
        current = self.mounts[0]
        for prefix in prefixes(path):
            while over := [m for m in self.mounts if m.parent is current and m.at == prefix]:
                current = over[-1]
        return Place(current, path)

    def _permits(self, path: bytes, right: int, *, always_denied: bool = False) -> bool:
        return all(
            (not ruleset.handled_fs & right and not always_denied) or self._granted(ruleset, path, right)
            for ruleset in self.rulesets
        )

    def _granted(self, ruleset: Ruleset, path: bytes, right: int) -> bool:
        granted = {
            self.pins[rule.pin].inode for rule in ruleset.paths if rule.access & right & ruleset.handled_fs
        }
        place: Place | None = self.look(path)
        while place is not None:
            if place.inode in granted:
                return True
            place = self._up(place)
        return False

    def _up(self, place: Place) -> Place | None:
        if place.path == place.mount.at:
            return None if place.mount.parent is None else self._up(Place(place.mount.parent, place.path))
        return Place(place.mount, place.path.rpartition(b"/")[0] or b"/")

    def _apply(self, step: CellStep) -> None:
        match step:
            case Unshare() if self.rulesets:
                raise Refused("a restricted process mounts nothing")
            case PrivateMounts():
                self.private = True
            case Pin(path, directory):
                if directory and path in self.files:
                    raise Refused(f"{path!r} is no directory")
                self.pins.append(self.look(path))
            case CloneTree(pin):
                place = self.pins[pin]
                self.trees.append(Mount(place.inode[0], place.inode[1], attributes=place.mount.attributes))
            case SetMountAttributes(attributes):
                for mount in self.mounts:
                    mount.attributes |= attributes
            case AttachTree(tree, pin, attributes):
                self._mount(replace(self.trees[tree]), pin, attributes)
            case NewFileSystem(kind, pin, _, attributes):
                self._mount(Mount(f"new {kind.decode()} {len(self.mounts)}", b"/"), pin, attributes)
            case Restrict(ruleset):
                self.rulesets.append(ruleset)
            case _:
                pass

    def _mount(self, mount: Mount, pin: int, attributes: MountAttribute) -> None:
        if not self.private or self.rulesets:
            raise Refused("mounts would show elsewhere, or are not allowed any more")
        place = self.pins[pin]
        mount.parent, mount.at = place.mount, place.path
        mount.attributes |= attributes
        self.mounts.append(mount)


def prefixes(path: bytes) -> Iterator[bytes]:
    yield b"/"
    for end in range(1, len(path)):
        if path[end : end + 1] == b"/":
            yield path[:end]
    if path != b"/":
        yield path
