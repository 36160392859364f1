"""Terminals of whoever made the view."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios

from .table import Judge, Targets, Twin, Void, probe

_TIOCSTI = 0x5412


def _type(descriptor: int, text: str) -> None:
    for byte in text.encode() + b"\n":
        fcntl.ioctl(descriptor, _TIOCSTI, struct.pack("B", byte))


@probe(52, None, Judge.TYPED, "seccomp; no terminal of the host is inherited; Landlock; a private devpts")
def type_into_terminal(t: Targets) -> None:
    """Take a terminal outside as the controlling one and type into it (TIOCSTI)."""
    if not t.terminal:
        raise Void("no terminal could be made")
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            os.setsid()
            descriptor = os.open(t.terminal, os.O_RDWR)
            _type(descriptor, t.token)
        except OSError as error:
            code = error.errno or 5
        os._exit(code)
    _, status = os.waitpid(pid, 0)
    if code := os.waitstatus_to_exitcode(status):
        raise OSError(code, "in the child")


@probe(
    52,
    None,
    Judge.TYPED,
    "commands run in sessions of their own; seccomp",
    twin=Twin.DIRECT,
    inherits="terminal",
)
def type_into_controlling_terminal(t: Targets) -> None:
    """Type into the controlling terminal of whoever made the view (TIOCSTI)."""
    _type(os.open("/dev/tty", os.O_RDWR), t.token)


@probe(53, "fs.write", Judge.TYPED, "Landlock; a private devpts")
def write_to_terminal(t: Targets) -> None:
    """Write to a terminal outside."""
    if not t.terminal:
        raise Void("no terminal could be made")
    descriptor = os.open(t.terminal, os.O_RDWR | os.O_NOCTTY)
    os.write(descriptor, t.token.encode() + b"\n")


@probe(54, None, Judge.SAID, allowed="a terminal of one's own is needed by ordinary programs")
def open_terminal(t: Targets) -> None:
    """Open a new terminal."""
    master, slave = pty.openpty()
    termios.tcgetattr(slave)
    os.close(master)
