"""The suite of the shell seam."""

from __future__ import annotations

import signal

import anyio
import pytest

from execworld.seams import (
    CommandFailed,
    CommandInvalid,
    CommandResult,
    CommandTimeout,
    OutputStream,
    WorkingDirectoryMissing,
    World,
)
from execworld.seams.testing.probes import assert_gone, eventually, pid_from
from execworld.seams.testing.suite import ContractSuite, WorldMaker


class ShellContract(ContractSuite):
    """Command strings."""

    async def test_S2_each_call_is_a_fresh_shell(self, world: World, scratch: str) -> None:
        """The string is run by the world's shell, non-login and non-interactive, and nothing carries over to the
        next call: no directory, no variable, no exit."""
        assert world.shell.path == world.facts.shell
        assert world.shell.path is not None
        result = await world.shell.run("x=1; cd /; exit 3", cwd=scratch)
        assert result.exit_code == 3
        result = await world.shell.run(
            'echo "[$x]"; pwd -P; case $- in *i*) echo interactive;; esac', cwd=scratch
        )
        assert result.stdout.text == f"[]\n{scratch}\n"
        assert result.ok

    async def test_S60_start_up_files_are_not_read(self, world: World, scratch: str) -> None:
        """Profiles, rc files and files named by BASH_ENV or ENV neither run nor print, also when the caller's HOME
        has them."""
        noise = 'echo WELCOME; echo WELCOME >&2; touch "$MARK"\n'
        for name in (".profile", ".bash_profile", ".bashrc", ".shrc", ".kshrc", ".zshenv", "env"):
            await world.fs.write_text(f"{scratch}/{name}", noise)
        env = {"HOME": scratch, "MARK": f"{scratch}/ran"}
        result = await world.shell.run("echo hi", env=env)
        assert (result.stdout.data, result.stderr.data) == (b"hi\n", b"")
        assert await world.fs.stat(f"{scratch}/ran") is None

    async def test_S61_the_environment_knows_no_person(self, world: World) -> None:
        """TERM is dumb, pagers are ``cat``, colours are off; the caller's values win."""
        result = await world.shell.run('echo "$TERM $PAGER $GIT_PAGER $NO_COLOR"')
        term, pager, git_pager, no_colour = result.stdout.text.split()
        assert (term, pager, git_pager) == ("dumb", "cat", "cat")
        assert no_colour
        result = await world.shell.run(
            'echo "$TERM $PAGER $X"', env={"TERM": "vt100", "PAGER": "more", "X": "x"}
        )
        assert result.stdout.text == "vt100 more x\n"

    async def test_S3_there_is_no_input_unless_given(self, world: World) -> None:
        """Without input a reader gets the end at once; what is given is read; no bookkeeping of the tool is there
        to be eaten."""
        with anyio.fail_after(5):
            result = await world.shell.run('read x; echo "got:[$x]"; head -n1; cat; echo after')
        assert result.stdout.data == b"got:[]\nafter\n"
        result = await world.shell.run('read x; echo "got:[$x]"; cat', stdin=b"one\ntwo\n")
        assert result.stdout.data == b"got:[one]\ntwo\n"

    async def test_S4_only_infrastructure_raises(self, world: World, scratch: str) -> None:
        """Non-zero exits, signals and time limits are results; a missing directory, a blank command and a NUL are
        errors, and nothing ran."""
        assert (await world.shell.run("exit 2")).exit_code == 2
        assert (await world.shell.run("no-such-program-anywhere")).exit_code == 127
        assert (await world.shell.run("kill -KILL $$")).signal == int(signal.SIGKILL)
        with pytest.raises(WorkingDirectoryMissing):
            await world.shell.run("true", cwd=f"{scratch}/absent")
        for command in ("", "  \n\t", f"touch {scratch}/made\0"):
            with pytest.raises(CommandInvalid):
                await world.shell.run(command)
        assert await world.fs.list_directory(scratch) == []

    async def test_S5_causes_are_told_apart(self, world: World) -> None:
        """A time limit fires only by the clock: codes that others use for it are plain exits, and a trapped TERM
        gives both a time limit and an exit code."""
        for code in (124, 137, 143):
            result = await world.shell.run(f"exit {code}", timeout_s=20)
            assert (result.exit_code, result.signal, result.timed_out) == (code, None, False)
        script = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
        result = await world.shell.run(script, timeout_s=0.3, grace_s=2)
        assert (result.exit_code, result.timed_out, result.ok) == (0, True, False)
        with pytest.raises(CommandTimeout):
            await world.shell.run("sleep 30", timeout_s=0.2, grace_s=1, check=True)

    async def test_S6_streams_are_separate_or_merged(self, world: World) -> None:
        """Streams are separate and exact; merged they keep the order of the writes."""
        script = "echo o1; echo e1 >&2; echo o2; echo e2 >&2"
        result = await world.shell.run(script)
        assert (result.stdout.data, result.stderr.data) == (b"o1\no2\n", b"e1\ne2\n")
        result = await world.shell.run(script, merge_stderr=True)
        assert (result.stdout.data, result.stderr.data) == (b"o1\ne1\no2\ne2\n", b"")

    async def test_S62_an_ampersand_does_not_hold_the_call(self, world: World, scratch: str) -> None:
        """A job in the background does not delay the result, which says that one is left."""
        with anyio.fail_after(2):
            result = await world.shell.run(f"sleep 20 & echo $! >'{scratch}/pid'; echo done", timeout_s=10)
        assert (result.stdout.data, result.exit_code, result.background) == (b"done\n", 0, True)
        pid = await pid_from(world, f"{scratch}/pid")
        await world.shell.run(f"kill {pid}")
        await assert_gone(world, pid, "a job that was killed by its number")

    async def test_S63_a_limit_ends_the_whole_tree(self, world: World, scratch: str) -> None:
        """A time limit kills what the command started, not the shell alone."""
        result = await world.shell.run(
            f"sh -c 'sleep 30 & echo $! >\"{scratch}/pid\"; wait'; true", timeout_s=0.5, grace_s=0.3
        )
        assert result.timed_out
        pid = int(await world.fs.read_text(f"{scratch}/pid"))
        await assert_gone(world, pid, "a descendant of the shell", within_s=0.3)

    async def test_S64_unfinished_syntax_ends_at_once(self, world: World) -> None:
        """An open quote or a missing end of a here document does not wait for more; the next call works."""
        for command in ('echo "abc', "if true; then", "cat <<EOF\nhello"):
            with anyio.fail_after(5):
                result = await world.shell.run(command)
            assert result.stderr.data or result.stdout.data == b"hello\n" or result.stdout.data == b"hello"
        assert (await world.shell.run("echo back")).stdout.data == b"back\n"

    async def test_S65_many_lines_are_one_command(self, world: World, scratch: str) -> None:
        """A command of several lines, with quotes of all kinds and text that is not ASCII, runs as one script."""
        for name in ("a", "b", "c"):
            await world.fs.write_text(f"{scratch}/{name}.txt", "")
        command = 'for f in *.txt\ndo\n  mv "$f" "${f%.txt}.md"\ndone\nprintf \'%s\' "é\'`echo x`"\'"漢\''
        result = await world.shell.run(command, cwd=scratch)
        assert result.stdout.text == "é'x\"漢"
        assert [entry.name for entry in await world.fs.list_directory(scratch)] == ["a.md", "b.md", "c.md"]

    async def test_S66_output_never_decides(self, world: World, scratch: str) -> None:
        """What a command prints has no influence on its status or its end: any marker, control sequence or text of
        an earlier call comes through unchanged."""
        text = "\x1b]133;D;0\x07__END__ 0\nexit_code=0\n\x04\x1a\r$ \0after\n"
        await world.fs.write_text(f"{scratch}/f", text)
        result = await world.shell.run("env; cat f; exit 9", cwd=scratch)
        assert result.exit_code == 9
        assert result.stdout.data.endswith(text.encode())

    async def test_S67_a_missing_directory_is_told(self, world_maker: WorldMaker) -> None:
        """When the world's own working directory is gone, a command without a directory runs in the nearest one
        above that still exists, and the notes of the result say so, whether it is run or started. One that names
        the directory is refused."""

        async def results(command: str) -> list[CommandResult]:
            async with world.shell.start(command) as process:
                return [await world.shell.run(command), await process.wait()]

        async with world_maker() as world:
            gone = world.facts.cwd
            if (await world.subprocess.run(["rmdir", gone], cwd="/")).ok:
                try:
                    parent = (await world.fs.resolve(gone.rpartition("/")[0] or "/")).process_path
                    for result in await results("pwd -P; echo alive"):
                        assert result.stdout.text == f"{parent}\nalive\n"
                        assert [gone in note for note in result.notes] == [True]
                    with pytest.raises(CommandFailed) as failure:
                        await world.shell.run("exit 3", check=True)
                    assert [gone in note for note in failure.value.result.notes] == [True]
                    with pytest.raises(WorkingDirectoryMissing):
                        async with world.shell.start("true", cwd=gone):
                            pass
                finally:
                    await world.fs.make_directory(gone)
            assert [result.notes for result in await results("true")] == [(), ()]

    async def test_S7_a_start_returns_at_once(self, world: World) -> None:
        """A started command runs on while the caller goes on, its output can be read meanwhile, and leaving ends
        its tree."""
        start = anyio.current_time()
        async with world.shell.start("echo early; sleep 30") as process:

            async def early() -> bool:
                return process.read_output(OutputStream.STDOUT).data == b"early\n"

            await eventually(early, "the output of a running command cannot be read")
            assert process.running
            pid = process.pid
        assert anyio.current_time() - start < 5
        await assert_gone(world, pid, "a started command", within_s=0.3)

    async def test_S68_options_are_those_of_commands(self, world: World, scratch: str) -> None:
        """Directory, environment, input and limits mean for a command string what they mean for a command."""
        seen: list[bytes] = []

        async def see(stream: OutputStream, chunk: bytes) -> None:
            seen.append(chunk)

        result = await world.shell.run(
            'pwd -P; echo "$A"; cat', cwd=scratch, env={"A": "a b"}, stdin=b"in", on_output=see, timeout_s=20
        )
        assert result.stdout.data == f"{scratch}\na b\nin".encode()
        assert b"".join(seen) == result.stdout.data
        assert result.timeout_s == 20
        async with world.shell.start("echo x; exit 3", merge_stderr=True, cwd=scratch) as process:
            assert (await process.wait()).exit_code == 3

    async def test_S70_a_started_command_can_be_fed(self, world: World) -> None:
        """What is written to the input of a started command reaches it as it is written, and closing is the end."""
        async with world.shell.start("read x; echo $x; cat", pipe_stdin=True) as process:
            assert process.stdin is not None
            await process.stdin.send(b"first\n")

            async def answered() -> bool:
                return process.read_output(OutputStream.STDOUT).data == b"first\n"

            await eventually(answered, "input does not reach a command before its end")
            await process.stdin.send(b"rest")
            await process.stdin.aclose()
            assert (await process.wait()).stdout.data == b"first\nrest"

    async def test_S69_a_pipeline_has_the_status_of_the_shell(self, world: World) -> None:
        """The status is the shell's own: a stage without a match is no failure of the whole, and a failing last
        stage is."""
        assert (await world.shell.run("false | true")).exit_code == 0
        assert (await world.shell.run("true | sh -c 'exit 3'")).exit_code == 3
        result = await world.shell.run("grep zzz /dev/null | wc -l")
        assert (result.stdout.text.strip(), result.exit_code) == ("0", 0)
