"""Compile the warden: with the C compiler at hand, else with the one in the package ``ziglang``.

    python build_backend/warden_compiler.py [ARCHITECTURE]      build for this checkout (an editable install)

Variables: ``EXECWORLD_WARDEN_ARCH`` is the architecture to build for (``x86_64``, ``aarch64``), or ``none`` for a
package without a warden; ``EXECWORLD_CC`` is a compiler that makes static programs for it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "warden"
IN_PLACE = ROOT / "src" / "execworld" / "machine" / "warden" / "bin"
ARCHITECTURES = ("x86_64", "aarch64")

# As in src/warden/Makefile, without the warnings: a compiler that nobody has tried yet may have new ones.
FLAGS = """
-std=c11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -Os -fstack-protector-strong -D_FORTIFY_SOURCE=2 -fno-strict-aliasing
-fno-delete-null-pointer-checks -fwrapv -fno-asynchronous-unwind-tables -ffunction-sections -fdata-sections
-static -pthread -Wl,--gc-sections -Wl,-z,relro,-z,now -Wl,-z,noexecstack -s
"""

# In the order of preference. What musl links is small and free of what glibc loads at run time.
COMPILERS = {
    "x86_64": ("x86_64-linux-musl-gcc", "x86_64-linux-gnu-gcc"),
    "aarch64": ("aarch64-linux-musl-gcc", "aarch64-linux-gnu-gcc"),
}
NATIVE_COMPILERS = ("musl-gcc", "cc", "gcc", "clang")


class NoCompiler(Exception):
    """No compiler for the architecture was found."""


def wanted_architecture() -> str | None:
    """What to build for; None for nothing."""
    wanted = os.environ.get("EXECWORLD_WARDEN_ARCH", "")
    if wanted == "none":
        return None
    if wanted:
        if wanted not in ARCHITECTURES:
            raise ValueError(
                f"EXECWORLD_WARDEN_ARCH={wanted}: it must be one of {', '.join(ARCHITECTURES)}, none"
            )
        return wanted
    own = platform.machine()
    # Elsewhere the world of this host needs no warden, and those of other hosts have to be asked for by name.
    return own if sys.platform == "linux" and own in ARCHITECTURES else None


def find_compiler(architecture: str) -> list[str] | None:
    """A command that makes static programs; each candidate is tried, not trusted. None when there is none."""
    named = os.environ.get("EXECWORLD_CC")
    if named:
        return shlex.split(named)
    native = sys.platform == "linux" and platform.machine() == architecture
    for name in (*(NATIVE_COMPILERS if native else ()), *COMPILERS[architecture]):
        path = shutil.which(name)
        if path and _makes_static_programs([path]):
            return [path]
    return None


def zig_compiler(architecture: str) -> list[str] | None:
    if importlib.util.find_spec("ziglang") is None:
        return None
    return [sys.executable, "-m", "ziglang", "cc", "-target", f"{architecture}-linux-musl"]


def needs_zig() -> bool:
    """Whether the build requires the package ``ziglang``."""
    architecture = wanted_architecture()
    return architecture is not None and find_compiler(architecture) is None


def compile_warden(architecture: str, target: Path) -> None:
    """Compile into *target*.

    Raises:
        NoCompiler: there is nothing to compile with.
        subprocess.CalledProcessError: the compiler failed; it has said why.
    """
    compiler = find_compiler(architecture) or zig_compiler(architecture)
    if compiler is None:
        raise NoCompiler(
            f"no C compiler for {architecture}: install one (musl-tools or gcc), or the package ziglang, or build "
            "a package without a warden: EXECWORLD_WARDEN_ARCH=none"
        )
    sources = sorted(path for path in SOURCES.glob("*.c") if not path.name.startswith("fuzz"))
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory, "warden")
        flags = [*FLAGS.split(), f'-DBUILD_ID="{build_id()}"']
        subprocess.run([*compiler, *flags, "-o", str(made), *map(str, sources)], check=True)
        made.chmod(0o755)
        target.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place: a warden of an earlier build may be running from that file.
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.copy2(made, beside)
        beside.replace(target)


def build_id() -> str:
    """As the Makefile makes it: over all sources and headers, in the order of their names."""
    names = [*SOURCES.glob("*.c"), *SOURCES.glob("*.h")]
    content = b"".join(path.read_bytes() for path in sorted(names) if not path.name.startswith("fuzz"))
    return hashlib.sha256(content).hexdigest()[:16]


def binary_name(architecture: str) -> str:
    return f"warden-{architecture}"


def platform_tag(architecture: str) -> str:
    """Static, so that neither kind of C library matters."""
    return f"manylinux_2_17_{architecture}.manylinux2014_{architecture}.musllinux_1_1_{architecture}"


def _makes_static_programs(compiler: list[str]) -> bool:
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "try.c")
        source.write_text("#include <pthread.h>\nint main(void) { return 0; }\n")
        command = [*compiler, "-static", "-pthread", "-o", str(Path(directory, "try")), str(source)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else wanted_architecture()
    if chosen is None:
        sys.exit("no architecture to build for: name one")
    compile_warden(chosen, IN_PLACE / binary_name(chosen))
    sys.stdout.write(f"{IN_PLACE / binary_name(chosen)}\n")
