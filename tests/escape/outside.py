"""The outside of a view: what probes want to touch, and where their effects are seen."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import secrets
import signal
import socket
import stat
import struct
import subprocess
import termios
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .probes import CONTROLS, PROBES, Judge, Probe, Targets
from .probes.calls import syscall
from .probes.handles import RulesetAttributes, file_handle

_BACKLOG = 128
_FIRST_DESCRIPTOR = 300
_FS_IOC_GETFLAGS = 0x80086601
_SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc")


def snapshot(path: Path) -> object:
    """All that is to be seen of what is at and below *path*, without access times."""
    try:
        found = path.lstat()
    except OSError as error:
        return error.errno
    facts: list[object] = [found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns, found.st_nlink]
    if stat.S_ISDIR(found.st_mode):
        return [*facts, {entry: snapshot(path / entry) for entry in sorted(os.listdir(path))}]
    if stat.S_ISREG(found.st_mode):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            names = sorted(os.listxattr(descriptor)) if hasattr(os, "listxattr") else []
            facts += [os.read(descriptor, 65536), names, _flags(descriptor)]
        finally:
            os.close(descriptor)
    return facts


def _flags(descriptor: int) -> int:
    try:
        return int(struct.unpack("l", fcntl.ioctl(descriptor, _FS_IOC_GETFLAGS, bytes(8)))[0])
    except OSError:
        return 0


def condition(process: subprocess.Popen[bytes]) -> object:
    """All that can be done to a process from outside."""
    if process.poll() is not None:
        return process.returncode
    state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    pid = process.pid
    return [
        state in "Tt",
        Path(f"/proc/{pid}/limits").read_text(),
        os.getpriority(os.PRIO_PROCESS, pid),
        os.sched_getscheduler(pid),
        sorted(os.sched_getaffinity(pid)),
    ]


@dataclass
class Outside:
    """Made by the host side of a session, under the uid of the session, before its view is.

    Attributes:
        base: Directory that holds it all, outside of every temporary directory.
        python: Interpreter that every user can execute.
        program: Directory of the programs that are run: the probes, and the victim.
    """

    base: Path
    python: str
    program: Path
    probes: dict[str, Probe]
    secret: str = field(default_factory=lambda: f"s{secrets.token_hex(6)}")
    received: bytes = b""
    reached: set[str] = field(default_factory=set[str])
    targets: dict[str, Targets] = field(default_factory=dict[str, Targets])
    servers: dict[str, Any] = field(default_factory=dict[str, Any])
    inherited: list[int] = field(default_factory=list[int])
    _streams: list[socket.socket] = field(default_factory=list[socket.socket])
    _datagrams: list[socket.socket] = field(default_factory=list[socket.socket])
    _sleepers: dict[str, subprocess.Popen[bytes]] = field(
        default_factory=dict[str, "subprocess.Popen[bytes]"]
    )
    _terminals: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    _before: dict[str, object] = field(default_factory=dict[str, object])
    _shared: dict[str, Path] = field(default_factory=dict[str, Path])
    _victim: subprocess.Popen[bytes] | None = None

    def prepare(self, setuid_program: str = "") -> None:
        for name in ("outside", "workspace", "hidden"):
            (self.base / name).mkdir()
        self._listen()
        tokens = {name: f"t{secrets.token_hex(8)}" for name in self.probes}
        memory = [tokens[name] for name, probe in self.probes.items() if probe.judge is Judge.MEMORY]
        victim = self._start_victim(memory)
        for name, probe in self.probes.items():
            self.targets[name] = self._target(probe, tokens[name], victim, setuid_program)
        for name, probe in self.probes.items():
            self._before[name] = self._view(name, probe)

    def _target(self, probe: Probe, token: str, victim: dict[str, Any], setuid_program: str) -> Targets:
        own, inside, hidden = (self.base / kind / probe.name for kind in ("outside", "workspace", "hidden"))
        for directory in (own, own / "directory", own / "root", inside, hidden):
            directory.mkdir()
            directory.chmod(0o777)
        for file, text in (
            (own / "file", "before"),
            (own / "other", "before"),
            (inside / "file", "inside"),
            (hidden / "secret", self.secret),
        ):
            file.write_text(text + "\n")
            file.chmod(0o666)
        handle, handle_type = "", 0
        if probe.name in ("write-by-handle", "read-secret-by-handle"):
            try:
                handle, handle_type = file_handle(
                    str(own / "file" if "write" in probe.name else hidden / "secret")
                )
            except OSError:
                handle = ""
        if probe.name == "write-shared-memory-file" and Path("/dev/shm").is_dir():
            shared = Path("/dev/shm", f"execworld-{token}")
            shared.write_text("before")
            shared.chmod(0o666)
            self._shared[probe.name] = shared
            victim = {**victim, "shm_file": str(shared)}
        return Targets(
            own=str(own),
            inside=str(inside),
            hidden=str(hidden),
            workspace=str(self.base / "workspace"),
            token=token,
            sleeper=self._sleeper(probe) if probe.sleeper else 0,
            descriptor=self._inherit(probe, own) if probe.inherits not in ("", "terminal") else -1,
            handle=handle,
            handle_type=handle_type,
            setuid_program=setuid_program,
            terminal=self._terminal(probe) if probe.judge is Judge.TYPED else "",
            victim=victim,
            servers=self.servers,
        )

    def _start_victim(self, tokens: list[str]) -> dict[str, Any]:
        directory = self.base / "victim"
        directory.mkdir()
        self._victim = subprocess.Popen(
            [self.python, "-S", "-E", "-s", str(self.program / "victim.py"), self.secret],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": "/usr/bin:/bin", "SECRET": self.secret},
            start_new_session=True,
        )
        order = {"secret": self.secret, "directory": str(directory), "tokens": tokens}
        return dict(json.loads(self._ask(json.dumps(order))))

    def _ask(self, line: str) -> bytes:
        assert self._victim is not None
        stdin, stdout = self._victim.stdin, self._victim.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(line.encode() + b"\n")
        stdin.flush()
        return stdout.readline()

    def _sleeper(self, probe: Probe) -> int:
        process = subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True, stdin=subprocess.DEVNULL)
        self._sleepers[probe.name] = process
        return process.pid

    def _inherit(self, probe: Probe, own: Path) -> int:
        """An inheritable descriptor, under a number that nothing in a view has by chance."""
        if probe.inherits == "ruleset":
            opened = syscall(
                "landlock_create_ruleset", RulesetAttributes(2, 0, 0), ctypes.sizeof(RulesetAttributes), 0
            )
        elif probe.inherits == "directory":
            opened = os.open(own, os.O_RDONLY)
        else:
            opened = os.open(own / "file", os.O_WRONLY if probe.inherits == "write" else os.O_RDONLY)
        number = fcntl.fcntl(opened, fcntl.F_DUPFD, _FIRST_DESCRIPTOR)
        os.close(opened)
        os.set_inheritable(number, True)
        self.inherited.append(number)
        return number

    def _terminal(self, probe: Probe) -> str:
        try:
            master, slave = os.openpty()
        except OSError:
            return ""
        os.set_blocking(master, False)
        os.set_blocking(slave, False)
        self._terminals[probe.name] = (master, slave)
        if probe.inherits == "terminal":
            # The host of a view is often a program on somebody's terminal.
            signal.signal(signal.SIGHUP, _stay)
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        return os.ttyname(slave)

    def _listen(self) -> None:
        self.servers["tcp"] = self._stream(socket.AF_INET, ("127.0.0.1", 0))
        self.servers["allowed"] = self._stream(socket.AF_INET, ("127.0.0.1", 0))
        try:
            self.servers["tcp6"] = self._stream(socket.AF_INET6, ("::1", 0))
        except OSError:
            self.servers["tcp6"] = 0
        self.servers["udp"] = self._datagram(socket.AF_INET, ("127.0.0.1", 0))
        sockets = self.base / "sockets"
        sockets.mkdir()
        for kind in ("unix_stream", "unix_datagram", "descriptor_giver"):
            self.servers[kind] = str(sockets / kind)
        self._stream(socket.AF_UNIX, self.servers["unix_stream"])
        self._datagram(socket.AF_UNIX, self.servers["unix_datagram"])
        for kind in ("abstract_stream", "abstract_datagram"):
            self.servers[kind] = f"execworld-{secrets.token_hex(8)}"
        self._stream(socket.AF_UNIX, "\0" + self.servers["abstract_stream"])
        self._datagram(socket.AF_UNIX, "\0" + self.servers["abstract_datagram"])
        self.servers["interfaces"] = [name for _, name in socket.if_nameindex()]
        for kind, family, type_, protocol in (
            ("mptcp", socket.AF_INET, socket.SOCK_STREAM, 262),
            ("vsock", 40, socket.SOCK_STREAM, 0),
            ("sctp", socket.AF_INET, socket.SOCK_STREAM, 132),
            ("alg", 38, socket.SOCK_SEQPACKET, 0),
        ):
            try:
                socket.socket(family, type_, protocol).close()
            except OSError:
                self.servers[kind] = False
            else:
                self.servers[kind] = True
        giver = socket.socket(socket.AF_UNIX)
        giver.bind(self.servers["descriptor_giver"])
        giver.listen(_BACKLOG)
        threading.Thread(target=_give, args=(giver,), daemon=True).start()

    def _stream(self, family: int, address: Any) -> int:
        server = socket.socket(family)
        try:
            server.bind(address)
            server.listen(_BACKLOG)
        except OSError:
            server.close()
            raise
        server.setblocking(False)
        self._streams.append(server)
        return int(server.getsockname()[1]) if family != socket.AF_UNIX else 0

    def _datagram(self, family: int, address: Any) -> int:
        server = socket.socket(family, socket.SOCK_DGRAM)
        server.bind(address)
        server.setblocking(False)
        self._datagrams.append(server)
        return int(server.getsockname()[1]) if family != socket.AF_UNIX else 0

    def order(self, names: list[str]) -> dict[str, Any]:
        """The input of the program in the world."""
        return {name: asdict(self.targets[name]) for name in names}

    @property
    def command(self) -> list[str]:
        """The program in the world."""
        return [self.python, "-S", "-E", "-s", str(self.program / "probes" / "attempt.py")]

    @property
    def write_roots(self) -> tuple[str, ...]:
        """What a policy that lets something be written lets be written beside the workspace."""
        roots = (
            self.base / "outside" / probe / "root"
            for probe in ("rename-writable-root", "remove-writable-root")
        )
        return tuple(str(root) for root in roots if root.is_dir())

    @property
    def readable(self) -> tuple[str, ...]:
        """What a program needs to read, and what probes must be able to name: all but what is hidden."""
        system = {os.path.realpath(path) for path in (*_SYSTEM, Path(self.python).parents[1])}
        return tuple(sorted({*filter(os.path.isdir, system), str(self.program), str(self.base / "outside")}))

    def visit(self, port: int, token: str) -> None:
        """Try to reach a listener of a probe."""
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as connection:
                connection.settimeout(1)
                if connection.recv(256) == token.encode():
                    self.reached.add(token)
        except OSError:
            pass

    def collect(self) -> None:
        """Take in what came while the probes ran; all of them ended."""
        for server in self._streams:
            while True:
                try:
                    connection, _ = server.accept()
                except BlockingIOError:
                    break
                with connection:
                    connection.settimeout(1)
                    try:
                        while data := connection.recv(65536):
                            self.received += data + b"\n"
                    except OSError:
                        pass
        for server in self._datagrams:
            while True:
                try:
                    self.received += server.recv(65536) + b"\n"
                except BlockingIOError:
                    break
        for name, ends in self._terminals.items():
            for end in ends:
                try:
                    self.received += os.read(end, 65536) + b"\n"
                except OSError:
                    continue
            assert name in self.probes

    def _view(self, name: str, probe: Probe) -> object:
        if probe.judge is Judge.VICTIM:
            return condition(self._sleepers[name])
        return [
            snapshot(self.base / "outside" / name),
            snapshot(self._shared.get(name, Path("/nonexistent"))),
        ]

    def effect(self, name: str, outcome: str, said: str) -> bool:
        """Whether the effect of a probe is to be seen."""
        probe, token = self.probes[name], self.targets[name].token.encode()
        if probe.judge is Judge.SAID:
            return outcome == "effect"
        if probe.judge is Judge.TOLD:
            return self.secret in said
        if probe.judge in (Judge.RECEIVED, Judge.TYPED):
            return token in self.received
        if probe.judge is Judge.REACHED:
            return token.decode() in self.reached
        if probe.judge is Judge.MEMORY:
            return token.decode() in json.loads(self._ask(""))
        return self._view(name, probe) != self._before[name]

    def results(self, names: list[str], text: str) -> dict[str, dict[str, Any]]:
        """What became of each probe, as the program in the world told and as it is to be seen here.

        Raises:
            RuntimeError: of some it told nothing.
        """
        self.collect()
        reports: dict[str, dict[str, Any]] = {}
        for line in text.splitlines():
            if line.startswith("{"):
                report = json.loads(line)
                if report.get("probe") in names and "outcome" in report:
                    reports[report["probe"]] = report
        if silent := [name for name in names if name not in reports]:
            raise RuntimeError(f"no report of {', '.join(silent)}: {text[-4000:]}")
        found: dict[str, dict[str, Any]] = {}
        for name, report in reports.items():
            said = str(report.get("said") or report.get("error") or report.get("reason") or "")
            what = report["outcome"]
            effect = self.effect(name, what, said)
            found[name] = {
                "outcome": what,
                "effect": effect,
                "detail": said[:2000].replace(self.secret, "SECRET"),
            }
        return found

    def close(self) -> None:
        for server in (*self._streams, *self._datagrams):
            server.close()
        for process in self._sleepers.values():
            process.kill()
            process.wait()
        for ends in self._terminals.values():
            for end in ends:
                os.close(end)
        for descriptor in self.inherited:
            os.close(descriptor)
        for path in self._shared.values():
            path.unlink(missing_ok=True)
        if self._victim is not None:
            self._victim.communicate()


def _stay(number: int, frame: object) -> None:
    """The end of its terminal is no reason for a host to end; unlike SIG_IGN, its children do not inherit this."""


def _give(server: socket.socket) -> None:
    """Open what each client names, and hand it over."""
    while True:
        connection, _ = server.accept()
        with connection:
            connection.settimeout(5)
            try:
                path = b""
                while not path.endswith(b"\0"):
                    path += connection.recv(4096)
                descriptor = os.open(path[:-1], os.O_WRONLY)
                socket.send_fds(connection, [b"x"], [descriptor])
                os.close(descriptor)
            except OSError:
                continue


def unlimited_core() -> None:
    """Let the children of this process dump core where it may."""
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))


def chosen(names: list[str]) -> dict[str, Probe]:
    table = {**PROBES, **CONTROLS}
    return {name: table[name] for name in names}
