"""The batch of one write under construction: which steps publish a file, and what each of them is for."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from enum import Enum

from execworld.machine.batch import (
    Batch,
    Step,
)
from execworld.machine.fs.information import version_demand
from execworld.machine.fs.publication import (
    AFTER_PUBLICATION,
    CANNOT_OWN,
    CANNOT_SYNC,
)
from execworld.machine.operations import (
    Check,
    Close,
    Link,
    Rename,
    SetMode,
    SetOwner,
    Stat,
    StatHandle,
    Sync,
    Unlink,
)
from execworld.machine.values import (
    FileStat,
    Handle,
    KindMask,
    RawPath,
    RenameMode,
)
from execworld.seams.files import Expectation, FileVersion
from execworld.seams.values import record


@record
class Demand:
    """What a write asks for beside its content."""

    expected: Expectation = None
    mode: int | None = None
    parents: bool = True
    break_hard_links: bool = False


class Role(Enum):
    PARENT = "parent"
    TARGET = "target"
    STAGING = "staging"
    PUBLICATION = "publication"
    DISPLACED = "displaced"
    OTHER = "other"


@dataclass(slots=True)
class Ways:
    """How the file system at hand lets a file be published; learnt from its refusals."""

    exchange: bool = True
    no_replace: bool = True
    sync_parent: bool = True


@dataclass(slots=True)
class WritePlan:
    """A batch under construction, and what its steps are for."""

    demand: Demand
    ways: Ways
    temporary_name: bytes
    batch: Batch = field(default_factory=Batch)
    roles: dict[int, Role] = field(default_factory=dict[int, Role])
    real: Step[bytes] | None = None
    made: list[tuple[bytes, int]] = field(default_factory=list[tuple[bytes, int]])
    parent: Step[int] | None = None
    temporary: Step[int] | None = None
    before: Step[FileStat] | None = None
    staged: Step[FileStat] | None = None
    published: Step[FileStat] | None = None
    removal: Step[None] | None = None
    old: tuple[Step[int], Step[FileStat], Step[bytes], Step[FileStat]] | None = None

    def look(self, parent: Handle, name: RawPath) -> None:
        """Look at the target, and stop where it is not what the write demands."""
        self.before = before = self.batch.add(Stat(name, follow=False, base=parent), tolerate=(errno.ENOENT,))
        expected = self.demand.expected
        version = None
        if expected == "absent":
            kinds = KindMask.ABSENT
        elif isinstance(expected, FileVersion):
            kinds, version = KindMask.FILE, version_demand(expected)
        else:
            kinds = KindMask.FILE | KindMask.ABSENT
        check = self.batch.add(Check(before.index, kinds, version, 0 if self.demand.break_hard_links else 1))
        self.roles[check.index] = Role.TARGET

    def publish(self, parent: Handle, temporary: Handle, name: RawPath) -> None:
        """Make the temporary file what the target is to be, and give it the name."""
        add, before = self.batch.add, self.before
        assert before is not None
        add(SetOwner(temporary, owner_of=before.index), tolerate=CANNOT_OWN)
        if self.demand.mode is None:
            add(SetMode(temporary, 0o666, mode_of=before.index, apply_umask=True))
        else:
            add(SetMode(temporary, self.demand.mode))
        add(Sync(temporary), tolerate=CANNOT_SYNC)
        self.staged = add(StatHandle(temporary))
        expected = self.demand.expected
        if expected == "absent":
            self._publish_absent(parent, name)
        elif isinstance(expected, FileVersion):
            self._publish_version(parent, name, expected)
        else:
            step = add(Rename(self.temporary_name, name, source_base=parent, target_base=parent))
            self.roles[step.index] = Role.PUBLICATION
        self.published = add(StatHandle(temporary), tolerate=AFTER_PUBLICATION)
        if self.ways.sync_parent:
            add(Sync(parent), tolerate=AFTER_PUBLICATION)
        add(Close(temporary), tolerate=AFTER_PUBLICATION)
        add(Close(parent), tolerate=AFTER_PUBLICATION)

    def _publish_absent(self, parent: Handle, name: RawPath) -> None:
        temporary = self.temporary_name
        if self.ways.no_replace:
            step = self.batch.add(Rename(temporary, name, RenameMode.NO_REPLACE, parent, parent))
        else:
            step = self.batch.add(Link(temporary, name, parent, parent))
            self.removal = self.batch.add(Unlink(temporary, parent), tolerate=AFTER_PUBLICATION)
        self.roles[step.index] = Role.PUBLICATION

    def _publish_version(self, parent: Handle, name: RawPath, expected: FileVersion) -> None:
        add, temporary = self.batch.add, self.temporary_name
        links = 0 if self.demand.break_hard_links else 1
        if not self.ways.exchange:
            last = add(Stat(name, follow=False, base=parent))
            self.roles[last.index] = Role.DISPLACED
            check = add(Check(last.index, KindMask.FILE, version_demand(expected), links))
            self.roles[check.index] = Role.DISPLACED
            step = add(Rename(temporary, name, source_base=parent, target_base=parent))
            self.roles[step.index] = Role.PUBLICATION
            return
        exchange = Rename(temporary, name, RenameMode.EXCHANGE, parent, parent)
        step = add(exchange, undo=exchange)
        self.roles[step.index] = Role.PUBLICATION
        displaced = add(Stat(temporary, follow=False, base=parent))
        check = add(Check(displaced.index, KindMask.FILE, version_demand(expected, renamed=True), links))
        self.roles[check.index] = Role.DISPLACED
        self.removal = add(Unlink(temporary, parent), tolerate=AFTER_PUBLICATION)
