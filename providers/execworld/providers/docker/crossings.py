"""What crosses the boundary of a container: mounts, namespaces, network, devices, rights, credentials.

What the engine does not say, or says in a way that is not known here, is said to cross.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from execworld.providers.docker.credentials import credential_names
from execworld.providers.docker.host_paths import gives_host_away, holds_engine_socket, looks_like_socket
from execworld.providers.docker.inspected import ODD, Inspected, OddType

DEFAULT_CAPABILITIES: Final = frozenset(
    {
        "CAP_AUDIT_WRITE",
        "CAP_CHOWN",
        "CAP_DAC_OVERRIDE",
        "CAP_FOWNER",
        "CAP_FSETID",
        "CAP_KILL",
        "CAP_MKNOD",
        "CAP_NET_BIND_SERVICE",
        "CAP_NET_RAW",
        "CAP_SETFCAP",
        "CAP_SETGID",
        "CAP_SETPCAP",
        "CAP_SETUID",
        "CAP_SYS_CHROOT",
    }
)
HOST_CAPABILITIES: Final = frozenset(
    {
        "CAP_ALL",
        "CAP_BPF",
        "CAP_DAC_READ_SEARCH",
        "CAP_MAC_ADMIN",
        "CAP_MAC_OVERRIDE",
        "CAP_PERFMON",
        "CAP_SYS_ADMIN",
        "CAP_SYS_BOOT",
        "CAP_SYS_MODULE",
        "CAP_SYS_PTRACE",
        "CAP_SYS_RAWIO",
    }
)
"""With one of these a container is no boundary."""
_SHARED_WITH_NOBODY: Final = {"PidMode": ("",), "IpcMode": ("none", "private"), "UTSMode": ("",)}
_NAMESPACES: Final = {"PidMode": "processes", "IpcMode": "shared memory", "UTSMode": "host name"}
_CONTAINER_RUNTIMES: Final = frozenset(
    {"crun", "io.containerd.runc.v1", "io.containerd.runc.v2", "runc", "youki"}
)
_USER_SPACE_KERNELS: Final = frozenset({"io.containerd.runsc.v1", "runsc"})
_VIRTUAL_MACHINE_RUNTIMES: Final = frozenset({"io.containerd.kata.v2"})
"""Named by what containerd starts for them; any other name is whatever the engine's configuration makes of it."""
_VIRTUAL_MACHINE_PROGRAMS: Final = frozenset({"containerd-shim-kata-v2", "kata-runtime"})


@dataclass(frozen=True, slots=True)
class Crossing:
    """Attributes:
    text: For people.
    voids: With it the container separates nothing.
    """

    text: str
    voids: bool = False


def _kernel(document: Inspected, host: Inspected, info: Inspected) -> Iterator[Crossing]:
    runtime = host.text("Runtime")
    if is_virtual_machine(host, info):
        return
    if runtime in _USER_SPACE_KERNELS:
        yield Crossing("kernel: that of {host}, behind one in user space")
        return
    yield Crossing("kernel: shared with {host}")
    if runtime is ODD or (runtime and runtime not in _CONTAINER_RUNTIMES):
        yield Crossing(f"runtime: {_shown(runtime)}, which is not known")


def _users(document: Inspected, host: Inspected, info: Inspected) -> Iterator[Crossing]:
    options = info.texts("SecurityOptions")
    mapped = options is not ODD and any(
        option.split(",")[0] in ("name=userns", "name=rootless") for option in options
    )
    if not mapped or host.text("UsernsMode", "") != "":
        yield Crossing("users: their numbers mean those of {host}")


def _privileges(document: Inspected, host: Inspected, info: Inspected) -> Iterator[Crossing]:
    privileged = host.flag("Privileged")
    if privileged is not False:
        yield Crossing("privileges: all of the host", voids=True)
    added, dropped = host.texts("CapAdd"), host.texts("CapDrop")
    if added is ODD or dropped is ODD:
        yield Crossing("capabilities: not known", voids=True)
    else:
        names = {capability(name) for name in added}
        for name in sorted(names - DEFAULT_CAPABILITIES):
            yield Crossing(f"capability: {name}", voids=name in HOST_CAPABILITIES)
    groups = host.texts("GroupAdd")
    for group in ("not known",) if groups is ODD else groups:
        yield Crossing(f"group: {group}")


