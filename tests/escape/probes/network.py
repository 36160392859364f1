"""The network, by every protocol that reaches a neighbour."""

from __future__ import annotations

import ctypes
import os
import socket
import struct

from .kernel import ring
from .table import Judge, Targets, Twin, Void, probe

_TCP = "network namespace; seccomp; Landlock from ABI 4"
_OTHER = "network namespace; seccomp"
MPTCP, MSG_FASTOPEN = 262, 0x20000000
_VISIT_S = 1.5
EAFNOSUPPORT, EPROTONOSUPPORT, ESOCKTNOSUPPORT = 97, 93, 94


def _unknown(error: OSError) -> bool:
    return error.errno in (EAFNOSUPPORT, EPROTONOSUPPORT, ESOCKTNOSUPPORT)


def _deliver(connection: socket.socket, address: tuple[str, int], token: str) -> None:
    connection.settimeout(3)
    connection.connect(address)
    connection.sendall(token.encode())


@probe(47, "net.tcp", Judge.RECEIVED, _TCP)
def connect_tcp(t: Targets) -> None:
    """Connect to a TCP port that is not allowed."""
    with socket.socket() as connection:
        _deliver(connection, ("127.0.0.1", t.servers["tcp"]), t.token)


@probe(47, "net.tcp", Judge.RECEIVED, _TCP)
def connect_tcp6(t: Targets) -> None:
    """The same over IPv6."""
    if not t.servers.get("tcp6"):
        raise Void("the machine has no IPv6")
    with socket.socket(socket.AF_INET6) as connection:
        _deliver(connection, ("::1", t.servers["tcp6"]), t.token)


@probe(47, "net.tcp", Judge.RECEIVED, _TCP)
def connect_mapped_address(t: Targets) -> None:
    """The same with an IPv4 address on an IPv6 socket."""
    if not t.servers.get("tcp6"):
        raise Void("the machine has no IPv6")
    with socket.socket(socket.AF_INET6) as connection:
        _deliver(connection, ("::ffff:127.0.0.1", t.servers["tcp"]), t.token)


