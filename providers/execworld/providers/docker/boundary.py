"""What separates a container from the host that runs the agent, and what it enforces by itself.

A pure function over the documents of the engine, which is believed, since it holds the container.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from execworld.providers.docker.crossings import LOOKS, capability, is_virtual_machine, networks
from execworld.providers.docker.inspected import ODD, Inspected
from execworld.seams.identity import Boundary


@dataclass(frozen=True, slots=True)
class ContainerBoundary:
    """Attributes:
    boundary: `NONE` when what crosses makes one of no worth; on another host `OTHER_HOST` then.
    crossings: One entry each: what it is, a colon, and what of it crosses.
    no_network: The container has nothing but loopback.
    processes: Its limit on processes, *memory_bytes* that on memory; None for none.
    own_processes: Its process numbers are its own.
    read_only_root: Its root file system is mounted read-only.
    writable: Where it may write nevertheless, and where a root that may be written is the only entry, `/`.
    administrator: It may have CAP_SYS_ADMIN.
    """

    boundary: Boundary
    crossings: tuple[str, ...]
    no_network: bool
    processes: int | None
    memory_bytes: int | None
    own_processes: bool
    read_only_root: bool
    writable: tuple[str, ...]
    administrator: bool


def boundary_of(
    container: Mapping[str, object], engine: Mapping[str, object] | None = None, *, remote: bool = False
) -> ContainerBoundary:
    """Args:
    container: What `inspect` says of it, after it was started.
    engine: What `info` says; None when it was not to be had.
    remote: The engine is known to run on another machine than this process.
    """
    document, info = Inspected(container), Inspected(engine)
    host = document.inner("HostConfig")
    found = [crossing for look in LOOKS for crossing in look(document, host, info)]
    void = any(crossing.voids for crossing in found)
    if void:
        boundary = Boundary.OTHER_HOST if remote else Boundary.NONE
    elif is_virtual_machine(host, info):
        boundary = Boundary.VIRTUAL_MACHINE
    else:
        boundary = Boundary.CONTAINER
    where = "another host" if remote else "this host"
    return ContainerBoundary(
        boundary=boundary,
        crossings=tuple(dict.fromkeys(crossing.text.format(host=where) for crossing in found)),
        no_network=_has_no_network(document, host),
        processes=_limit(host, "PidsLimit"),
        memory_bytes=_limit(host, "Memory"),
        own_processes=host.text("PidMode") == "",
        read_only_root=host.flag("ReadonlyRootfs") is True,
        writable=_writable(document, host),
        administrator=_is_administrator(host),
    )


def _has_no_network(document: Inspected, host: Inspected) -> bool:
    names = networks(document)
    return host.text("NetworkMode") == "none" and names is not ODD and set(names) <= {"none"}


def _limit(host: Inspected, name: str) -> int | None:
    value = host.number(name, 0)
    return None if value is ODD or value <= 0 else value


def _writable(document: Inspected, host: Inspected) -> tuple[str, ...]:
    mounts = document.objects("Mounts")
    if host.flag("ReadonlyRootfs") is not True or mounts is ODD:
        return ("/",)
    found = [
        target
        for mount in mounts
        if mount.flag("RW") is not False and (target := mount.text("Destination", "/")) is not ODD
    ]
    temporary = host.entries("Tmpfs")
    return tuple(sorted({"/dev", *found, *(("/",) if temporary is ODD else temporary)}))


def _is_administrator(host: Inspected) -> bool:
    added, dropped = host.texts("CapAdd"), host.texts("CapDrop")
    if host.flag("Privileged") is not False or added is ODD or dropped is ODD:
        return True
    names = {capability(name) for name in added}
    if "CAP_SYS_ADMIN" in names:
        return True
    return "CAP_ALL" in names and "CAP_SYS_ADMIN" not in {capability(name) for name in dropped}
