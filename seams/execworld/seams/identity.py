"""Which world am I in? Identity, boundary and facts of an execution world."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from execworld.seams.enforcement import Dimension
from execworld.seams.values import value_class


@value_class
class WorldIdentity:
    """One file system and one process table that see the same paths.

    Two seams belong together exactly when their world ids are equal.

    Attributes:
        kind: Name of the provider: ``local``, ``landlock``, ``docker``, ``ssh``, ``e2b``, or a third party's.
        instance: What tells this world from others of its kind and is never reused: host plus boot id, container id
            plus start time, sandbox id.
        generation: Counts reconnects and re-creations of the instance. Handles of one generation are void in the next.
    """

    kind: str
    instance: str
    generation: int = 1

    @property
    def world_id(self) -> str:
        return f"{self.kind}:{self.instance}#{self.generation}"

    def __str__(self) -> str:
        return self.world_id


class Boundary(StrEnum):
    """What separates the world from the host that runs the agent."""

    NONE = "none"
    KERNEL_POLICY = "kernel-policy"
    CONTAINER = "container"
    VIRTUAL_MACHINE = "virtual-machine"
    OTHER_HOST = "other-host"

    def at_least(self, floor: Boundary) -> bool:
        """Whether this boundary is known to be as strong as *floor*; not comparable counts as weaker.

        The order is ``none < kernel-policy < container < virtual-machine`` and ``none < other-host``. Another host is
        not comparable with the rest: it says where the world is, not how strongly it is shut.
        """
        if self is floor or floor is Boundary.NONE:
            return True
        chain = (Boundary.NONE, Boundary.KERNEL_POLICY, Boundary.CONTAINER, Boundary.VIRTUAL_MACHINE)
        return self in chain and floor in chain and chain.index(self) > chain.index(floor)


@value_class
class WorldFacts:
    """What is true of the world for as long as its generation lasts. All paths are the world's.

    Attributes:
        os: Kernel name in lower case, ``linux`` or ``darwin``.
        arch: Machine name of the kernel, for example ``x86_64`` or ``aarch64``.
        kernel: Kernel release, for display only; never decide anything by it.
        user: Name of the user that commands run as; the number as text when it has no name.
        home: Home directory; ``/`` when it has none.
        cwd: Directory that relative paths and commands without one start from.
        temp_roots: Directories for temporary files, the preferred one first.
        shell: The shell that `Shell` runs command strings with; None when the world has no shell.
        search_path: Value of PATH that programs are looked up with.
        clock_offset_s: World clock minus host clock, as measured when the world opened.
        boundary: What separates the world from the host.
        crossings: What crosses the boundary, one entry each: mounts, network, sockets, devices, credentials.
        enforceable: Dimensions that the world could enforce if a policy asked for them.
        not_shared: What a view does not share with its world: ``pids``, ``loopback``, ``temp``, ``hidden paths``.
    """

    os: str
    arch: str
    kernel: str
    user: str
    uid: int
    gid: int
    home: str
    cwd: str
    temp_roots: tuple[str, ...]
    shell: str | None
    search_path: str
    clock_offset_s: float = 0.0
    boundary: Boundary = Boundary.NONE
    crossings: tuple[str, ...] = ()
    enforceable: frozenset[Dimension] = field(default_factory=frozenset[Dimension])
    not_shared: tuple[str, ...] = ()
