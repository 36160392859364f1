"""The sandbox seam: policies and their enforcement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from execworld.seams.enforcement import Enforcement
from execworld.seams.policy import SandboxPolicy

if TYPE_CHECKING:
    from execworld.seams.world import World


class Sandbox(ABC):
    """Makes views of a world that obey a policy, or refuses."""

    @property
    @abstractmethod
    def world_id(self) -> str: ...

    @property
    @abstractmethod
    def view_id(self) -> str: ...

    @property
    @abstractmethod
    def policy(self) -> SandboxPolicy:
        """The policy of this view."""

    @property
    @abstractmethod
    def enforcement(self) -> Enforcement:
        """What holds in this view, proven, dimension by dimension."""

    @abstractmethod
    async def confine(self, policy: SandboxPolicy) -> World:
        """The same world seen through *policy*, with its own fs, subprocess and shell.

        One view a policy, shared by all callers and closed with the world. Plain full access gives the root view.

        Raises:
            SandboxUnavailable: a required dimension cannot be enforced here. Nothing ran.
            WorldMismatch: called on a confined view; only the root view can make views.
        """