def _security(document: Inspected, host: Inspected, info: Inspected) -> Iterator[Crossing]:
    options = host.texts("SecurityOpt")
    if options is ODD:
        yield Crossing("security options: not known")
        options = ()
    for option in options:
        name, _, value = option.replace(":", "=", 1).partition("=")
        if name == "seccomp" and value == "unconfined":
            yield Crossing("system calls: all of them (seccomp is off)")
        elif name == "apparmor" and value == "unconfined":
            yield Crossing("apparmor: off")
        elif name == "label" and value == "disable":
            if _offers(info, "name=selinux"):
                yield Crossing("selinux: off")
        elif name == "systempaths" and value == "unconfined":
            yield Crossing("/proc: whole, with what changes the host", voids=True)
    if not _offers(info, "name=seccomp"):
        yield Crossing("system calls: all of them (the engine does not say that it has seccomp)")
    for name, what in (("MaskedPaths", "hidden"), ("ReadonlyPaths", "read-only")):
        paths = host.texts(name)
        if paths is ODD or not paths:
            yield Crossing(f"/proc and /sys: without the {what} parts that engines make by default")


def _namespaces(document: Inspected, host: Inspected, info: Inspected) -> Iterator[Crossing]:
    for name, what in _NAMESPACES.items():
        mode = host.text(name)
        if mode in _SHARED_WITH_NOBODY[name]:
            continue
        if mode == "shareable":
            yield Crossing(f"{what}: open to other containers that ask for it")
        elif mode is not ODD and mode.startswith("container:"):
            yield Crossing(f"{what}: those of {mode}")
        else:
            said = "" if mode == "host" else f" (its mode is {_shown(mode)})"
            yield Crossing(f"{what}: those of {{host}}{said}", voids=name != "UTSMode")
    mode = host.text("CgroupnsMode", "")
    if mode != "private":
        yield Crossing("control groups: their names are those of {host}")


def _network(document: Inspected, host: Inspected, info: Inspected) -> Iterator[Crossing]:
    mode = host.text("NetworkMode")
    if mode is ODD or mode == "host" or not mode:
        said = "" if mode == "host" else f" (its mode is {_shown(mode)})"
        yield Crossing(f"network: that of {{host}}{said}")
    elif mode.startswith("container:"):
        yield Crossing(f"network: that of {mode}")
    names = networks(document)
    if names is ODD:
        yield Crossing("network: not known")
    else:
        for name in names:
            if name not in ("none", "host"):
                yield Crossing(f"network: {name}")
        if (
            not names
            and mode not in ("none", "host")
            and mode is not ODD
            and not mode.startswith("container:")
        ):
            yield Crossing(f"network: {_shown(mode)}")
    yield from _ports(document, host)


def _ports(document: Inspected, host: Inspected) -> Iterator[Crossing]:
    if host.flag("PublishAllPorts") is not False:
        yield Crossing("ports: all that the image names are published")
    for ports in (host.entries("PortBindings"), document.inner("NetworkSettings").entries("Ports")):
        if ports is ODD:
            yield Crossing("ports: not known")
            continue
        for port in ports:
            bindings = Inspected(ports).objects(port)
            if bindings is ODD:
                yield Crossing(f"port: {port}, it is not known where")
                continue
            for at in bindings:
                address, number = at.text("HostIp", ""), at.text("HostPort", "")
                yield Crossing(
                    f"port: {port} at {_shown(address) if address else 'all addresses'}"
                    f" port {_shown(number) if number else 'of the choice'} of {{host}}"
                )


def _mounts(document: Inspected, host: Inspected, info: Inspected) -> Iterator[Crossing]:
    mounts = document.objects("Mounts")
    if mounts is ODD:
        yield Crossing("mounts: not known", voids=True)
        return
    for mount in mounts:
        yield from _mount(mount)
    seen = {mount.text("Destination") for mount in mounts}
    binds = host.texts("Binds")
    for bind in ("not known",) if binds is ODD else binds:
        # What was asked for and is not among the mounts.
        parts = bind.split(":")
        if len(parts) < 2 or posixpath.normpath(parts[1]) not in seen:
            yield Crossing(f"mount: {bind}", voids=True)
    if host.texts("VolumesFrom") != ():
        yield Crossing("volumes: those of other containers")


