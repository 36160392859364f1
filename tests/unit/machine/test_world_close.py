"""What leaving a world tells when it cannot prove that everything is gone."""

from __future__ import annotations

import dataclasses

import pytest

from execworld.machine.local.machine import LocalMachine
from execworld.machine.world import WorldSettings, open_machine_world
from execworld.seams import Boundary, CleanupIncomplete, Enforcement, SandboxPolicy, TreeReport, WorldIdentity

pytestmark = pytest.mark.anyio


class LeavesOneBehind(LocalMachine):
    """Claims that process 4711 survived."""

    async def aclose(self) -> TreeReport:
        return dataclasses.replace(await super().aclose(), gone=False, survivors=(4711,))


def settings() -> WorldSettings:
    identity = WorldIdentity("test", "close")
    return WorldSettings(identity, SandboxPolicy.full_access(), Enforcement(), Boundary.NONE)


def contained(error: BaseException) -> BaseException:
    """The one error inside groups of one."""
    inner: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    return contained(inner[0]) if len(inner) == 1 else error


async def test_survivors_are_an_error_by_themselves() -> None:
    """Leaving normally with something left raises, and names it."""
    with pytest.raises(BaseExceptionGroup) as caught:
        async with open_machine_world(LeavesOneBehind(), settings()):
            pass
    error = contained(caught.value)
    assert isinstance(error, CleanupIncomplete)
    assert error.survivors == (4711,)


async def test_survivors_do_not_hide_an_error_under_way() -> None:
    """The caller's own error arrives, with a note of what was left."""
    with pytest.raises(BaseExceptionGroup) as caught:
        async with open_machine_world(LeavesOneBehind(), settings()):
            raise LookupError("mine")
    error = contained(caught.value)
    assert isinstance(error, LookupError)
    assert any("CLEANUP_INCOMPLETE" in note and "4711" in note for note in error.__notes__)
