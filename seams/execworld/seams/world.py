"""The world: one place that all tools of one session run in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from execworld.seams.enforcement import Enforcement
from execworld.seams.filesystem import FileSystem
from execworld.seams.identity import WorldFacts, WorldIdentity
from execworld.seams.policy import SandboxPolicy
from execworld.seams.sandbox import Sandbox
from execworld.seams.shell import Shell
from execworld.seams.subprocess import Subprocess


class World(ABC):
    """One view of one execution world.

    Its four seams carry its world id and view id. On every spawn, open and file operation the world compares the policy
    of the view with the proven enforcement and refuses (`SandboxUnavailable`) when a required dimension is missing.
    """

    @property
    @abstractmethod
    def identity(self) -> WorldIdentity: ...

    @property
    def world_id(self) -> str:
        return self.identity.world_id

    @property
    @abstractmethod
    def view_id(self) -> str:
        """World id plus policy digest: what a call actually ran in."""

    @property
    @abstractmethod
    def facts(self) -> WorldFacts: ...

    @property
    @abstractmethod
    def policy(self) -> SandboxPolicy: ...

    @property
    @abstractmethod
    def enforcement(self) -> Enforcement: ...

    @property
    @abstractmethod
    def fs(self) -> FileSystem: ...

    @property
    @abstractmethod
    def subprocess(self) -> Subprocess: ...

    @property
    @abstractmethod
    def shell(self) -> Shell: ...

    @property
    @abstractmethod
    def sandbox(self) -> Sandbox: ...

    @property
    @abstractmethod
    def closed(self) -> bool: ...

    @abstractmethod
    async def aclose(self) -> None:
        """End every process tree, join it, and remove what the world made. Idempotent; later calls join the first.

        Raises:
            CleanupIncomplete: everything was attempted, and something could not be proven gone.
        """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