@probe(47, "net.tcp", Judge.REACHED, _TCP)
def listen_tcp(t: Targets) -> None:
    """Bind a TCP port and be reached from outside."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        _await_visit(server, t)


@probe(50, "net.tcp", Judge.REACHED, "network namespace; seccomp")
def listen_without_bind(t: Targets) -> None:
    """Listen on a port that the kernel chooses, without bind(2)."""
    with socket.socket() as server:
        server.listen()
        _await_visit(server, t)


def _await_visit(server: socket.socket, t: Targets) -> None:
    server.settimeout(_VISIT_S)
    os.write(
        1, b'{"probe": "", "listening": %d, "token": "%s"}\n' % (server.getsockname()[1], t.token.encode())
    )
    try:
        visitor, _ = server.accept()
    except TimeoutError:
        raise PermissionError(13, "nobody came") from None
    visitor.sendall(t.token.encode())
    visitor.close()


@probe(48, "net.tcp", Judge.RECEIVED, "network namespace; seccomp")
def send_with_fast_open(t: Targets) -> None:
    """Send with the first segment (TCP Fast Open), without connect(2)."""
    with socket.socket() as connection:
        connection.sendto(t.token.encode(), MSG_FASTOPEN, ("127.0.0.1", t.servers["tcp"]))


@probe(48, "net.tcp", Judge.RECEIVED, "network namespace; seccomp; Landlock from ABI 4")
def connect_with_fast_open(t: Targets) -> None:
    """The same by a socket option (TCP_FASTOPEN_CONNECT)."""
    with socket.socket() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, 30, 1)
        _deliver(connection, ("127.0.0.1", t.servers["tcp"]), t.token)


@probe(49, "net.tcp", Judge.RECEIVED, "network namespace; seccomp")
def connect_mptcp(t: Targets) -> None:
    """Connect with multipath TCP."""
    try:
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP)
    except OSError as error:
        if _unknown(error) and not t.servers.get("mptcp"):
            raise Void("the kernel has no multipath TCP") from None
        raise
    with connection:
        _deliver(connection, ("127.0.0.1", t.servers["tcp"]), t.token)


@probe(21, "net.tcp", Judge.RECEIVED, "network namespace; seccomp; Landlock from ABI 4")
def connect_by_ring(t: Targets) -> None:
    """Make a socket and connect with io_uring(7)."""
    requests = ring()
    descriptor = requests.run(45, socket.AF_INET, socket.SOCK_STREAM, 0, 0, 0)
    address = ctypes.create_string_buffer(
        struct.pack("=H", socket.AF_INET)
        + struct.pack("!H", t.servers["tcp"])
        + socket.inet_aton("127.0.0.1"),
        16,
    )
    requests.run(16, descriptor, 16, ctypes.addressof(address), 0, 0)
    os.write(descriptor, t.token.encode())


@probe(51, "net.udp", Judge.RECEIVED, _OTHER)
def send_udp(t: Targets) -> None:
    """Send a UDP datagram."""
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.sendto(t.token.encode(), ("127.0.0.1", t.servers["udp"]))


@probe(51, "net.udp", Judge.RECEIVED, _OTHER)
def send_udp_connected(t: Targets) -> None:
    """Connect a UDP socket and send."""
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", t.servers["udp"]))
        sender.send(t.token.encode())


@probe(51, None, Judge.SAID, allowed="programs list the network interfaces; to change one takes a capability")
def list_interfaces(t: Targets) -> None:
    """Ask the kernel for the network interfaces (netlink)."""
    answer = _ask_route(18, 0x301, 0)  # RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP
    if not [name for name in t.servers.get("interfaces", []) if name.encode() + b"\0" in answer]:
        raise PermissionError(13, "none of the interfaces of the host")


@probe(51, None, Judge.SAID, "no CAP_NET_ADMIN; seccomp", twin=Twin.NAMESPACE)
def change_interface(t: Targets) -> None:
    """Change an interface; to what it is (netlink)."""
    answer = _ask_route(19, 5, 1)  # RTM_SETLINK, NLM_F_REQUEST | NLM_F_ACK, of lo
    (error,) = struct.unpack_from("=i", answer, 16)
    if error:
        raise OSError(-error, os.strerror(-error))


def _ask_route(kind: int, flags: int, index: int) -> bytes:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        link.settimeout(3)
        link.sendto(struct.pack("=IHHII BxHiII", 32, kind, flags, 1, 0, 0, 0, index, 0, 0), (0, 0))
        return link.recv(65536)


@probe(51, "net.other", Judge.SAID, _OTHER)
def open_socket_diagnosis(t: Targets) -> None:
    """Ask for the sockets of all (netlink, NETLINK_SOCK_DIAG)."""
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4).close()


@probe(51, "net.other", Judge.SAID, _OTHER)
def open_vsock(t: Targets) -> None:
    """Open a socket to the host of a virtual machine (vsock)."""
    try:
        socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()
    except OSError as error:
        if _unknown(error) and not t.servers.get("vsock"):
            raise Void("the kernel has no vsock") from None
        raise


@probe(51, "net.other", Judge.RECEIVED, _OTHER, privileged=True)
def send_raw(t: Targets) -> None:
    """Send a datagram with headers of its own (raw socket)."""
    payload = t.token.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP) as sender:
        header = struct.pack("!HHHH", 40000, t.servers["udp"], 8 + len(payload), 0)
        sender.sendto(header + payload, ("127.0.0.1", 0))


@probe(41, "net.other", Judge.SAID, f"{_OTHER}; no CAP_NET_RAW", privileged=True)
def open_packet_socket(t: Targets) -> None:
    """Listen to all packets."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as listener:
        names = [name for name in t.servers.get("interfaces", []) if name != "lo"]
        if names:
            listener.bind((names[0], 0))


@probe(51, "net.other", Judge.SAID, _OTHER)
def open_sctp(t: Targets) -> None:
    """Open an SCTP socket."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132).close()
    except OSError as error:
        if _unknown(error) and not t.servers.get("sctp"):
            raise Void("the kernel has no SCTP") from None
        raise


@probe(51, "net.other", Judge.SAID, "seccomp")
def open_kernel_cipher(t: Targets) -> None:
    """Open a socket to the ciphers of the kernel (AF_ALG)."""
    try:
        socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET).close()
    except OSError as error:
        if _unknown(error) and not t.servers.get("alg"):
            raise Void("the kernel has no such sockets") from None
        raise
