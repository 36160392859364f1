"""Views of a world: one a policy, made once, kept and ended by the world, and never made again behind a caller's back.

The cells here are wardens that confine nothing; what a real cell denies is tested where there are real ones.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from execworld.machine.base import Machine
from execworld.machine.batch import Batch, BatchFailed, Results, StepError
from execworld.machine.confining import Cell, PrivateDirectories
from execworld.machine.operations import MakeDirectory, Open
from execworld.machine.values import OpenFlag
from execworld.machine.warden import locate_warden, open_warden_machine, start_local_warden
from execworld.machine.world import WorldSettings, open_machine_world
from execworld.seams import (
    AccessDenied,
    Boundary,
    CleanupIncomplete,
    CommandStatus,
    Dimension,
    DimensionEnforcement,
    Enforcement,
    EnforcementState,
    OutcomeUnknown,
    OutputLimits,
    ResourceLimits,
    SandboxDenied,
    SandboxMode,
    SandboxPolicy,
    SandboxReason,
    SandboxUnavailable,
    StreamMode,
    World,
    WorldClosed,
    WorldIdentity,
    WorldLost,
    WorldMismatch,
)
from execworld.seams.testing.probes import receive_to_end
from execworld.testing.forwarding import ForwardingMachine

pytestmark = pytest.mark.anyio


def exists(path: str | bytes) -> bool:
    return os.path.exists(path)


class Forbidding(ForwardingMachine):
    """Answers EACCES to whoever opens for writing, or makes a directory, of a name that says so."""

    async def run(self, batch: Batch) -> Results:
        for index, step in enumerate(batch.steps):
            operation = step.operation
            makes = isinstance(operation, MakeDirectory) or (
                isinstance(operation, Open) and bool(operation.flags & (OpenFlag.WRITE | OpenFlag.CREATE))
            )
            if makes and self.forbids:
                raise BatchFailed(index, StepError(errno.EACCES), Results(()))
        return await self.inner.run(batch)

    forbids = False


class PlainCells:
    """Makes cells that are wardens of their own and claim to enforce everything."""

    enforceable = frozenset(Dimension)

    def __init__(self) -> None:
        self.made: list[SandboxPolicy] = []
        self.directories: list[PrivateDirectories] = []
        self.pids: list[int] = []
        self.machines: list[Forbidding] = []
        self.open = 0
        self.enforced = EnforcementState.ENFORCED
        self.gate = anyio.Event()
        self.gate.set()

    @asynccontextmanager
    async def open_cell(
        self, machine: Machine, policy: SandboxPolicy, directories: PrivateDirectories
    ) -> AsyncGenerator[Cell]:
        self.made.append(policy)
        self.directories.append(directories)
        await self.gate.wait()
        transport = start_local_warden(locate_warden())
        self.pids.append(transport.pid)
        async with open_warden_machine(transport) as inner:
            self.open += 1
            entries = {
                dimension: DimensionEnforcement(
                    True, dimension in policy.required(), self.enforced, "a test", "?"
                )
                for dimension in policy.asked()
            }
            wrapped = Forbidding(inner)
            self.machines.append(wrapped)
            variables = {"TMPDIR": directories.temp.decode(), "XDG_CACHE_HOME": directories.cache.decode()}
            confined = policy.mode is SandboxMode.WORKSPACE_WRITE
            try:
                yield Cell(
                    wrapped,
                    Enforcement(entries),
                    variables if confined else {},
                    ("temp",),
                    lambda: "how",
                    lambda: {"a": 1},
                )
            finally:
                self.open -= 1


@asynccontextmanager
async def opened(
    cells: PlainCells, cwd: Path, policy: SandboxPolicy | None = None, *, environment: tuple[str, ...] = ()
) -> AsyncGenerator[World]:
    async with open_warden_machine(start_local_warden(locate_warden())) as machine:
        identity = WorldIdentity("test", machine.facts.host_instance)
        machine.world_id = identity.world_id
        settings = WorldSettings(
            identity,
            policy or SandboxPolicy.full_access(),
            Enforcement(),
            Boundary.NONE,
            cwd=str(cwd),
            environment=environment,
            confiner=cells,
        )
        async with open_machine_world(machine, settings) as world:
            yield world


async def test_a_view_is_made_once_however_many_ask(tmp_path: Path) -> None:
    cells = PlainCells()
    policy = SandboxPolicy.workspace_write(str(tmp_path))
    async with opened(cells, tmp_path) as world:
        cells.gate = anyio.Event()
        views: list[World] = []

        async def ask() -> None:
            views.append(await world.sandbox.confine(policy))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            cells.gate.set()
        assert len({id(view) for view in views}) == 1
        assert len(cells.made) == 1
        assert views[0].world_id == world.world_id
        assert views[0].view_id == f"{world.world_id}/{policy.digest}"
        assert cells.open == 1
    assert cells.open == 0
    assert views[0].closed


async def test_whoever_stops_waiting_takes_nothing_from_the_others(tmp_path: Path) -> None:
    cells = PlainCells()
    policy = SandboxPolicy.read_only()
    async with opened(cells, tmp_path) as world:
        cells.gate = anyio.Event()
        with anyio.move_on_after(0.01):
            await world.sandbox.confine(policy)
        cells.gate.set()
        view = await world.sandbox.confine(policy)
        assert len(cells.made) == 1
        assert (await view.subprocess.run(["true"])).view_id == view.view_id


async def test_a_refusal_is_for_all_who_asked_and_is_asked_again(tmp_path: Path) -> None:
    cells = PlainCells()
    cells.enforced = EnforcementState.PARTIAL
    async with opened(cells, tmp_path) as world:
        for attempt in (1, 2):
            with pytest.raises(SandboxUnavailable) as caught:
                await world.sandbox.confine(SandboxPolicy.read_only())
            assert "fs.write" in caught.value.missing
            assert caught.value.world == world.world_id
            assert len(cells.made) == attempt
            assert cells.open == 0
        cells.enforced = EnforcementState.ENFORCED
        assert (await world.sandbox.confine(SandboxPolicy.read_only())).policy == SandboxPolicy.read_only()


async def test_only_the_root_view_makes_views(tmp_path: Path) -> None:
    async with opened(PlainCells(), tmp_path) as world:
        view = await world.sandbox.confine(SandboxPolicy.read_only())
        assert await view.sandbox.confine(SandboxPolicy.read_only()) is view
        for wider in (SandboxPolicy.full_access(), SandboxPolicy.workspace_write(str(tmp_path))):
            with pytest.raises(WorldMismatch):
                await view.sandbox.confine(wider)


async def test_paths_of_a_policy_are_resolved_in_the_world_first(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    cells = PlainCells()
    policy = SandboxPolicy.workspace_write(str(tmp_path / "link"))
    async with opened(cells, tmp_path) as world:
        view = await world.sandbox.confine(policy)
        assert cells.made[0].workspace == str(real)
        assert view.policy == policy


@pytest.mark.parametrize("name", ["missing", "file"])
async def test_a_root_that_is_no_directory_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    cells = PlainCells()
    async with opened(cells, tmp_path) as world:
        for policy in (
            SandboxPolicy.workspace_write(str(tmp_path / name)),
            SandboxPolicy.workspace_write(str(tmp_path), write_roots=[str(tmp_path / name)]),
            SandboxPolicy(SandboxMode.READ_ONLY, read_roots=(str(tmp_path / name),)),
        ):
            with pytest.raises(SandboxUnavailable) as caught:
                await world.sandbox.confine(policy)
            assert caught.value.reason is SandboxReason.ROOT_UNUSABLE
            assert str(tmp_path / name) in caught.value.message
        assert cells.made == []


async def gone_for(view: World) -> None:
    """Return when a call in *view* fails."""
    while True:
        try:
            await view.subprocess.run(["true"])
        except (WorldLost, OutcomeUnknown):
            return


async def test_a_lost_view_stays_lost_and_another_one_has_another_id(tmp_path: Path) -> None:
    """That nobody can tell what became of the plain warden's processes is said at the end."""
    with pytest.raises(BaseExceptionGroup) as caught:
        await lose_a_view(tmp_path)
    assert caught.group_contains(CleanupIncomplete, match="out of reach")


