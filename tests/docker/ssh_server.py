"""A server of SSH of a test's own, on the loopback interface, and a home that knows it."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

_PATH: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_START_TIMEOUT_S: Final = 20.0
_CONFIGURATION: Final = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
MaxSessions {sessions}
"""


@dataclass(frozen=True)
class SshServer:
    """Attributes:
    address: Of the engine behind it, for the option `host`.
    home: What has the key, and knows the server.
    """

    address: str
    home: Path


def why_no_ssh_server() -> str:
    """What is lacking here; empty when nothing is."""
    missing = [name for name in ("sshd", "ssh-keygen") if shutil.which(name, path=_PATH) is None]
    return f"a server of SSH needs {' and '.join(missing)}: sh scripts/ci-tools brings it" if missing else ""


@contextmanager
def run_ssh_server(folder: Path, *, sessions: int = 10) -> Generator[SshServer]:
    """Args:
    sessions: How many it allows on one connection.
    """
    home = folder / "home"
    keys = home / ".ssh"
    keys.mkdir(parents=True, mode=0o700)
    for path in (folder / "host_key", keys / "id_ed25519"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    shutil.copy(keys / "id_ed25519.pub", folder / "authorized_keys")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    known = f"[127.0.0.1]:{port} {(folder / 'host_key.pub').read_text()}"
    (keys / "known_hosts").write_text(known)
    configuration = folder / "sshd_config"
    configuration.write_text(_CONFIGURATION.format(port=port, folder=folder, sessions=sessions))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where it locks itself in before it knows who asks
    program = shutil.which("sshd", path=_PATH)
    assert program is not None
    said = folder / "said"
    server = subprocess.Popen([program, "-D", "-f", configuration, "-E", said])
    try:
        _wait_for(port, server, said)
        yield SshServer(f"ssh://{pwd.getpwuid(os.geteuid()).pw_name}@127.0.0.1:{port}", home)
    finally:
        server.terminate()
        server.wait(10)


@contextmanager
def at_home(server: SshServer) -> Generator[None]:
    """With the keys of *server* alone: no agent of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", os.fspath(server.home))
        patch.delenv("SSH_AUTH_SOCK", raising=False)
        yield


def _wait_for(port: int, server: subprocess.Popen[bytes], said: Path) -> None:
    give_up_at_s = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert server.poll() is None, said.read_text()
            assert time.monotonic() < give_up_at_s, said.read_text()
            time.sleep(0.02)
        else:
            return
