"""The world, blocking."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from execworld import world as async_world
from execworld.seams import Enforcement, OnProgress, Sandbox, SandboxPolicy, World, WorldFacts, WorldIdentity
from execworld.sync.bridge import Bridge, open_bridge
from execworld.sync.filesystem import SyncFileSystem
from execworld.sync.shell import SyncShell
from execworld.sync.subprocess import SyncSubprocess


class SyncWorld:
    """One view of one execution world, for any number of threads."""

    def __init__(self, bridge: Bridge, world: World) -> None:
        self._bridge = bridge
        self._world = world
        self.fs = SyncFileSystem(bridge, world.fs)
        self.subprocess = SyncSubprocess(bridge, world.subprocess)
        self.shell = SyncShell(bridge, world.shell)
        self.sandbox = SyncSandbox(bridge, world.sandbox)

    @property
    def identity(self) -> WorldIdentity:
        return self._world.identity

    @property
    def world_id(self) -> str:
        return self._world.world_id

    @property
    def view_id(self) -> str:
        return self._world.view_id

    @property
    def facts(self) -> WorldFacts:
        return self._world.facts

    @property
    def policy(self) -> SandboxPolicy:
        return self._world.policy

    @property
    def enforcement(self) -> Enforcement:
        return self._world.enforcement

    @property
    def closed(self) -> bool:
        return self._world.closed


class SyncSandbox:
    """Makes views of a world that obey a policy, or refuses, as `Sandbox` does."""

    def __init__(self, bridge: Bridge, sandbox: Sandbox) -> None:
        self._bridge = bridge
        self._sandbox = sandbox

    @property
    def world_id(self) -> str:
        return self._sandbox.world_id

    @property
    def view_id(self) -> str:
        return self._sandbox.view_id

    @property
    def policy(self) -> SandboxPolicy:
        return self._sandbox.policy

    @property
    def enforcement(self) -> Enforcement:
        return self._sandbox.enforcement

    def confine(self, policy: SandboxPolicy) -> SyncWorld:
        return SyncWorld(self._bridge, self._bridge.call(lambda: self._sandbox.confine(policy)))


@contextmanager
def open_world(
    name: str,
    /,
    *,
    policy: SandboxPolicy | None = None,
    cwd: str | None = None,
    environment: Iterable[str] = (),
    on_progress: OnProgress | None = None,
    **config: object,
) -> Generator[SyncWorld]:
    """Open the execution world *name*; leaving the context closes it.

    It lives in an event loop in a thread of its own, so it works in a notebook too, where a loop is running
    already. Ctrl-C cancels the call that waits, and leaves when nothing of it is left; closing is not cut short
    by it. Arguments and errors as of `execworld.world.open_world`; *on_progress* is called in that thread.
    """
    opening = async_world.open_world(
        name, policy=policy, cwd=cwd, environment=environment, on_progress=on_progress, **config
    )
    with open_bridge("asyncio") as bridge:
        with bridge.enter(opening) as world:
            yield SyncWorld(bridge, world)