async def lose_a_view(tmp_path: Path) -> None:
    cells = PlainCells()
    policy = SandboxPolicy.workspace_write(str(tmp_path))
    async with opened(cells, tmp_path) as world:
        view = await world.sandbox.confine(policy)
        os.kill(cells.pids[0], signal.SIGKILL)
        await gone_for(view)
        with pytest.raises(WorldLost):
            await view.fs.stat("/")
        again = await world.sandbox.confine(policy)
        assert again is not view
        assert again.view_id == f"{view.view_id}.2"
        assert (await again.subprocess.run(["true"])).ok
        with pytest.raises(WorldLost):
            await view.subprocess.run(["true"])
        assert (await world.subprocess.run(["true"])).ok


async def test_a_world_opened_with_a_policy_is_that_view_alone(tmp_path: Path) -> None:
    cells = PlainCells()
    policy = SandboxPolicy.workspace_write(str(tmp_path))
    async with opened(cells, tmp_path, policy) as world:
        assert world.policy == policy
        assert await world.sandbox.confine(policy) is world
        with pytest.raises(WorldMismatch):
            await world.sandbox.confine(SandboxPolicy.full_access())
        base = Path(world.facts.temp_roots[0]).parent
        assert base.is_dir()
        await world.aclose()
        assert world.closed
        assert not base.exists()
        with pytest.raises(WorldClosed):
            await world.subprocess.run(["true"])
    assert cells.open == 0


