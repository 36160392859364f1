"""The ladder that ends a tree, and what statuses and durations mean."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from execworld.machine.base import STDOUT
from execworld.machine.batch import Batch
from execworld.machine.ending import checked_seconds, decode_status, end_tree
from execworld.machine.local.machine import LocalMachine
from execworld.machine.operations import Spawn
from execworld.machine.values import Redirect
from execworld.seams.errors import CommandInvalid

SHELL = b"/bin/sh"


@pytest.mark.parametrize("code", [0, 1, 124, 137, 143, 255])
def test_an_exit_code_is_not_a_signal(code: int) -> None:
    assert decode_status(code << 8) == (code, None)


@pytest.mark.parametrize("number", [1, 9, 15, 31])
def test_a_signal_is_not_an_exit_code(number: int) -> None:
    """With and without the bit that says that a core was dumped."""
    assert decode_status(number) == (None, number)
    assert decode_status(number | 0x80) == (None, number)


@pytest.mark.parametrize("value", [0, -1, -0.1, math.inf, -math.inf, math.nan, True, False])
def test_seconds_are_positive_and_finite(value: float) -> None:
    with pytest.raises(CommandInvalid, match="timeout_s"):
        checked_seconds(value, "timeout_s")


@pytest.mark.parametrize("value", [1, 0.001, 1e9])
def test_good_seconds_pass(value: float) -> None:
    assert checked_seconds(value, "timeout_s") == value


@pytest.fixture
async def machine(anyio_backend: str) -> AsyncGenerator[LocalMachine]:
    machine = LocalMachine()
    try:
        yield machine
    finally:
        report = await machine.aclose()
        assert report.gone


async def start(machine: LocalMachine, script: str) -> int:
    """Start *script* and wait for its first byte of output: from then on its traps are set."""
    batch = Batch()
    spawned = batch.add(
        Spawn(
            path=SHELL,
            argv=(SHELL, b"-c", script.encode()),
            environment=((b"PATH", b"/usr/bin:/bin"),),
            cwd=b"/",
            stdin=Redirect.NULL,
            stdout=Redirect.PIPE,
            stderr=Redirect.NULL,
        )
    )
    handle = (await machine.run(batch))[spawned].handle
    with anyio.fail_after(10):
        assert await machine.receive(handle, STDOUT, 1) == b"+"
    return handle


@pytest.mark.anyio
async def test_a_polite_tree_ends_at_once(machine: LocalMachine) -> None:
    """Who is there when the TERM is sent, and obeys it, is gone long before the grace period is over."""
    handle = await start(machine, "sleep 300 & echo +; exec sleep 300")
    before = time.monotonic()
    report = await end_tree(machine, handle, grace_s=30)
    assert report.gone
    assert time.monotonic() - before < 5
    assert decode_status((await machine.wait(handle)).raw) == (None, signal.SIGTERM)


@pytest.mark.anyio
async def test_a_handler_of_term_runs(machine: LocalMachine, tmp_path: Path) -> None:
    """The grace period is there for cleaning up: what a handler does happens, and its exit code is kept."""
    note = tmp_path / "note"
    handle = await start(
        machine, f"trap 'echo cleaned >{note}; exit 7' TERM; echo +; while :; do sleep 0.02; done"
    )
    report = await end_tree(machine, handle, grace_s=10)
    assert report.gone
    assert note.read_text() == "cleaned\n"
    assert decode_status((await machine.wait(handle)).raw) == (7, None)


@pytest.mark.anyio
async def test_who_ignores_term_is_killed_after_the_grace(machine: LocalMachine) -> None:
    """Not before the grace period is over, and soon after it."""
    handle = await start(machine, "trap '' TERM; echo +; sleep 300; sleep 300")
    before = time.monotonic()
    report = await end_tree(machine, handle, grace_s=0.4)
    assert 0.4 <= time.monotonic() - before < 4
    assert report.gone
    assert decode_status((await machine.wait(handle)).raw) == (None, signal.SIGKILL)


@pytest.mark.anyio
async def test_a_stopped_process_gets_its_term(machine: LocalMachine) -> None:
    """A stopped process is continued, so that it ends by TERM and does not sit out the grace period."""
    handle = await start(machine, "sh -c 'echo +; kill -STOP $$' & wait")
    before = time.monotonic()
    report = await end_tree(machine, handle, grace_s=30)
    assert report.gone
    assert time.monotonic() - before < 5
