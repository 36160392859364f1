"""Places to make cells in, and plans for them: those that the tests need, not those that anybody should use."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from . import plans as p
from .driver import BINARY, Warden
from .plans import Cell, Made, Plan

USER = 1000 if os.geteuid() == 0 else os.geteuid()
ROOT = os.geteuid() == 0
TIME_LIMIT = 30.0


@dataclass(frozen=True)
class Facts:
    landlock: int
    namespaces: int
    pid: int
    kill_method: int
    cgroup: int


def facts_of(warden: Warden) -> Facts:
    reader = warden.facts
    assert reader is not None
    reader.at = 0
    reader.take("H")
    reader.blob()
    for form in "IIHI":
        reader.take(form)
    for _ in range(4):
        reader.blob()
    for form in "QQ":
        reader.take(form)
    pid = reader.take("i")
    for _ in range(3):
        reader.take("I")
    for _ in range(3):
        reader.blob()
    for _ in range(reader.take("I")):
        reader.blob()
    for _ in range(reader.take("I")):
        reader.blob()
        reader.blob()
    reader.take("q")
    method = reader.take("B")
    landlock = reader.take("H")
    reader.take("I")
    return Facts(landlock, reader.take("I"), pid, method, reader.take("I"))


def cgroup_of(warden: Warden) -> int:
    """What it says that it can do with control groups."""
    return facts_of(warden).cgroup


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TIME_LIMIT
    while time.monotonic() < end and not condition():
        time.sleep(0.01)


def groups_of(warden: Warden) -> list[str]:
    """Control groups that it made, in every hierarchy."""
    found: list[str] = []
    for parent, directories, _ in os.walk("/sys/fs/cgroup"):
        found += [f"{parent}/{name}" for name in directories if name.startswith(f"execworld-{warden.pid}-")]
    return found


class Place:
    """A workspace, a directory for targets, a secret, and a copy of the warden whose processes are known by it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o755)
        self.workspace = folder / "workspace"
        self.scratch = folder / "scratch"
        self.secret = folder / "secret"
        self.binary = folder / "bin" / "warden"
        for directory in (self.workspace, self.scratch, self.binary.parent):
            directory.mkdir()
            if ROOT:
                os.chown(directory, USER, USER)
        self.workspace.chmod(0o777)  # for a root without the right to override
        self.secret.write_text("secret")
        shutil.copy(BINARY, self.binary)
        self.binary.chmod(0o755)

    def alive(self) -> list[int]:
        found: list[int] = []
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and os.readlink(f"/proc/{entry}/exe").startswith(f"{self.folder}/"):
                    found.append(int(entry))
            except OSError:
                continue  # ended meanwhile
        return found

    def wait_alone(self, warden: Warden) -> None:
        """Nothing runs beside the warden; a supervisor that has said that its tree is gone ends a moment later."""
        wait_until(lambda: self.alive() == [warden.pid])
        assert self.alive() == [warden.pid]

    def wait_empty(self, warden: Warden) -> None:
        """No process is left, no group, and nothing in scratch."""
        wait_until(lambda: not self.alive() and not groups_of(warden))
        assert self.alive() == []
        assert groups_of(warden) == []
        assert list(self.scratch.iterdir()) == []

    @contextmanager
    def warden(self, *, user: bool = False, close: bool = True, flags: int = 0) -> Generator[Warden]:
        def become() -> None:
            os.setgroups([])
            os.setresgid(USER, USER, USER)
            os.setresuid(USER, USER, USER)

        with Warden(binary=self.binary, preexec=become if user and ROOT else None, flags=flags) as warden:
            yield warden
            if close:
                report = warden.close()
                assert report.gone


# ---- plans


class Builder:
    """Steps with their pins and copies counted."""

    def __init__(self, place: Place, warden: Warden) -> None:
        self.place = place
        self.facts = facts_of(warden)
        self.steps: list[bytes] = []
        self.pins = 0
        self.trees = 0
        self.abi = self.facts.landlock

    def add(self, *steps: bytes) -> Builder:
        self.steps += steps
        return self

    def pin(self, path: str | Path, directory: bool = True) -> int:
        self.steps.append(p.pin(path, directory))
        self.pins += 1
        return self.pins - 1

    def namespaces(self) -> Builder:
        kinds = p.NEWNS | p.NEWIPC | p.NEWNET
        if os.geteuid() != 0 or self.user:
            self.add(p.unshare(kinds | p.NEWUSER), p.map_ids())
        else:
            self.add(p.unshare(kinds))
        self.add(p.pid_namespace(), p.private_mounts())
        workspace, proc, pts = self.pin(self.place.workspace), self.pin("/proc"), self.pin("/dev/pts")
        self.add(p.clone_tree(workspace), p.set_attributes(p.READ_ONLY), p.attach_tree(0, workspace))
        flags = p.NO_SETUID | p.NO_EXECUTE
        self.add(p.new_file_system(b"proc", proc, attributes=flags | p.NO_DEVICES))
        options = [(b"newinstance", b""), (b"ptmxmode", b"0666"), (b"mode", b"0620")]
        self.add(p.new_file_system(b"devpts", pts, options, flags), p.loopback_up())
        return self

    user = False

    def landlock(self) -> bytes:
        """Restricts the cell, and gives the layer of its programs."""
        if not self.abi:
            pytest.skip("this kernel has no Landlock, or it is off")
        everything, scopes = p.handled(self.abi), p.scopes(self.abi)
        root, workspace = self.pin("/"), self.pin(self.place.workspace)
        null, pts = self.pin("/dev/null", directory=False), self.pin("/dev/pts")
        ptmx = self.pin(os.path.realpath("/dev/ptmx"), directory=False)
        below = p.READ_ALL | (p.REFER & everything)
        inside = [(root, below), (workspace, everything), (null, p.DEVICE)]
        device = (p.DEVICE | p.IOCTL_DEV) & everything
        self.add(p.restrict(p.ruleset(everything, [*inside, (pts, device), (ptmx, device)], scoped=scopes)))
        return p.ruleset(everything, inside, scoped=scopes)


def full(place: Place, warden: Warden, *, user: bool = False, landlock: bool = True) -> Plan:
    builder = Builder(place, warden)
    builder.user = user
    builder.namespaces()
    rules = builder.landlock() if landlock else None
    builder.add(p.keep_capabilities(0xFF))
    return Plan(
        builder.steps,
        rules=rules,
        capabilities=0,
        filter=p.deny(p.UNSHARE_CALL),
        limits=[(7, 64, 64)],
        scratch=os.fsencode(place.scratch),
    )


def landlock_only(place: Place, warden: Warden) -> Plan:
    builder = Builder(place, warden)
    rules = builder.landlock()
    return Plan(builder.steps, rules=rules, capabilities=0, scratch=os.fsencode(place.scratch))


@contextmanager
def cell_in(warden: Warden, plan: Plan) -> Generator[tuple[Cell, Made]]:
    made = p.make(warden, plan)
    assert made.outcome == 0, f"stage {made.outcome - 1}, step {made.step}: {os.strerror(made.error)}"
    cell = Cell(warden, made.handle)
    try:
        yield cell, made
    finally:
        cell.close_ends()