async def test_closing_a_view_leaves_the_world(tmp_path: Path) -> None:
    cells = PlainCells()
    async with opened(cells, tmp_path) as world:
        view = await world.sandbox.confine(SandboxPolicy.read_only())
        await view.aclose()
        assert view.closed
        assert not world.closed
        again = await world.sandbox.confine(SandboxPolicy.read_only())
        assert (await again.subprocess.run(["true"])).ok
        assert again.view_id != view.view_id


async def test_cancellation_ends_every_view(tmp_path: Path) -> None:
    cells = PlainCells()
    with anyio.CancelScope() as scope:
        async with opened(cells, tmp_path) as world:
            view = await world.sandbox.confine(SandboxPolicy.workspace_write(str(tmp_path)))
            async with view.subprocess.start(["sleep", "1000"]):
                scope.cancel()
                await anyio.sleep_forever()
    assert cells.open == 0
    assert not exists(cells.directories[0].temp)


async def test_private_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made by the first cell, shared, closed to others, told to programs, and removed, whatever was left in them."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = set(os.listdir(tmp_path))
    cells = PlainCells()
    workspace = tmp_path / "w"
    workspace.mkdir()
    async with opened(cells, workspace) as world:
        assert set(os.listdir(tmp_path)) == before | {"w"}
        view = await world.sandbox.confine(SandboxPolicy.workspace_write(str(workspace)))
        other = await world.sandbox.confine(
            SandboxPolicy.workspace_write(str(workspace), write_roots=["/var"])
        )
        (temp,) = view.facts.temp_roots
        assert other.facts.temp_roots[0] == temp
        base = Path(temp).parent
        assert base.parent == tmp_path
        assert base.stat().st_mode & 0o7777 == 0o700
        assert sorted(path.name for path in base.iterdir()) == ["cache", "scratch", "temp"]
        said = await view.shell.run('echo "$TMPDIR $XDG_CACHE_HOME"; mktemp')
        assert said.stdout.text.startswith(f"{temp} {base}/cache\n{temp}/")
        await view.shell.run(
            'mkdir -p "$TMPDIR/a/b"; touch "$TMPDIR/a/b/c"; chmod 0 "$TMPDIR/a/b" "$TMPDIR/a"'
        )
        reader = await world.sandbox.confine(SandboxPolicy.read_only())
        assert reader.facts.temp_roots == ()
        assert reader.facts.not_shared == ("temp",)
    assert set(os.listdir(tmp_path)) == before | {"w"}


async def test_scratch_lies_outside_of_what_a_cell_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    cells = PlainCells()
    async with opened(cells, tmp_path) as world:
        await world.sandbox.confine(SandboxPolicy.workspace_write(str(tmp_path)))
        scratch = cells.directories[0].scratch
        assert not scratch.startswith(bytes(tmp_path))
    assert not exists(scratch)


