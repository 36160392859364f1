"""Container engines for tests: the one of this host, and one of a test's own that may be killed.

A second daemon in the network namespace of the first deletes the first one's bridge. So it gets namespaces of its own:
for the network, for mounts, and for processes, so that all that it started, containers too, ends with the first process
in there, whatever became of the daemon.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

SHARED_SOCKET = Path("/var/run/docker.sock")
_REQUEST = b"GET /_ping HTTP/1.0\r\n\r\n"
_REAP = """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("up", flush=True)
while True:
    signal.pause()
"""
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def why_silent(path: Path) -> str:
    """Why no engine answers at a socket; empty when one does."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(os.fspath(path))
            connection.sendall(_REQUEST)
            answer = connection.recv(4096)
    except OSError as error:
        return f"no engine answers at {path}: {error.strerror or error}"
    return "" if b" 200 " in answer else f"what answers at {path} is no engine: {answer[:80]!r}"


def wait_until(condition: Callable[[], bool], failure: Callable[[], str], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() >= deadline:
            raise AssertionError(failure())
        time.sleep(0.02)


class Engine:
    """An engine that answers at a socket."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    def docker(self, *arguments: str, stdin: int | None = None, check: bool = True) -> str:
        """What the docker command prints. What the environment says of other engines does not matter to it."""
        finished = subprocess.run(
            ["docker", "--host", self.url, *arguments],
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert not check or finished.returncode == 0, finished.stderr
        return finished.stdout.strip()


class OwnEngine(Engine):
    """A daemon of one test. Needs root.

    Its containers have no network but `none` and `host`, and it has no image but those that `load` brought.
    """

    START_LIMIT_S = 20.0

    def __init__(self) -> None:
        # Short: a socket's path has at most 107 bytes, and the daemon makes longer ones below.
        self.directory = Path(tempfile.mkdtemp(prefix="eng-", dir="/tmp"))
        super().__init__(self.directory / "sock")
        (self.directory / "config").write_text("{}")  # instead of what this host has configured
        self.cgroup = f"engine-of-test-{secrets.token_hex(4)}"
        self._first: subprocess.Popen[bytes] | None = None
        self._daemon: subprocess.Popen[bytes] | None = None
        self.pid = 0

    def start(self, *options: str) -> None:
        """Start the daemon, and wait until it answers."""
        assert self.pid == 0, "it runs already"
        if self._first is None:
            self._first = self._make_namespaces()
        with (self.directory / "log").open("ab") as log:
            self._daemon = subprocess.Popen(
                [
                    *("nsenter", "--target", str(self._first_inside()), "--net", "--mount", "--pid", "--"),
                    *("dockerd", "--host", self.url, "--bridge", "none", "--iptables=false"),
                    *("--data-root", f"{self.directory}/data", "--exec-root", f"{self.directory}/exec"),
                    *("--pidfile", f"{self.directory}/pid", "--cgroup-parent", f"/{self.cgroup}"),
                    *("--config-file", f"{self.directory}/config", "--shutdown-timeout", "2", *options),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PATH": _SYSTEM_PATH, "DOCKER_TMPDIR": f"{self.directory}/tmp"},
            )
        daemon = self._daemon
        wait_until(
            lambda: daemon.poll() is not None or not why_silent(self.path),
            lambda: f"it did not answer in {self.START_LIMIT_S} s:\n{self._last_words()}",
            self.START_LIMIT_S,
        )
        assert daemon.poll() is None, f"the daemon ended:\n{self._last_words()}"
        self.pid = _only_child(daemon.pid)

    def stop(self) -> None:
        """Stop the daemon in order. Its containers end first, unless it was started to let them live."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the daemon; what it started keeps running, without it."""
        self._end(signal.SIGKILL)

    def limit_disk(self, limit_bytes: int) -> None:
        """Let the engine have that much room for all it keeps. While it is stopped, and before it holds anything."""
        assert self.pid == 0, "it runs"
        shutil.rmtree(f"{self.directory}/data", ignore_errors=True)
        os.mkdir(f"{self.directory}/data")
        options = f"size={limit_bytes}"
        self._inside("mount", "-t", "tmpfs", "-o", options, "engine-of-test", f"{self.directory}/data")

    def fill_disk(self) -> None:
        """Leave no room at all."""
        full = f"dd if=/dev/zero of={self.directory}/data/filling bs=64k 2>&1 | grep -q 'No space left'"
        self._inside("sh", "-c", full)

    def load(self, engine: Engine, image: str) -> None:
        """Take an image over from another engine."""
        with tempfile.TemporaryFile() as archive:
            subprocess.run(
                ["docker", "--host", engine.url, "save", image], stdout=archive, check=True, timeout=60
            )
            archive.seek(0)
            self.docker("load", stdin=archive.fileno())

    def close(self) -> None:
        """Kill the daemon and all that it ever started, and remove every trace."""
        if self._first is not None:
            self._first.kill()  # with --kill-child, the first process inside goes too, and takes all with it
            self._first.wait()
        if self._daemon is not None:
            self._daemon.wait(30)
        wait_until(lambda: not self.processes(), lambda: f"still there: {self.processes()}", 10)
        shutil.rmtree(self.directory)
        wait_until(self._groups_removed, lambda: f"still used: {self.control_groups()}", 10)

    def processes(self) -> list[int]:
        """Processes whose arguments name the directory: daemon, its containerd, shims."""
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    arguments = (entry / "cmdline").read_bytes()
                except OSError:
                    continue  # it ended meanwhile
                if os.fsencode(self.directory) in arguments:
                    found.append(int(entry.name))
        return found

    def control_groups(self) -> list[Path]:
        """Innermost first."""
        root = Path("/sys/fs/cgroup")
        parents = [root, *root.iterdir()]
        tops = [path / self.cgroup for path in parents if (path / self.cgroup).is_dir()]
        return [Path(path) for top in tops for path, _, _ in os.walk(top, topdown=False)]

    def _groups_removed(self) -> bool:
        for group in self.control_groups():
            try:
                group.rmdir()
            except OSError as error:
                if error.errno != errno.EBUSY:  # what ended leaves its group a moment later
                    raise
        return not self.control_groups()

    def _make_namespaces(self) -> subprocess.Popen[bytes]:
        # Not sysfs: the daemon would find no control groups in a new one. What a killed daemon leaves behind becomes a
        # child of the first process and must not stay a zombie: the next daemon would take it for running.
        first = subprocess.Popen(
            [
                *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"),
                *("sh", "-c", 'ip link set lo up && exec "$@"', "sh"),
                *(sys.executable, "-I", "-c", _REAP, str(self.directory)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=os.environ | {"PATH": _SYSTEM_PATH},
        )
        assert first.stdout is not None
        with first.stdout as said:
            up = said.readline() == b"up\n"
        if not up:
            first.wait()
            raise AssertionError("namespaces cannot be made")
        return first

    def _inside(self, *command: str) -> None:
        where = ("nsenter", "--target", str(self._first_inside()), "--mount", "--")
        subprocess.run([*where, *command], check=True, timeout=60)

    def _first_inside(self) -> int:
        assert self._first is not None
        return _only_child(self._first.pid)

    def _end(self, number: signal.Signals) -> None:
        assert self._daemon is not None
        assert self.pid, "it does not run"
        os.kill(self.pid, number)
        self._daemon.wait(30)
        self.pid = 0

    def _last_words(self) -> str:
        lines = (self.directory / "log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-20:])


def has_process(argument: str) -> bool:
    """Whether a process of this host was started with *argument*."""
    wanted = argument.encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # it ended meanwhile
            if wanted in words[1:]:
                return True
    return False


def _only_child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert len(children) == 1, f"process {pid} has {len(children)} children"
    return int(children[0])
