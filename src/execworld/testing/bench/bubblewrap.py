"""The plain way to confine a command: bubblewrap, which sets everything up anew for each one."""

from __future__ import annotations

import asyncio  # noqa: TID251 - the plain way
import shutil
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from execworld.seams import NetworkMode, SandboxMode, SandboxPolicy
from execworld.testing.bench.measuring import LeftOut

_PROGRAM: Final = "bwrap"


def arguments(policy: SandboxPolicy) -> list[str]:
    """What comes nearest to *policy*: the same may be written, the same namespaces are new.

    Raises:
        LeftOut: nothing comes near.
    """
    if policy.mode is SandboxMode.FULL_ACCESS:
        raise LeftOut("the world has no policy that bubblewrap could hold")
    if policy.hidden or policy.read_roots or policy.network.mode is NetworkMode.PORTS:
        raise LeftOut("bubblewrap has no like policy")
    found = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "--unshare-ipc"]
    if policy.network.mode is NetworkMode.NONE:
        found.append("--unshare-net")
    for root in filter(None, (policy.workspace, *policy.write_roots)):
        found += ["--bind", root, root]
    return [*found, "--die-with-parent", "--new-session"]


async def spawn_by_bubblewrap(policy: SandboxPolicy) -> Callable[[], Awaitable[None]]:
    """Raises:
    LeftOut: it is not installed, or cannot do it here.
    """
    program = shutil.which(_PROGRAM)
    if program is None:
        raise LeftOut(f"{_PROGRAM} is not installed")
    command = [program, *arguments(policy), "true"]
    tried = await anyio.run_process(command, check=False)
    if tried.returncode != 0:
        said = tried.stderr.decode(errors="replace").strip()
        raise LeftOut(f"{_PROGRAM} ended with {tried.returncode}: {said}")

    async def spawn() -> None:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        await process.communicate()

    return spawn