async def test_a_denial_that_the_policy_explains(tmp_path: Path) -> None:
    """Outside of the roots it is the policy's, with what to change; inside it is an ordinary one."""
    cells = PlainCells()
    workspace = tmp_path / "w"
    workspace.mkdir()
    (tmp_path / "w" / "out").symlink_to(tmp_path)
    async with opened(cells, workspace) as world:
        view = await world.sandbox.confine(SandboxPolicy.workspace_write(str(workspace)))
        reader = await world.sandbox.confine(SandboxPolicy.read_only())
        for machine in cells.machines:
            machine.forbids = True
        for path in (tmp_path / "f", workspace / "out" / "f", workspace / ".." / "f"):
            with pytest.raises(SandboxDenied) as caught:
                await view.fs.write_text(str(path), "x")
            assert str(workspace) in caught.value.hint
            assert "write root" in caught.value.hint
        with pytest.raises(AccessDenied):
            await view.fs.write_text(str(workspace / "f"), "x")
        with pytest.raises(SandboxDenied) as caught:
            await reader.fs.make_directory(str(workspace / "d"))
        assert "read-only" in caught.value.hint
        with pytest.raises(SandboxDenied):
            await view.fs.set_mode(str(tmp_path), 0o755)


async def test_a_limit_on_time_holds_for_every_command_and_what_it_leaves(tmp_path: Path) -> None:
    cells = PlainCells()
    policy = SandboxPolicy(SandboxMode.FULL_ACCESS, limits=ResourceLimits(wall_s=0.3))
    async with opened(cells, tmp_path) as world:
        view = await world.sandbox.confine(policy)
        assert view.enforcement.state(Dimension.LIMIT_WALL) is EnforcementState.ENFORCED
        result = await view.subprocess.run(["sleep", "1000"], grace_s=0.1)
        assert result.status is CommandStatus.TIMED_OUT
        assert result.timeout_s == 0.3
        assert (await view.subprocess.run(["true"], timeout_s=0.2)).timeout_s == 0.2
        left = await view.shell.run("setsid sleep 1000 >/dev/null 2>&1 & echo $!", grace_s=0.1)
        pid = left.stdout.text.strip()
        with anyio.fail_after(5):
            while (await world.subprocess.run(["kill", "-0", pid])).ok:
                pass


async def test_a_limit_on_output_counts_both_streams_and_every_reader(tmp_path: Path) -> None:
    cells = PlainCells()
    policy = SandboxPolicy(SandboxMode.FULL_ACCESS, limits=ResourceLimits(output_bytes=100_000))
    async with opened(cells, tmp_path) as world:
        view = await world.sandbox.confine(policy)
        script = "head -c 60000 /dev/zero; head -c 60000 /dev/zero >&2; sleep 1000"
        result = await view.shell.run(script, grace_s=0.1, limits=OutputLimits(10, 10))
        assert result.status is CommandStatus.OUTPUT_LIMIT
        assert (await view.shell.run("head -c 99000 /dev/zero")).ok
        async with view.subprocess.start(["yes"], stdout=StreamMode.PIPE, grace_s=0.1) as process:
            assert process.stdout is not None
            with anyio.fail_after(5):
                async for _ in process.stdout:
                    pass
                assert (await process.wait()).output_limit_hit
        async with view.subprocess.open_terminal(["yes"], grace_s=0.1) as terminal:
            with anyio.fail_after(5):
                await receive_to_end(terminal)
            assert (await terminal.wait()).output_limit_hit


async def test_the_environment_of_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of the policy pass in its view alone."""
    monkeypatch.setenv("MY_SETTING", "passed")
    cells = PlainCells()
    policy = SandboxPolicy(SandboxMode.READ_ONLY, environment=("MY_SETTING",))
    async with opened(cells, tmp_path) as world:
        view = await world.sandbox.confine(policy)
        assert (await view.shell.run('echo "$MY_SETTING"')).stdout.text == "passed\n"
        assert (await world.shell.run('echo "$MY_SETTING"')).stdout.text == "\n"


async def test_output_of_a_view_that_may_write_nothing_spills_all_the_same(tmp_path: Path) -> None:
    cells = PlainCells()
    async with opened(cells, tmp_path) as world:
        view = await world.sandbox.confine(SandboxPolicy.read_only())
        cells.machines[0].forbids = True
        result = await view.shell.run("head -c 1000 /dev/zero", limits=OutputLimits(10, 10, spill_bytes=5000))
        assert result.stdout.spill_path is not None, result.stdout.spill_error
        assert len(await view.fs.read_bytes(result.stdout.spill_path)) == 1000
        spill = result.stdout.spill_path
    assert not exists(spill)
