"""How the suite comes to a world: whole, without some of its layers, or as on another kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import cache
from unittest.mock import patch

from execworld.confinement.place import Place
from execworld.machine.warden.facts import WardenFacts
from execworld.seams import SandboxPolicy, World
from execworld.world import open_world

from .plans import NAMESPACES, Plan


@contextmanager
def emulated(plan: Plan) -> Generator[None]:
    """What the compiler of policies is told of this place, less what *plan* does without."""
    found: Callable[[WardenFacts], Place] = Place.of

    def told(facts: WardenFacts) -> Place:
        place = found(facts)
        abi = place.landlock_abi if plan.landlock_abi is None else min(plan.landlock_abi, place.landlock_abi)
        return replace(
            place, landlock_abi=abi, namespaces=0 if NAMESPACES in plan.without else place.namespaces
        )

    with patch.object(Place, "of", staticmethod(told)):
        yield


@asynccontextmanager
async def open_confined(plan: Plan, policy: SandboxPolicy) -> AsyncGenerator[World]:
    """The world of *plan* under *policy*."""
    with emulated(plan):
        async with open_world("landlock", policy=policy) as world:
            yield world


@cache
def world_python(uid: int) -> str:
    """An interpreter that *uid* can execute.

    Raises:
        RuntimeError: there is none.
    """
    found = [shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin"), os.path.realpath(sys.executable)]
    for candidate in filter(None, found):
        if _runs(candidate, uid):
            return os.path.realpath(candidate)
    raise RuntimeError(f"user {uid} can execute none of {found}")


def _runs(interpreter: str, uid: int) -> bool:
    other = uid != os.getuid()
    try:
        answer = subprocess.run(
            [
                interpreter,
                "-S",
                "-E",
                "-s",
                "-c",
                "import sys, ctypes, json; sys.exit(sys.version_info < (3, 9))",
            ],
            user=uid if other else None,
            group=uid if other else None,
            extra_groups=[] if other else None,
            check=False,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
    except OSError:
        return False
    return answer.returncode == 0
