"""Clauses of captured output: windows, counts, order, spilling."""

from __future__ import annotations

import anyio
import pytest

from execworld.seams import Output, OutputLimits, OutputStream, Process, StreamMode, World
from execworld.seams.testing.probes import eventually, output_of, pattern_bytes, sh
from execworld.seams.testing.suite import ContractSuite

SMALL = OutputLimits(head_bytes=100, tail_bytes=200)


async def emit(world: World, path: str, limits: OutputLimits | None) -> Output:
    """What a command that prints the file at *path* leaves as its output."""
    return (await world.subprocess.run(["cat", path], limits=limits)).stdout


class WindowClauses(ContractSuite):
    """What is kept of a stream."""

    async def test_P13_the_ends_are_kept_exactly(self, world: World, scratch: str) -> None:
        """Of a stream that is too long the first and the last bytes are kept exactly, and what lies between is
        counted in bytes and lines."""
        data = b"".join(b"line %d\n" % number for number in range(20_000))
        await world.fs.write_bytes(f"{scratch}/f", data)
        output = await emit(world, f"{scratch}/f", SMALL)
        assert output.head == data[:100]
        assert output.tail == data[-200:]
        assert output.total_bytes == len(data)
        assert output.dropped_bytes == len(data) - 300
        assert output.dropped_lines == data[100:-200].count(b"\n")
        assert output.truncated
        assert output.complete
        assert f"[{output.dropped_bytes} bytes, {output.dropped_lines} lines dropped" in output.text

    async def test_P14_nothing_is_dropped_without_need(self, world: World, scratch: str) -> None:
        """A stream of just the limit is whole; one byte more is truncated by one byte."""
        for size, dropped in ((0, 0), (1, 0), (100, 0), (299, 0), (300, 0), (301, 1), (400, 100)):
            data = pattern_bytes(size)
            await world.fs.write_bytes(f"{scratch}/f", data)
            output = await emit(world, f"{scratch}/f", SMALL)
            assert output.dropped_bytes == dropped
            assert output.total_bytes == size
            if not dropped:
                assert output.data == data

    async def test_P15_streams_are_separate(self, world: World) -> None:
        """Each stream has a window of its own and exactly its own bytes."""
        script = 'i=0; while [ $i -lt 200 ]; do echo "out $i"; echo "err $i" >&2; i=$((i+1)); done'
        result = await sh(world, script)
        assert result.stdout.data == b"".join(b"out %d\n" % number for number in range(200))
        assert result.stderr.data == b"".join(b"err %d\n" % number for number in range(200))
        result = await world.subprocess.run(["sh", "-c", f"{script}; seq 100000"], limits=SMALL)
        assert result.stdout.truncated
        assert result.stderr.data[:6] == b"err 0\n"
        assert result.stderr.total_bytes == len(b"".join(b"err %d\n" % number for number in range(200)))

    async def test_P70_the_default_shows_both_ends(self, world: World) -> None:
        """With the default limits the first and the last line of a long output are in the text."""
        result = await sh(world, "echo FIRST; seq 1 100000; echo FINAL-ERROR-LINE")
        assert result.stdout.truncated
        assert result.stdout.text.startswith("FIRST\n")
        assert result.stdout.text.endswith("FINAL-ERROR-LINE\n")

    async def test_P21_characters_are_not_torn(self, world: World, scratch: str) -> None:
        """Bytes are kept as they came; the text replaces invalid ones, and a character that the window cut in two
        does not show as replacement characters."""
        await world.fs.write_bytes(f"{scratch}/f", b"\xff\xfe\0caf\xe9\n")
        output = await emit(world, f"{scratch}/f", None)
        assert output.data == b"\xff\xfe\0caf\xe9\n"
        assert output.text == "\ufffd\ufffd\0caf\ufffd\n"
        text = "漢" * 5000
        await world.fs.write_text(f"{scratch}/g", text)
        for head in range(98, 102):
            limits = OutputLimits(head_bytes=head, tail_bytes=200)
            output = await emit(world, f"{scratch}/g", limits)
            assert output.data == text.encode()[:head] + text.encode()[-200:]
            assert "\ufffd" not in output.text
        await world.fs.write_text(f"{scratch}/h", text[:2000])
        assert (await emit(world, f"{scratch}/h", None)).text == text[:2000]

    async def test_P71_memory_does_not_grow_with_output(self, world: World) -> None:
        """A stream without end is read as fast as it comes and counted; the command ends at its time limit with
        both ends of it kept."""
        result = await world.subprocess.run(["yes"], limits=SMALL, timeout_s=0.5, grace_s=0.5)
        assert result.timed_out
        assert result.stdout.total_bytes > 100_000
        assert result.stdout.head == (b"y\n" * 50)
        assert len(result.stdout.tail) == 200
        assert result.stdout.dropped_bytes == result.stdout.total_bytes - 300

    async def test_P72_too_much_output_ends_the_command(self, world: World) -> None:
        """Past ``stop_bytes`` the tree is killed, and the result says that, not a time limit and not a signal of
        the program."""
        limits = OutputLimits(head_bytes=100, tail_bytes=100, stop_bytes=50_000)
        with anyio.fail_after(10):
            result = await world.subprocess.run(["yes"], limits=limits, timeout_s=8)
        assert result.output_limit_hit
        assert not result.timed_out
        assert not result.ok
        assert str(result.status) == "output-limit"
        assert result.stdout.total_bytes > 50_000
        limits = OutputLimits(stop_bytes=6)
        assert (await world.subprocess.run(["echo", "12345"], limits=limits)).ok


