"""Captured output: nothing shown is wrong, nothing missing goes unsaid, nothing grows without bound."""

from __future__ import annotations

import hashlib
import resource
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from execworld.seams import CommandStatus, OutputLimits, World

if TYPE_CHECKING:
    from tests.integration.conftest import CommandLine

pytestmark = pytest.mark.anyio


async def test_c037_the_end_of_long_output_is_kept(world: World) -> None:
    """A summary is at the bottom: first and last part are both there, byte for byte."""
    result = await world.shell.run("seq 1 200000; echo FINAL-ERROR-LINE")
    expected = "".join(f"{n}\n" for n in range(1, 200001)).encode() + b"FINAL-ERROR-LINE\n"
    output = result.stdout
    assert output.truncated
    assert expected.startswith(output.head)
    assert expected.endswith(output.tail)
    assert output.text.startswith("1\n2\n")
    assert output.text.endswith("200000\nFINAL-ERROR-LINE\n")


async def test_c039_the_cut_is_described_exactly(world: World) -> None:
    """Bytes and lines that are missing, and a file that this very world can read to get all of them."""
    limits = OutputLimits(head_bytes=1000, tail_bytes=2000, spill_bytes=10_000_000)
    result = await world.shell.run("seq 1 100000", limits=limits)
    whole = "".join(f"{n}\n" for n in range(1, 100001)).encode()
    output = result.stdout
    missing = whole[1000 : len(whole) - 2000]
    assert (output.total_bytes, output.dropped_bytes) == (len(whole), len(missing))
    assert output.dropped_lines == missing.count(b"\n")
    assert output.spill_path is not None
    assert (
        f"[{len(missing)} bytes, {missing.count(10)} lines dropped; all of it: {output.spill_path}]"
        in output.text
    )
    hashed = await world.subprocess.run(["sha256sum", output.spill_path])
    assert hashed.stdout.text.split()[0] == hashlib.sha256(whole).hexdigest()
    assert await world.fs.read_bytes(output.spill_path) == whole


async def test_c041_endless_output_costs_no_memory(world: World) -> None:
    """A flood until the time limit: our own memory grows by less than a few windows, both ends are shown."""
    await world.shell.run("head -c 1000000 /dev/zero")  # what the first call of all needs is needed once
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await world.shell.run("yes", timeout_s=2, grace_s=1)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    assert result.status is CommandStatus.TIMED_OUT
    assert result.stdout.total_bytes > 10_000_000, "that was no flood"
    assert result.stdout.head.startswith(b"y\ny\n")
    assert result.stdout.tail
    assert set(result.stdout.data) == {ord("y"), ord("\n")}
    assert grown_kib < 8 * 1024


async def test_c043_bytes_that_are_no_text_are_output_too(world: World) -> None:
    await world.subprocess.run(["sh", "-c", "head -c 4096 /dev/urandom > random"])
    result = await world.shell.run("cat random; echo END")
    assert result.stdout.data == await world.fs.read_bytes("random") + b"END\n"
    assert result.stdout.text.endswith("END\n")
    result.stdout.text.encode("utf-8")  # nothing in it that cannot be written anywhere


async def test_c045_the_raw_view_keeps_every_frame(world: World) -> None:
    """Redrawn progress lines arrive as they are; rendering them is the business of the tool that shows them."""
    script = "for i in $(seq 1 500); do printf '\\rprogress %d%%' $i; done; echo"
    result = await world.shell.run(script)
    assert result.stdout.data == b"".join(b"\rprogress %d%%" % i for i in range(1, 501)) + b"\n"


async def test_c047_control_sequences_arrive_untouched(world: World) -> None:
    """The seam neither interprets nor drops a byte, also when sequences are cut by reads."""
    script = r"printf '\033[?25l\033]0;title\007\033[31mred\033[0m\033[?25h\n'"
    expected = b"\x1b[?25l\x1b]0;title\x07\x1b[31mred\x1b[0m\x1b[?25h\n"
    assert (await world.shell.run(script)).stdout.data == expected
    slow = r"for p in '\033' '[3' '1mr' 'ed\033[' '0m'; do printf \"$p\"; sleep 0.05; done".replace(
        '\\"', '"'
    )
    assert (await world.shell.run(slow)).stdout.data == b"\x1b[31mred\x1b[0m"


async def test_c049_streams_are_apart_or_in_order(world: World) -> None:
    """Separate streams are exact. Merged, everything is in the order in which it was written."""
    script = "echo o1; echo e1 >&2; sleep 0.2; echo o2; echo e2 >&2"
    apart = await world.shell.run(script)
    assert (apart.stdout.data, apart.stderr.data) == (b"o1\no2\n", b"e1\ne2\n")
    merged = await world.shell.run(script, merge_stderr=True)
    assert (merged.stdout.data, merged.stderr.data) == (b"o1\ne1\no2\ne2\n", b"")


async def test_c051_a_failure_says_why(world: World) -> None:
    result = await world.shell.run("echo why >&2; exit 7")
    assert (result.exit_code, result.stderr.data, result.ok) == (7, b"why\n", False)


def test_c051_a_failure_on_the_command_line_says_why(command_line: CommandLine) -> None:
    result = command_line.run("run", "-w", "local", "-q", "--", "sh", "-c", "echo why >&2; exit 7")
    assert (result.returncode, result.stdout, result.stderr) == (7, b"", b"why\n")


async def test_c135_a_download_does_not_pass_the_output_window(world: World) -> None:
    """A file larger than any window comes whole, to a caller and through a reader."""
    await world.subprocess.run(["sh", "-c", "head -c 5242880 /dev/urandom > big"], check=True)
    hashed = (await world.subprocess.run(["sha256sum", "big"])).stdout.text.split()[0]
    assert hashlib.sha256(await world.fs.read_bytes("big")).hexdigest() == hashed
    digest = hashlib.sha256()
    async with world.fs.open_reader("big") as chunks:
        async for chunk in chunks:
            digest.update(chunk)
    assert digest.hexdigest() == hashed


def test_c135_a_download_on_the_command_line_is_whole(command_line: CommandLine, tmp_path: Path) -> None:
    content = bytes(range(256)) * 20480
    (tmp_path / "big").write_bytes(content)
    assert command_line.run("fs", "cat", "-w", "local", "-q", "big").stdout == content
    assert command_line.run("fs", "get", "-w", "local", "-q", "big", "copy").returncode == 0
    assert (tmp_path / "copy").read_bytes() == content


async def test_c135_a_reader_that_leaves_early_is_not_waited_for(world: World) -> None:
    await world.fs.write_bytes("file", b"x" * 1_000_000)
    with anyio.fail_after(5):
        async with world.fs.open_reader("file") as chunks:
            async for _ in chunks:
                break
