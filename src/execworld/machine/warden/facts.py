"""Greetings of both sides: sections 4 and 5 of the protocol."""

from __future__ import annotations

import struct
import time
from typing import Final

from execworld.machine.base import MachineFacts
from execworld.machine.warden.frames import HOST_PREAMBLE, VERSION, HostMessage, encode_message
from execworld.machine.warden.numbers import host_errno
from execworld.machine.warden.wire import Cursor, Malformed
from execworld.seams.results import KillMethod
from execworld.seams.values import record

_HELLO: Final = struct.Struct("<HHIIII")
_KILL_METHODS: Final = (
    KillMethod.NOT_NEEDED,
    KillMethod.CGROUP,
    KillMethod.PID_NAMESPACE,
    KillMethod.SUBREAPER,
)
_NO_CGROUPS, _TAKES_DESCRIPTORS = 1, 2
_MAX_LEASE_S: Final = 86_400.0


@record
class LinkSettings:
    """How this side holds the link.

    Attributes:
        stream_credit_bytes: What one stream may send ahead of its reader.
        stream_floor_bytes: What a stream may always send ahead, however much the others hold.
        window_bytes: What all streams together may send ahead, beside their floors. This side holds at most the window
            and one floor a stream.
        lease_s: The warden ends when it hears nothing for so long, and so does this side; None on a link that cannot
            fail in silence.
        cgroups: Whether the warden may make control groups for commands; the strongest way to end a tree, and some
            milliseconds a command.
        open_timeout_s: For the greeting.
        answer_timeout_s: For the answer to a request that waits for nothing outside the warden. One that answers
            heartbeats and not this does not do what it is told, and the world ends. It gives up a tree after 16 s.
        close_timeout_s: For the answer to the request to end; the warden itself gives up sweeping after 10 s.
    """

    stream_credit_bytes: int = 256 * 1024
    stream_floor_bytes: int = 4 * 1024
    window_bytes: int = 8 * 1024 * 1024
    lease_s: float | None = None
    cgroups: bool = True
    open_timeout_s: float = 30.0
    answer_timeout_s: float = 120.0
    close_timeout_s: float = 15.0

    def __post_init__(self) -> None:
        if not 512 <= 2 * self.stream_floor_bytes <= self.stream_credit_bytes < 2**31:
            raise ValueError(
                "stream_floor_bytes must be at least 256 and at most half of stream_credit_bytes"
            )
        if not 0 < self.window_bytes < 2**31:
            raise ValueError(f"window_bytes must be positive and less than 2**31, got {self.window_bytes}")
        if self.lease_s is not None and not 1.0 <= self.lease_s <= _MAX_LEASE_S:
            raise ValueError(f"lease_s must lie between 1 and {_MAX_LEASE_S:.0f}, got {self.lease_s}")

    @property
    def lease_ms(self) -> int:
        return 0 if self.lease_s is None else int(self.lease_s * 1000)


def encode_greeting(settings: LinkSettings, *, takes_descriptors: bool = False) -> bytes:
    body = _HELLO.pack(
        VERSION,
        (0 if settings.cgroups else _NO_CGROUPS) | (_TAKES_DESCRIPTORS if takes_descriptors else 0),
        settings.stream_credit_bytes,
        settings.stream_floor_bytes,
        settings.window_bytes,
        settings.lease_ms,
    )
    return HOST_PREAMBLE + b"".join(encode_message(HostMessage.HELLO, 0, body))


class WrongVersion(Exception):
    """The warden speaks another version of the protocol."""

    def __init__(self, version: int) -> None:
        super().__init__(f"the warden speaks version {version} of the protocol, not {VERSION}")


@record
class WardenFacts:
    """What the warden says of itself and of the place that it runs in.

    Attributes:
        build_id: Tells builds of one version apart.
        max_steps: Of one batch.
        input_window_bytes: Unanswered input of one handle.
        pid: Of the warden, 1 when it is the init of the world.
        landlock_abi: 0 for none; *landlock_error* tells why then, an errno of this host.
        landlock_errata: A bit mask, *namespaces* and *cgroup* too (section 5).
        machine: What any machine knows.
    """

    build_id: str
    max_steps: int
    input_window_bytes: int
    pid: int
    umask: int
    landlock_abi: int
    landlock_errata: int
    landlock_error: int
    namespaces: int
    cgroup: int
    cgroup_path: bytes
    machine: MachineFacts


def decode_facts(body: bytes) -> WardenFacts:
    """Raises:
    Malformed: *body* is no greeting.
    WrongVersion: it is one of another version.
    """
    received_ns = time.time_ns()
    cursor = Cursor(body)
    version = cursor.u16()
    if version != VERSION:
        raise WrongVersion(version)
    build_id = _text(cursor.byte_string())
    max_body, max_message, max_steps, input_window = (
        cursor.u32(),
        cursor.u32(),
        cursor.u16(),
        cursor.u32(),
    )
    arch, kernel, host_name, boot_id = (_text(cursor.byte_string()) for _ in range(4))
    pid_namespace, init_start = cursor.u64(), cursor.u64()
    pid, uid, gid, umask = cursor.i32(), cursor.u32(), cursor.u32(), cursor.u32()
    user, home, cwd = _text(cursor.byte_string()), cursor.byte_string(), cursor.byte_string()
    temp_roots = tuple(cursor.byte_string() for _ in range(cursor.u32()))
    environment = tuple((cursor.byte_string(), cursor.byte_string()) for _ in range(cursor.u32()))
    clock_ns = cursor.i64()
    kill_method = decode_kill_method(cursor.u8())
    landlock_abi, errata, namespaces, cgroup = cursor.u16(), cursor.u32(), cursor.u32(), cursor.u32()
    cgroup_path = cursor.byte_string()
    if max_body != 1024 * 1024 or max_message != 16 * max_body or not max_steps or input_window < 4096:
        raise Malformed("limits in the greeting that this version does not have")
    if not all(path.startswith(b"/") for path in (home, cwd, *temp_roots)):
        raise Malformed("a directory in the greeting is not absolute")
    return WardenFacts(
        build_id=build_id,
        max_steps=max_steps,
        input_window_bytes=input_window,
        pid=pid,
        umask=umask,
        landlock_abi=landlock_abi,
        landlock_errata=errata if landlock_abi else 0,
        landlock_error=0 if landlock_abi else host_errno(errata),
        namespaces=namespaces,
        cgroup=cgroup,
        cgroup_path=cgroup_path,
        machine=MachineFacts(
            os="linux",
            arch=arch,
            kernel=kernel,
            user=user,
            uid=uid,
            gid=gid,
            home=home,
            cwd=cwd,
            temp_roots=temp_roots,
            host_instance=f"{host_name}/{boot_id or 'unknown-boot'}/{pid_namespace}.{init_start}",
            kill_method=kill_method,
            environment=environment,
            clock_offset_s=(clock_ns - received_ns) / 1e9,
        ),
    )


def decode_kill_method(number: int) -> KillMethod:
    if number >= len(_KILL_METHODS):
        raise Malformed(f"kill method {number}")
    return _KILL_METHODS[number]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
