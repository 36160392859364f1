"""The suite of the sandbox seam: a policy is enforced and reported, or nothing runs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from execworld.seams import (
    Boundary,
    CommandStatus,
    Dimension,
    EnforcementState,
    FileMissing,
    NetworkMode,
    NetworkPolicy,
    NotDirectory,
    Requirement,
    ResourceLimits,
    SandboxDenied,
    SandboxMode,
    SandboxPolicy,
    SandboxReason,
    SandboxUnavailable,
    World,
    WorldMismatch,
)
from execworld.seams.testing.probes import output_of, sh
from execworld.seams.testing.suite import ContractSuite

NO_NETWORK = NetworkPolicy(NetworkMode.NONE)
POLICIES: Mapping[str, SandboxPolicy] = {
    "read-only": SandboxPolicy.read_only(),
    "no-network": SandboxPolicy(SandboxMode.FULL_ACCESS, network=NO_NETWORK),
    "hidden": SandboxPolicy(SandboxMode.FULL_ACCESS, hidden=("/etc/hostname",)),
    "ports": SandboxPolicy.read_only(network=NetworkPolicy(NetworkMode.PORTS, (443,))),
    "memory": SandboxPolicy(SandboxMode.FULL_ACCESS, limits=ResourceLimits(memory_bytes=1 << 28)),
    "strict": SandboxPolicy(SandboxMode.READ_ONLY, require=Requirement.STRICT),
}


class SandboxContract(ContractSuite):
    """Views of a world."""

    async def test_SB1_full_access_is_the_root_view(self, world: World) -> None:
        """Plain full access is the view that the world was opened with, if it was opened so, and confining to the
        own policy gives that view."""
        view = await world.sandbox.confine(world.policy)
        assert view.view_id == world.view_id
        if not world.policy.confines:
            root = await world.sandbox.confine(SandboxPolicy.full_access())
            assert root.view_id == world.view_id
            assert not world.enforcement.missing()

    @pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
    async def test_SB2_a_policy_is_enforced_or_refused(self, world: World, policy: SandboxPolicy) -> None:
        """Confining gives a view in which every required dimension is enforced, or it is SANDBOX_UNAVAILABLE with a
        reason and the names of what is missing. There is nothing in between."""
        try:
            view = await world.sandbox.confine(policy)
        except SandboxUnavailable as error:
            refusal = error
        else:
            assert view.enforcement.missing() == ()
            for dimension in policy.required():
                assert view.enforcement.state(dimension) is EnforcementState.ENFORCED
            assert view.policy == policy
            assert view.world_id == world.world_id
            return
        assert set(refusal.missing) <= {str(dimension) for dimension in Dimension}
        assert refusal.reason
        assert refusal.world == world.world_id

    @pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
    async def test_SB3_a_world_that_cannot_confine_says_what(
        self, world: World, policy: SandboxPolicy
    ) -> None:
        """A policy that requires a dimension which the facts do not name as enforceable is refused, and that
        dimension is among the missing ones, each time in the same order."""
        impossible = policy.required() - world.facts.enforceable
        if not impossible:
            return
        with pytest.raises(SandboxUnavailable) as caught:
            await world.sandbox.confine(policy)
        assert {str(dimension) for dimension in impossible} <= set(caught.value.missing)
        with pytest.raises(SandboxUnavailable) as again:
            await world.sandbox.confine(policy)
        assert again.value.missing == caught.value.missing

    async def test_SB4_a_refusal_runs_nothing(self, world: World, scratch: str) -> None:
        """After a refused policy the world works as before: the refusal neither started nor changed anything."""
        policy = SandboxPolicy(
            SandboxMode.WORKSPACE_WRITE, scratch, network=NO_NETWORK, require=Requirement.STRICT
        )
        before = await output_of(world, "ls -A", cwd=scratch)
        try:
            view = await world.sandbox.confine(policy)
        except SandboxUnavailable:
            pass
        else:
            assert (await view.subprocess.run(["true"])).ok
        assert await output_of(world, "ls -A", cwd=scratch) == before
        assert (await world.subprocess.run(["true"])).ok

    async def test_SB5_a_view_is_shared_by_policy(self, world: World) -> None:
        """Equal policies give one view, different ones different views; its seams carry its id."""
        policy = SandboxPolicy.read_only()
        try:
            one, two = (
                await world.sandbox.confine(policy),
                await world.sandbox.confine(SandboxPolicy.read_only()),
            )
        except SandboxUnavailable:
            return  # SB-3 holds the world to that
        assert one is two
        assert one.view_id != world.view_id
        assert policy.digest in one.view_id
        seams = (one.fs, one.subprocess, one.shell, one.sandbox)
        assert {seam.view_id for seam in seams} == {one.view_id}
        assert {seam.world_id for seam in seams} == {world.world_id}

    async def test_SB6_a_view_cannot_be_widened_from_inside(self, world: World) -> None:
        """Only the root view makes views: asking a confined one is WORLD_MISMATCH."""
        try:
            view = await world.sandbox.confine(SandboxPolicy.read_only())
        except SandboxUnavailable:
            return  # SB-3 holds the world to that
        with pytest.raises(WorldMismatch):
            await view.sandbox.confine(SandboxPolicy.full_access())

    async def test_SB7_read_only_denies_every_writer(self, world: World, scratch: str) -> None:
        """Where fs.write is enforced, neither a command nor a shell nor fs writes in a read-only view, the same
        writes succeed in the root view, and reading works."""
        await world.fs.write_text(f"{scratch}/f", "content")
        await sh(world, ': >"$1/control"', scratch)
        assert await world.fs.stat(f"{scratch}/control") is not None
        try:
            view = await world.sandbox.confine(SandboxPolicy.read_only())
        except SandboxUnavailable:
            return  # SB-3 holds the world to that
        assert not (await sh(view, ': >"$1/by-command"', scratch)).ok
        assert not (await view.shell.run(f": >'{scratch}/by-shell'")).ok
        with pytest.raises(SandboxDenied):
            await view.fs.write_text(f"{scratch}/by-fs", "x")
        with pytest.raises(SandboxDenied):
            await view.fs.edit_text(f"{scratch}/f", "content", "x")
        with pytest.raises(SandboxDenied):
            await view.fs.remove(f"{scratch}/f")
        assert [entry.name for entry in await world.fs.list_directory(scratch)] == ["control", "f"]
        assert await view.fs.read_text(f"{scratch}/f") == "content"

    async def test_SB8_a_workspace_is_the_only_place_to_write(self, world: World, scratch: str) -> None:
        """In a workspace-write view fs and commands write below the workspace and nowhere else: not beside it under
        a name that starts alike, not through a link that leads out, and not with ``..``."""
        await world.fs.make_directory(f"{scratch}/plot")
        await world.fs.make_directory(f"{scratch}/plot-secret")
        await world.fs.make_symlink(f"{scratch}/plot/out", "../plot-secret")
        try:
            view = await world.sandbox.confine(SandboxPolicy.workspace_write(f"{scratch}/plot"))
        except SandboxUnavailable:
            return  # SB-3 holds the world to that
        await view.fs.write_text(f"{scratch}/plot/a/f", "by fs")
        assert (await sh(view, 'echo x >"$1/plot/g"', scratch)).ok
        for path in ("plot-secret/f", "plot/../plot-secret/f", "plot/out/f", "plot/out/new/f", "h"):
            with pytest.raises(SandboxDenied):
                await view.fs.write_text(f"{scratch}/{path}", "x")
            assert not (await sh(view, 'echo x >"$1"', f"{scratch}/{path}")).ok
        assert await world.fs.list_directory(f"{scratch}/plot-secret") == []
        assert await world.fs.read_text(f"{scratch}/plot/a/f") == "by fs"

    async def test_SB9_the_report_is_complete(self, world: World) -> None:
        """Every dimension that the policy asks for has a row, rows say by what or why not, and the boundary is
        named."""
        for dimension in world.policy.asked():
            assert world.enforcement.entries[dimension].asked
        for _, entry in world.enforcement:
            if entry.state is EnforcementState.ENFORCED:
                assert entry.by
            else:
                assert entry.why_not
        assert world.facts.boundary in Boundary

    async def test_SB10_what_cannot_be_enforced_is_not_claimed(self, world: World) -> None:
        """No view claims to enforce a dimension that the facts do not name as enforceable."""
        views = [world]
        for policy in POLICIES.values():
            try:
                views.append(await world.sandbox.confine(policy))
            except SandboxUnavailable:
                continue  # SB-3 holds the world to that
        for view in views:
            claimed = {d for d, entry in view.enforcement if entry.state is EnforcementState.ENFORCED}
            assert claimed <= world.facts.enforceable

    async def test_SB11_a_view_has_a_temporary_directory_of_its_own(self, world: World, scratch: str) -> None:
        """The temporary directories of a view are those that it may write; a workspace-write view has a private one,
        which programs find by TMPDIR, which no other user can look into, and which views of one world share."""
        try:
            view = await world.sandbox.confine(SandboxPolicy.workspace_write(scratch))
            other = await world.sandbox.confine(SandboxPolicy.workspace_write(scratch, network=NO_NETWORK))
        except SandboxUnavailable:
            return  # SB-3 holds the world to that
        private = view.facts.temp_roots[0]
        assert private not in world.facts.temp_roots
        assert await output_of(view, 'echo "$TMPDIR"') == private
        made = await output_of(view, "mktemp")
        assert made.startswith(f"{private}/")
        for root in view.facts.temp_roots:
            await view.fs.write_text(f"{root}/contract-probe", "x")
            await view.fs.remove(f"{root}/contract-probe")
        assert await output_of(other, 'cat "$1" && rm "$1"', made) == ""
        parent = await world.fs.stat(private.rpartition("/")[0])
        assert parent is not None
        assert parent.mode & 0o077 == 0

    async def test_SB12_a_denial_says_which_part_of_the_policy_to_change(
        self, world: World, scratch: str
    ) -> None:
        """What the policy forbids is FS_SANDBOX_DENIED with a hint; what would fail without it too is what it is
        there."""
        await world.fs.make_directory(f"{scratch}/plot")
        await world.fs.write_text(f"{scratch}/f", "x")
        try:
            view = await world.sandbox.confine(SandboxPolicy.workspace_write(f"{scratch}/plot"))
        except SandboxUnavailable:
            return  # SB-3 holds the world to that
        for call in (
            lambda: view.fs.write_text(f"{scratch}/g", "x"),
            lambda: view.fs.make_directory(f"{scratch}/d"),
            lambda: view.fs.remove(f"{scratch}/f"),
            lambda: view.fs.rename(f"{scratch}/f", f"{scratch}/plot/f"),
            lambda: view.fs.copy(f"{scratch}/f", f"{scratch}/g"),
            lambda: view.fs.set_mode(f"{scratch}/f", 0o600),
        ):
            with pytest.raises(SandboxDenied) as caught:
                await call()
            assert f"{scratch}/plot" in caught.value.hint
        with pytest.raises(FileMissing):
            await view.fs.read_text(f"{scratch}/plot/missing")
        await view.fs.copy(f"{scratch}/f", f"{scratch}/plot/f")
        with pytest.raises(NotDirectory):
            await view.fs.write_text(f"{scratch}/plot/f/below", "x")

    async def test_SB13_a_policy_on_what_is_not_there_is_refused(self, world: World, scratch: str) -> None:
        """A root that does not exist is SANDBOX_UNAVAILABLE and not a view of something else."""
        with pytest.raises(SandboxUnavailable) as caught:
            await world.sandbox.confine(SandboxPolicy.workspace_write(f"{scratch}/missing"))
        if SandboxPolicy.workspace_write(scratch).required() <= world.facts.enforceable:
            assert caught.value.reason is SandboxReason.ROOT_UNUSABLE
            assert f"{scratch}/missing" in caught.value.message

    async def test_SB14_limits_on_time_and_output_hold(self, world: World) -> None:
        """A view with such limits ends the trees that pass them, and its results say so."""
        try:
            view = await world.sandbox.confine(
                SandboxPolicy(
                    SandboxMode.FULL_ACCESS, limits=ResourceLimits(wall_s=1.0, output_bytes=1_000_000)
                )
            )
        except SandboxUnavailable:
            return  # SB-3 holds the world to that
        slow = await view.subprocess.run(["sleep", "1000"], grace_s=0.2)
        assert slow.status is CommandStatus.TIMED_OUT
        flood = await sh(view, "while :; do echo 0123456789012345678901234567890123456789; done")
        assert flood.status in (CommandStatus.OUTPUT_LIMIT, CommandStatus.TIMED_OUT)
        assert slow.enforcement.state(Dimension.LIMIT_WALL) is EnforcementState.ENFORCED
