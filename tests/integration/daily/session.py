"""Runs recipes in one world under one uid, as the host program of that user would.

python -m tests.integration.daily.session BASE < ORDER > ANSWER
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import zipfile
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
from tests.escape.users import take_uid

from execworld.seams import Dimension, OutputLimits, SandboxPolicy, World
from execworld.world import open_world

from .recipes import RECIPES

_HERE = Path(__file__).parent
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TIMEOUT_S = 90


def main() -> None:
    order: dict[str, Any] = json.load(sys.stdin)
    base, uid = Path(sys.argv[1]), int(order["uid"])
    site_packages = sysconfig.get_path("purelib")
    material = {file.name: file.read_bytes() for file in [_HERE / "language_client.py"]}
    anyio.run(_warm_up, str(order["world"]))
    if uid != os.getuid():
        take_uid(uid, base)
        os.environ["PATH"] = _SYSTEM_PATH
    workspace = base / "workspace"
    workspace.mkdir()
    for name in order["recipes"]:
        directory = workspace / name / "material"
        directory.mkdir(parents=True)
        for file, content in material.items():
            (directory / file).write_bytes(content)
        _make_wheel(directory)
    sys.stdout.write(json.dumps(anyio.run(_session, order, workspace, site_packages)))


def _open(
    name: str, workspace: Path, not_required: tuple[Dimension, ...]
) -> AbstractAsyncContextManager[World]:
    if name == "local":
        return open_world("local", cwd=str(workspace))
    policy = SandboxPolicy.workspace_write(str(workspace))
    if not_required:
        policy = replace(policy, require_dimensions=dict.fromkeys(not_required, False))
    return open_world(name, policy=policy, cwd=str(workspace))


async def _warm_up(name: str) -> None:
    """Import what is imported late, while the library of the interpreter can still be read."""
    "localhost".encode("idna")
    async with open_world("local") as world:
        await world.shell.run("true")
    if name != "local":
        async with open_world(name, policy=SandboxPolicy.read_only()) as world:
            await world.shell.run("true")


async def _session(order: dict[str, Any], workspace: Path, site_packages: str) -> dict[str, dict[str, Any]]:
    answers: dict[str, dict[str, Any]] = {}
    names: list[str] = order["recipes"]
    for not_required in sorted({RECIPES[name].not_required for name in names}):
        async with _open(str(order["world"]), workspace, not_required) as world:
            for name in names:
                if RECIPES[name].not_required == not_required:
                    answers[name] = await _run(world, name, workspace / name, site_packages)
    return answers


async def _run(world: World, name: str, directory: Path, site_packages: str) -> dict[str, Any]:
    result = await world.subprocess.run(
        ["/bin/bash", "-c", f"set -eu\n{RECIPES[name].script}\necho done\n"],
        cwd=str(directory),
        env={"SITE_PACKAGES": site_packages, "PYTHONDONTWRITEBYTECODE": None},
        limits=OutputLimits(head_bytes=65536, tail_bytes=65536),
        timeout_s=_TIMEOUT_S,
    )
    return {
        "exit": result.exit_code,
        "stdout": result.stdout.text,
        "stderr": result.stderr.text,
        "seconds": result.duration_s,
    }


def _make_wheel(directory: Path) -> None:
    information = "local_wheel-1.0.dist-info"
    with zipfile.ZipFile(directory / "local_wheel-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("local_wheel.py", 'TEXT = "a local wheel"\n')
        wheel.writestr(f"{information}/METADATA", "Metadata-Version: 2.1\nName: local-wheel\nVersion: 1.0\n")
        wheel.writestr(
            f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{information}/RECORD", f"local_wheel.py,,\n{information}/METADATA,,\n")


if __name__ == "__main__":
    main()