def _mount(mount: Inspected) -> Iterator[Crossing]:
    kind, source, target = mount.text("Type"), mount.text("Source", ""), mount.text("Destination")
    writable = mount.flag("RW") is not False
    access = "for writing" if writable else "for reading"
    if kind == "tmpfs":
        return
    if kind == "volume":
        name = mount.text("Name", "")
        yield Crossing(f"volume: {_shown(name)} at {_shown(target)}, {access}")
        if mount.text("Driver", "local") != "local":
            yield Crossing(f"volume driver: {_shown(mount.text('Driver', ''))}")
        return
    if source is ODD or target is ODD or kind is ODD:
        yield Crossing(f"mount: {_shown(source)} at {_shown(target)}, {access}", voids=True)
        return
    what = "files" if kind == "bind" else f"mount ({kind})"
    yield Crossing(
        f"{what}: {source} at {target}, {access}",
        voids=writable and (kind != "bind" or gives_host_away(source)),
    )
    if holds_engine_socket(source) or holds_engine_socket(target):
        yield Crossing(f"engine: {source} may be asked for anything", voids=True)
    elif looks_like_socket(source):
        yield Crossing(f"socket: {source}")
    propagation = mount.text("Propagation", "")
    if propagation not in ("", "private", "rprivate", "slave", "rslave"):
        yield Crossing(f"mounts below {target}: they appear on {{host}} as well", voids=True)


def _devices(document: Inspected, host: Inspected, info: Inspected) -> Iterator[Crossing]:
    devices = host.objects("Devices")
    if devices is ODD:
        yield Crossing("devices: not known", voids=True)
    else:
        for device in devices:
            path = device.text("PathOnHost")
            yield Crossing(f"device: {_shown(path)}", voids=path not in _HARMLESS_DEVICES)
    for name in ("DeviceCgroupRules", "DeviceRequests"):
        value = host.texts(name) if name == "DeviceCgroupRules" else host.objects(name)
        if value is ODD or value:
            yield Crossing(f"devices: what {name} allows", voids=name == "DeviceCgroupRules")


_HARMLESS_DEVICES: Final = frozenset(
    f"/dev/{name}" for name in ["fuse", "full", "null", "random", "tty", "urandom", "zero", "net/tun"]
)


def _credentials(document: Inspected, host: Inspected, info: Inspected) -> Iterator[Crossing]:
    environment = document.inner("Config").texts("Env")
    if environment is ODD:
        yield Crossing("environment: not known")
        return
    for name in credential_names(entry.partition("=")[0] for entry in environment):
        yield Crossing(f"environment: {name}, whose name is that of a credential")


_Look = Callable[[Inspected, Inspected, Inspected], Iterator[Crossing]]
LOOKS: Final[tuple[_Look, ...]] = (
    _kernel,
    _users,
    _privileges,
    _security,
    _namespaces,
    _network,
    _mounts,
    _devices,
    _credentials,
)


def is_virtual_machine(host: Inspected, info: Inspected) -> bool:
    runtime = host.text("Runtime")
    if runtime is ODD:
        return False
    if runtime in _VIRTUAL_MACHINE_RUNTIMES:
        return True
    entry = info.inner("Runtimes").inner(runtime)
    kind, path = entry.text("runtimeType", ""), entry.text("path", "")
    if kind in _VIRTUAL_MACHINE_RUNTIMES:
        return True
    return path is not ODD and path.rpartition("/")[2] in _VIRTUAL_MACHINE_PROGRAMS


def networks(document: Inspected) -> tuple[str, ...] | OddType:
    networks = document.inner("NetworkSettings").entries("Networks")
    return ODD if networks is ODD else tuple(sorted(networks))


def capability(name: str) -> str:
    upper = name.upper()
    return upper if upper.startswith("CAP_") else f"CAP_{upper}"


def _offers(info: Inspected, option: str) -> bool:
    options = info.texts("SecurityOptions")
    return options is not ODD and any(entry.split(",")[0] == option for entry in options)


def _shown(value: str | OddType) -> str:
    return "not known" if value is ODD else value