class ReaderClauses(ContractSuite):
    """Reading collected output while the command runs."""

    async def test_P16_readers_consume_nothing(self, world: World) -> None:
        """``read_output`` gives bytes from any position on, any number of times, during and after the run; it tells
        the next position and the end."""
        script = "printf first; read x; printf second"
        async with world.subprocess.start(["sh", "-c", script], pipe_stdin=True) as process:

            async def first_came() -> bool:
                return process.read_output(OutputStream.STDOUT).data == b"first"

            await eventually(first_came, "the output of a running command cannot be read")
            part = process.read_output(OutputStream.STDOUT, 2)
            assert (part.data, part.offset, part.next_offset, part.ended) == (b"rst", 2, 5, False)
            assert process.read_output(OutputStream.STDOUT).data == b"first"
            assert process.stdin is not None
            await process.stdin.send(b"\n")
            await process.wait()
            part = process.read_output(OutputStream.STDOUT, 5)
            assert (part.data, part.next_offset, part.lost_bytes) == (b"second", 11, 0)

            async def ended() -> bool:
                return process.read_output(OutputStream.STDOUT, 11).ended

            await eventually(ended, "the end of a stream is not told")
            for offset in (-1, 12):
                with pytest.raises(ValueError, match=r"."):
                    process.read_output(OutputStream.STDOUT, offset)
        assert process.read_output(OutputStream.STDOUT).data == b"firstsecond"

    async def test_P73_lost_bytes_are_counted(self, world: World, scratch: str) -> None:
        """A position whose bytes were dropped gives the next ones that are kept, and the number of those
        between."""
        data = pattern_bytes(10_000)
        await world.fs.write_bytes(f"{scratch}/f", data)
        async with world.subprocess.start(["cat", f"{scratch}/f"], limits=SMALL) as process:
            await process.wait()
            part = process.read_output(OutputStream.STDOUT, 5000)
            assert (part.offset, part.lost_bytes, part.next_offset) == (9800, 4800, 10_000)
            assert part.data == data[-200:]
            part = process.read_output(OutputStream.STDOUT, 10)
            assert part.data == data[10:100]
            assert (part.offset, part.lost_bytes, part.next_offset) == (10, 0, 100)
            part = process.read_output(OutputStream.STDOUT, 9900)
            assert (part.data, part.lost_bytes) == (data[9900:], 0)

    async def test_P74_piped_output_is_raw(self, world: World, scratch: str) -> None:
        """A piped stream gives every byte in order and then its end; a slow reader slows down the program and loses
        nothing."""
        data = pattern_bytes(1_000_000)
        await world.fs.write_bytes(f"{scratch}/f", data)
        async with world.subprocess.start(["cat", f"{scratch}/f"], stdout=StreamMode.PIPE) as process:
            assert process.stdout is not None
            received = await process.stdout.receive(10)
            assert len(received) <= 10
            await anyio.sleep(0.05)
            assert process.running, "a program does not wait for its reader"
            received += b"".join([chunk async for chunk in process.stdout])
            assert (await process.wait()).ok
        assert received == data

    async def test_P75_one_stream_does_not_stall_the_other(self, world: World) -> None:
        """Two streams that are full at the same time are both drained; a piped one that nobody reads does not hold
        a collected one."""
        script = "head -c 1000000 /dev/zero & head -c 1000000 /dev/zero >&2; wait"
        with anyio.fail_after(10):
            result = await sh(world, script)
        assert (result.stdout.total_bytes, result.stderr.total_bytes) == (1_000_000, 1_000_000)
        script = "head -c 1000000 /dev/zero >&2; echo end; sleep 30"
        async with world.subprocess.start(["sh", "-c", script], stderr=StreamMode.PIPE) as process:
            assert process.stderr is not None
            with anyio.fail_after(10):
                assert len(b"".join([await process.stderr.receive()])) > 0

                async def other_command_works() -> bool:
                    return (await world.subprocess.run(["true"])).ok

                await eventually(other_command_works, "an unread pipe holds up another command")

    async def test_P76_merged_output_keeps_the_order(self, world: World) -> None:
        """With stderr merged both streams are one, in exactly the order of the writes."""
        script = 'i=0; while [ $i -lt 300 ]; do echo "o$i"; echo "e$i" >&2; i=$((i+1)); done'
        result = await world.subprocess.run(["sh", "-c", script], stderr=StreamMode.MERGE)
        assert result.stdout.data == b"".join(b"o%d\ne%d\n" % (number, number) for number in range(300))
        assert result.stderr.data == b""

    async def test_P77_output_is_seen_live(self, world: World) -> None:
        """``on_output`` gets every chunk of both streams in order, before the call returns; what it raises ends the
        tree and passes to the caller."""
        seen: dict[OutputStream, bytes] = {OutputStream.STDOUT: b"", OutputStream.STDERR: b""}

        async def see(stream: OutputStream, chunk: bytes) -> None:
            seen[stream] += chunk

        script = "seq 1 30000; seq 1 100 >&2"
        result = await world.subprocess.run(["sh", "-c", script], limits=SMALL, on_output=see)
        assert seen[OutputStream.STDOUT] == b"".join(b"%d\n" % number for number in range(1, 30_001))
        assert seen[OutputStream.STDERR] == b"".join(b"%d\n" % number for number in range(1, 101))
        assert result.stdout.total_bytes == len(seen[OutputStream.STDOUT])

        class Stop(Exception):
            pass

        async def refuse(stream: OutputStream, chunk: bytes) -> None:
            raise Stop

        with anyio.fail_after(5), pytest.raises(Stop):
            await world.subprocess.run(["sh", "-c", "echo x; sleep 30"], on_output=refuse, grace_s=0.5)

    async def test_P36_output_stays_readable(self, world: World) -> None:
        """Results and readers stay valid after the handle is closed."""
        handles: list[Process] = []
        async with world.subprocess.start(["echo", "kept"]) as process:
            handles.append(process)
            await process.wait()
        assert handles[0].read_output(OutputStream.STDOUT).data == b"kept\n"
        assert (await handles[0].wait()).stdout.data == b"kept\n"


