"""A place in the file system that stops answering."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SERVER = Path(__file__).with_name("silent_fuse.py")


@dataclass(frozen=True, slots=True)
class Silent:
    """Mounted at `directory`, with `file` and `directory` in it."""

    directory: Path
    server: subprocess.Popen[bytes]

    def path(self, name: str) -> bytes:
        return os.fsencode(self.directory / name)

    def fall_silent(self) -> None:
        """From now on whatever asks it anything waits, and cannot be killed."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(b"\n")
        self.server.stdin.flush()
        assert self.server.stdout.readline() == b"silent\n"


def why_not() -> str:
    if sys.platform != "linux":
        return "FUSE as of Linux is needed"
    if os.geteuid() != 0:
        return "only root may mount"
    return "" if os.path.exists("/dev/fuse") else "there is no /dev/fuse"


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Silent]:
    if reason := why_not():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    directory = tmp_path / "silent"
    directory.mkdir()
    server = subprocess.Popen(
        [sys.executable, str(SERVER), str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == b"mounted\n"
        yield Silent(directory, server)
    finally:
        server.kill()  # what still waits fails now
        server.wait()
        server.stdin.close()
        server.stdout.close()
        subprocess.run(["umount", "--lazy", str(directory)], check=True)
