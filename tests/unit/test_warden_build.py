"""Which compiler makes the warden, and that without any the package ``ziglang`` does."""

from __future__ import annotations

import importlib.util
import os
import platform
import socket
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
FULL = os.environ.get("EXECWORLD_FULL") == "1"
WORKS = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
: > "$2"
"""
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="a host of its own kind compiles for Linux only"
)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name in ("EXECWORLD_CC", "EXECWORLD_WARDEN_ARCH"):
        monkeypatch.delenv(name, raising=False)
    path = ROOT / "build_backend" / "warden_compiler.py"
    spec = importlib.util.spec_from_file_location("warden_compiler", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def put(directory: Path, name: str, script: str) -> Path:
    directory.mkdir(exist_ok=True)
    file = directory / name
    file.write_text(script)
    file.chmod(0o755)
    return file


def test_the_first_that_makes_static_programs_is_taken(
    compiler: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tried and not trusted: one that is there and fails is passed over."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    put(tmp_path / "bin", "musl-gcc", "#!/bin/sh\nexit 1\n")
    found = put(tmp_path / "bin", "gcc", WORKS)
    put(tmp_path / "bin", "clang", WORKS)
    assert compiler.find_compiler(platform.machine()) == [str(found)]
    assert not compiler.needs_zig()


def test_without_any_the_build_requires_zig(
    compiler: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Unless no warden is wanted, or a compiler is named."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compiler.needs_zig()
    monkeypatch.setenv("EXECWORLD_WARDEN_ARCH", "none")
    assert not compiler.needs_zig()
    monkeypatch.delenv("EXECWORLD_WARDEN_ARCH")
    monkeypatch.setenv("EXECWORLD_CC", "/opt/cross/bin/cc --sysroot=/x")
    assert compiler.find_compiler(platform.machine()) == ["/opt/cross/bin/cc", "--sysroot=/x"]
    assert not compiler.needs_zig()


def test_without_any_and_without_zig_the_error_says_what_to_install(
    compiler: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    def no_zig(architecture: str) -> None:
        return None

    monkeypatch.setattr(compiler, "zig_compiler", no_zig)
    with pytest.raises(compiler.NoCompiler, match="musl-tools"):
        compiler.compile_warden("x86_64", tmp_path / "warden")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not FULL, reason="downloads a compiler and takes minutes: set EXECWORLD_FULL")
def test_a_wheel_is_built_where_there_is_no_compiler(tmp_path: Path) -> None:
    """In a clean environment with nothing on its path but a shell; what comes out greets."""
    venv.create(tmp_path / "venv", with_pip=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    command = [
        str(tmp_path / "venv/bin/python"),
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "-w",
        str(tmp_path / "dist"),
    ]
    subprocess.run([*command, str(ROOT)], check=True, env={**os.environ, "PATH": str(tmp_path / "bin")})
    (wheel,) = (tmp_path / "dist").glob("execworld-*.whl")
    name = f"execworld/machine/warden/bin/warden-{platform.machine()}"
    with zipfile.ZipFile(wheel) as archive:
        warden = Path(archive.extract(name, tmp_path))
    warden.chmod(0o755)
    ours, theirs = socket.socketpair()
    with ours, subprocess.Popen([str(warden)], stdin=theirs.fileno(), stdout=theirs.fileno()) as process:
        theirs.close()
        assert ours.recv(16, socket.MSG_WAITALL) == b"EXECWORLD-WARD\r\n"
        ours.shutdown(socket.SHUT_WR)
        assert process.wait(20) == 0