class SpillClauses(ContractSuite):
    """The file with every byte."""

    async def test_P17_an_overflow_is_kept_in_a_file(self, world: World, scratch: str) -> None:
        """When more arrives than the window holds, and it fits the limit, a file in the world holds every byte from
        the first on; up to a stream of just that size, and none beyond it."""
        for size, kept in ((300, False), (301, True), (50_000, True), (50_001, False), (200_000, False)):
            data = pattern_bytes(size)
            await world.fs.write_bytes(f"{scratch}/f", data)
            limits = OutputLimits(head_bytes=100, tail_bytes=200, spill_bytes=50_000)
            output = await emit(world, f"{scratch}/f", limits)
            assert (output.spill_path is not None) == kept, (
                f"{size} bytes: {output.spill_path} {output.spill_error}"
            )
            if output.spill_path is not None:
                assert await world.fs.read_bytes(output.spill_path) == data
                assert output.spill_path in output.text
            assert output.head == data[:100]

    async def test_P18_the_file_is_private(self, world: World, scratch: str) -> None:
        """The file of a stream can be read by its owner alone, and so can the directory that it lies in."""
        await world.fs.write_bytes(f"{scratch}/f", pattern_bytes(5000))
        limits = OutputLimits(head_bytes=100, tail_bytes=200, spill_bytes=50_000)
        output = await emit(world, f"{scratch}/f", limits)
        assert output.spill_path is not None
        assert output.spill_error == ""
        for path in (output.spill_path, output.spill_path.rpartition("/")[0]):
            info = await world.fs.stat(path)
            assert info is not None
            assert info.mode & 0o077 == 0

    async def test_P20_no_file_unless_asked(self, world: World, scratch: str) -> None:
        """Without a spill limit there is a window and no file, and that is no error."""
        await world.fs.write_bytes(f"{scratch}/f", pattern_bytes(5000))
        output = await emit(world, f"{scratch}/f", SMALL)
        assert (output.spill_path, output.spill_error) == (None, "")

    async def test_P78_a_failed_file_does_not_fail_the_command(self, world: World, scratch: str) -> None:
        """When the file grows past its limit while the command runs, the path is withdrawn and the reason given;
        window, counts and exit status are as without it."""
        data = pattern_bytes(300_000)
        await world.fs.write_bytes(f"{scratch}/f", data)
        limits = OutputLimits(head_bytes=100, tail_bytes=200, spill_bytes=100_000)
        script = 'head -c 80000 "$1"; sleep 0.1; tail -c +80001 "$1"; exit 3'
        result = await world.subprocess.run(["sh", "-c", script, "sh", f"{scratch}/f"], limits=limits)
        assert result.exit_code == 3
        assert result.stdout.spill_path is None
        assert result.stdout.spill_error
        assert (result.stdout.head, result.stdout.tail) == (data[:100], data[-200:])
        assert await output_of(world, "echo still works") == "still works"
