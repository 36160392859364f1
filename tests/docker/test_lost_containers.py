"""What happens to a container from outside: each loss has its name, and a pause is none."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest
from docker.errors import APIError

from execworld.machine.world import MachineWorld
from execworld.providers.docker.lost import Loss, loss_of_events
from execworld.seams import OutcomeUnknown, SandboxPolicy, World, WorldLost
from execworld.world import open_world

BUSYBOX: Final = "busybox:stable"
BY_SOMEBODY: Final = "the container was stopped, killed or removed by somebody else"
GREEDY: Final = 'BEGIN { s = "x"; while (1) s = s s }'


def container_of(world: World) -> str:
    return world.identity.instance.partition("@")[0]


def kill(client: Any, container: str) -> None:
    client.kill(container)


def stop(client: Any, container: str) -> None:
    client.stop(container, timeout=0)


def remove(client: Any, container: str) -> None:
    client.remove_container(container, force=True)


def restart(client: Any, container: str) -> str | None:
    """The engine may remove an ended container before it starts it again, and then refuses to."""
    try:
        client.restart(container, timeout=0)
    except APIError as error:
        if "marked for removal" not in str(error.explanation):
            raise
        return BY_SOMEBODY
    return None


Blow = Callable[[Any, str], str | None]
Use = Callable[[World], Awaitable[object]]


async def in_thread(blow: Blow, client: Any, world: World) -> str | None:
    """Give the reason that is to be expected in place of the usual one, where the engine did something else."""
    return await anyio.to_thread.run_sync(blow, client, container_of(world))


def containers(client: Any) -> list[Any]:
    return list(client.containers(all=True, filters={"label": f"io.execworld.owner.pid={os.getpid()}"}))


async def _sleep(world: World) -> object:
    return await world.subprocess.run(["sleep", "30"])


async def _write(world: World) -> object:
    while True:
        await world.fs.write_bytes("/f", b"x" * 1_000_000)


async def _read(world: World) -> object:
    await world.fs.write_bytes("/g", b"x" * 1_000_000)
    while True:
        await world.fs.read_bytes("/g")


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("blow", "use", "reason"),
    [
        (kill, _sleep, f"{BY_SOMEBODY}, by SIGKILL"),
        (kill, _write, f"{BY_SOMEBODY}, by SIGKILL"),
        (stop, _sleep, BY_SOMEBODY),
        (stop, _read, BY_SOMEBODY),
        (remove, _sleep, f"{BY_SOMEBODY}, by SIGKILL"),
        (restart, _sleep, "the container was restarted"),
        (restart, _write, "the container was restarted"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_loss_says_what_happened(client: Any, blow: Blow, use: Use, reason: str) -> None:
    """To whoever waits, and to whoever comes later; and nothing of the container is left, even a restarted one."""
    async with open_world(f"docker://{BUSYBOX}") as world:
        seen: list[Exception] = []

        async def wait() -> None:
            try:
                await use(world)
            except (OutcomeUnknown, WorldLost) as error:
                seen.append(error)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await anyio.sleep(0.1)
                reason = await in_thread(blow, client, world) or reason
        with pytest.raises(WorldLost) as caught:
            await world.subprocess.run(["true"])
        seen.append(caught.value)
        assert [reason in str(error) for error in seen] == [True, True], seen
        assert "open another world" in caught.value.hint
    assert containers(client) == []


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.anyio
async def test_a_pause_is_no_loss(client: Any) -> None:
    async with open_world(f"docker://{BUSYBOX}") as world:
        results: list[str] = []
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                results.append((await world.shell.run("sleep 0.2; echo ok")).stdout.text)

            tasks.start_soon(run)
            await anyio.to_thread.run_sync(client.pause, container_of(world))
            await anyio.sleep(0.5)
            assert results == []
            assert isinstance(world, MachineWorld)
            assert not world.lost
            await anyio.to_thread.run_sync(client.unpause, container_of(world))
        assert results == ["ok\n"]


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.anyio
async def test_a_paused_container_can_be_closed(client: Any) -> None:
    with anyio.fail_after(10):
        async with open_world(f"docker://{BUSYBOX}") as world:
            await anyio.to_thread.run_sync(client.pause, container_of(world))
    assert containers(client) == []


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.anyio
async def test_a_command_out_of_memory_is_told_from_a_lost_world(client: Any) -> None:
    async with open_world(f"docker://{BUSYBOX}", memory_bytes=32 << 20) as world:
        killed = await world.subprocess.run(["awk", GREEDY])
        assert (killed.signal, killed.out_of_memory) == (9, True)
        for harmless in ("exit 137", "kill -9 $$"):
            assert (await world.shell.run(harmless)).out_of_memory is False
        # What was killed is below the command, which may have expected that; whose it was, the counter does not say.
        survived = await world.subprocess.run(["sh", "-c", f"awk '{GREEDY}'; exit 5"])
        assert (survived.exit_code, survived.out_of_memory) == (5, None)
        view = await world.sandbox.confine(SandboxPolicy.workspace_write("/tmp"))
        assert (await view.subprocess.run(["awk", GREEDY])).out_of_memory is True
        assert (await world.shell.run("echo ok")).stdout.text == "ok\n"


def event(action: str, **attributes: str) -> dict[str, Any]:
    return {"Type": "container", "Action": action, "Actor": {"ID": "x", "Attributes": attributes}}


@pytest.mark.parametrize(
    ("events", "reason", "code"),
    [
        ([event("oom"), event("die", exitCode="137"), event("destroy")], "ran out of memory", 137),
        (
            [event("kill", signal="9"), event("die", exitCode="137"), event("destroy")],
            "by somebody else, by SIGKILL",
            137,
        ),
        ([event("oom"), event("kill", signal="15"), event("die", exitCode="143")], "by SIGTERM", 143),
        ([event("kill", signal="9"), event("die", exitCode="137"), event("restart")], "restarted", 137),
        ([event("die", exitCode="1")], "ended with status 1", 1),
        ([event("die", exitCode="139")], "ended, by SIGSEGV", 139),
        ([], "does not remember", None),
        ([{}, event("die", exitCode="x"), {"Action": "kill", "Actor": None}], "by somebody else", None),
    ],
    ids=str,
)
def test_the_events_of_the_engine_tell_what_happened(
    events: list[dict[str, Any]], reason: str, code: int | None
) -> None:
    loss: Loss = loss_of_events(events)
    assert reason in loss.reason
    assert loss.exit_code == code
    assert loss.hint
