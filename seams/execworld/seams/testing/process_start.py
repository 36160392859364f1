"""Clauses of starting a command: program, arguments, environment, directory, input."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from execworld.seams import (
    CommandInvalid,
    CommandNotExecutable,
    CommandNotFound,
    CommandResult,
    FileMissing,
    OutputStream,
    StreamMode,
    WorkingDirectoryMissing,
    World,
)
from execworld.seams.testing.probes import output_of, pattern_bytes, sh
from execworld.seams.testing.suite import ContractSuite
from execworld.seams.testing.world import AWKWARD_NAMES


class LookupClauses(ContractSuite):
    """Which program a name means."""

    async def test_P1_names_are_looked_up_in_path(self, world: World, scratch: str) -> None:
        """A bare name is the first executable regular file of that name in PATH: empty segments are skipped, and so
        are directories and files that cannot be executed. An override of PATH replaces it."""
        resolve = world.subprocess.resolve_executable
        await world.fs.make_directory(f"{scratch}/one/tool")
        await world.fs.write_text(f"{scratch}/two/tool", "#!/bin/sh\n", mode=0o644)
        await world.fs.write_text(f"{scratch}/three/tool", "#!/bin/sh\n", mode=0o755)
        path = f"::{scratch}/one:{scratch}/absent:{scratch}/two:{scratch}/three:"
        assert await resolve("tool", env={"PATH": path}) == f"{scratch}/three/tool"
        with pytest.raises(CommandNotFound):
            await resolve("tool", env={"PATH": "::"}, cwd=f"{scratch}/three")
        with pytest.raises(CommandNotFound):
            await resolve("sh", env={"PATH": f"{scratch}/three"})
        result = await world.subprocess.run(
            ["tool"], env={"PATH": f"{scratch}/three:{world.facts.search_path}"}
        )
        assert result.ok

    async def test_P60_paths_are_taken_as_they_are(self, world: World, scratch: str) -> None:
        """An absolute path must be an executable regular file; a relative one with a slash needs a directory to
        start from; an empty name is refused."""
        resolve = world.subprocess.resolve_executable
        await world.fs.write_text(f"{scratch}/d/tool", "#!/bin/sh\necho ran\n", mode=0o755)
        await world.fs.write_text(f"{scratch}/data", "x", mode=0o644)
        assert await resolve(f"{scratch}/d/tool") == f"{scratch}/d/tool"
        assert await resolve("d/tool", cwd=scratch) == f"{scratch}/d/tool"
        with pytest.raises(CommandNotFound):
            await resolve(f"{scratch}/absent")
        for path in (f"{scratch}/data", f"{scratch}/d"):
            with pytest.raises(CommandNotExecutable):
                await resolve(path)
        for name in ("", "d/tool"):
            with pytest.raises(CommandInvalid):
                await resolve(name)
        result = await world.subprocess.run(["./tool"], cwd=f"{scratch}/d")
        assert result.stdout.data == b"ran\n"


class StartClauses(ContractSuite):
    """What a command is given."""

    @pytest.mark.parametrize("argument", AWKWARD_NAMES.values(), ids=AWKWARD_NAMES.keys())
    async def test_P2_arguments_arrive_byte_for_byte(self, world: World, argument: str) -> None:
        """No shell reads the arguments: any byte but NUL arrives, an empty argument too."""
        data = argument.encode("utf-8", "surrogateescape")
        result = await world.subprocess.run(["printf", "[%s]", data, "", "$HOME", b"; exit 3"])
        assert result.stdout.data == b"[" + data + b"][][$HOME][; exit 3]"

    async def test_P61_malformed_calls_start_nothing(self, world: World, scratch: str) -> None:
        """An empty argument list, an empty program, a NUL, a malformed variable name and a limit that is not
        positive are COMMAND_INVALID, and nothing ran."""
        run = world.subprocess.run
        make = ["touch", f"{scratch}/made"]
        calls: list[Callable[[], Awaitable[CommandResult]]] = [
            lambda: run([]),
            lambda: run([""]),
            lambda: run([*make, "a\0b"]),
            lambda: run([*make, b"\0"]),
            lambda: run(make, env={"": "x"}),
            lambda: run(make, env={"A=B": "x"}),
            lambda: run(make, env={"A": "x\0y"}),
            lambda: run(make, timeout_s=0),
            lambda: run(make, timeout_s=-1),
            lambda: run(make, timeout_s=float("nan")),
            lambda: run(make, grace_s=-1),
            lambda: run(make, cwd="a\0b"),
        ]
        for call in calls:
            with pytest.raises(CommandInvalid):
                await call()
        assert await world.fs.list_directory(scratch) == []

    async def test_P5_what_cannot_start_says_why(self, world: World, scratch: str) -> None:
        """A missing program, one that cannot be executed, and a missing directory are three different errors, each
        also of the builtin kind, and never a result."""
        await world.fs.write_text(f"{scratch}/data", "x", mode=0o644)
        await world.fs.write_text(f"{scratch}/broken", "\x7fELFbroken", mode=0o755)
        await world.fs.write_text(f"{scratch}/orphan", "#!/no/such/interpreter\n", mode=0o755)
        run = world.subprocess.run
        with pytest.raises(CommandNotFound):
            await run(["no-such-program-anywhere"])
        for name in ("data", "broken", "."):
            with pytest.raises(CommandNotExecutable):
                await run([f"{scratch}/{name}"])
        with pytest.raises((CommandNotFound, CommandNotExecutable)):
            await run([f"{scratch}/orphan"])
        for directory in (f"{scratch}/absent", f"{scratch}/data"):
            with pytest.raises(WorkingDirectoryMissing):
                await run(["true"], cwd=directory)
        with pytest.raises(CommandNotFound) as caught:
            async with world.subprocess.start(["no-such-program-anywhere"]):
                pass
        assert caught.value.world == world.world_id
        assert isinstance(caught.value, FileNotFoundError)
        assert not isinstance(caught.value, FileMissing)

    async def test_P62_the_directory_is_the_one_asked_for(self, world: World, scratch: str) -> None:
        """A command starts in the given directory, a relative one counted from the world's, whatever its name."""
        for name in AWKWARD_NAMES.values():
            await world.fs.make_directory(f"{scratch}/{name}")
            result = await world.subprocess.run(["pwd", "-P"], cwd=f"{scratch}/{name}")
            assert result.stdout.data.removesuffix(b"\n") == f"{scratch}/{name}".encode(
                "utf-8", "surrogateescape"
            )
        relative = scratch.rpartition("/")[2]
        assert await output_of(world, "pwd -P", cwd=relative) == scratch

    async def test_P7_the_environment_is_an_allow_list(self, world: World) -> None:
        """A command gets PATH and HOME and what the allow-list lets through, and no name that looks like a
        credential."""
        text = await output_of(world, "env")
        names = {line.partition("=")[0] for line in text.splitlines()}
        assert {"PATH", "HOME"} <= names
        for part in ("TOKEN", "SECRET", "PASSWORD", "PASSPHRASE", "CREDENTIAL", "API_KEY", "PRIVATE_KEY"):
            assert [name for name in names if part in name.upper()] == []

    async def test_P8_overrides_win(self, world: World) -> None:
        """An override sets a name, one that looks like a credential too; None removes an inherited name; odd values
        arrive exactly and an empty one stays set."""
        env = {"MY_API_KEY": "given", "A": "x\ny", "B": "é", "C": "", "D": "a=b", "HOME": None, "LANG": "C"}
        result = await world.subprocess.run(["env", "-0"], env=env)
        if not result.ok:  # not every `env` knows the option
            result = await sh(
                world, 'printf "MY_API_KEY=$MY_API_KEY\\0A=$A\\0B=$B\\0C=${C-unset}\\0D=$D\\0"', env=env
            )
        parts = [line.partition(b"=") for line in result.stdout.data.split(b"\0") if line]
        found = {name: value for name, _, value in parts}
        assert found[b"MY_API_KEY"] == b"given"
        assert found[b"A"] == b"x\ny"
        assert found[b"B"] == "é".encode()
        assert found[b"C"] == b""
        assert found[b"D"] == b"a=b"
        assert await output_of(world, 'echo "${HOME-unset}"', env={"HOME": None}) == "unset"

    async def test_P10_the_environment_stays_off_command_lines(self, world: World, scratch: str) -> None:
        """The values of variables occur in no argument list of the world while the command runs."""
        if world.facts.os != "linux":
            return  # argument lists of others can be read under /proc alone
        value = "zz-value-of-a-variable"
        script = 'for f in /proc/[0-9]*/cmdline; do tr "\\0" " " <"$f" 2>/dev/null; echo; done >"$1/seen"'
        await sh(world, script, scratch, env={"A_VARIABLE": value})
        seen = await world.fs.read_bytes(f"{scratch}/seen")
        assert b"sh -c" in seen
        assert value.encode() not in seen

    async def test_P63_nothing_else_is_inherited(self, world: World) -> None:
        """A command has the three standard descriptors and no other, no ignored and no blocked signal, and is the
        leader of a session of its own."""
        if world.facts.os != "linux":
            return  # only /proc tells
        listing = await world.subprocess.run(
            ["sh", "-c", "ls /proc/$$/fd; cat /proc/self/status; cat /proc/$$/stat; echo $$"]
        )
        text = listing.stdout.text
        descriptors = [line for line in text.splitlines() if line.isdigit()][:-1]
        assert descriptors == ["0", "1", "2"]
        masks = dict(
            line.split(":\t") for line in text.splitlines() if line.startswith(("SigBlk:", "SigIgn:"))
        )
        assert {int(mask, 16) for mask in masks.values()} == {0}
        *_, stat, pid = text.splitlines()
        fields = stat.rpartition(")")[2].split()
        assert fields[3] == pid, "the command does not lead its session"


class InputClauses(ContractSuite):
    """Standard input."""

    async def test_P11_there_is_no_input_unless_asked(self, world: World) -> None:
        """Without input a command reads the end at once; what is given is read and then the end; a program that
        reads nothing is no error, however much was given."""
        with anyio.fail_after(3):
            assert (await world.subprocess.run(["cat"])).stdout.data == b""
            assert (await world.subprocess.run(["cat"], stdin=b"")).stdout.data == b""
            assert (await world.subprocess.run(["cat"], stdin=b"a\0b")).stdout.data == b"a\0b"
            for program in ("true", "false"):
                result = await world.subprocess.run([program], stdin=pattern_bytes(3_000_000))
                assert result.exit_code == (0 if program == "true" else 1)

    async def test_P64_large_input_meets_large_output(self, world: World) -> None:
        """Input and output larger than any pipe flow at the same time, also when the program writes before it
        reads."""
        data = pattern_bytes(2_000_000)
        async with world.subprocess.start(["cat"], stdin=data, stdout=StreamMode.PIPE) as process:
            assert process.stdout is not None
            assert b"".join([chunk async for chunk in process.stdout]) == data
        script = "head -c 200000 /dev/zero; wc -c"
        result = await world.subprocess.run(["sh", "-c", script], stdin=data[:200_000])
        assert result.stdout.data.lstrip(b"\0").split() == [b"200000"]

    async def test_P65_input_can_be_typed(self, world: World) -> None:
        """With ``pipe_stdin`` the caller writes when it likes; each line arrives without the end, and closing is
        the end of input."""
        script = 'while read line; do echo "got $line"; done; echo end'
        async with world.subprocess.start(
            ["sh", "-c", script], pipe_stdin=True, stdout=StreamMode.PIPE
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            received = b""
            for number in range(3):
                await process.stdin.send(f"{number}\n".encode())
                while f"got {number}\n".encode() not in received:
                    received += await process.stdout.receive()
            await process.stdin.aclose()
            received += b"".join([chunk async for chunk in process.stdout])
            assert received == b"got 0\ngot 1\ngot 2\nend\n"
            assert (await process.wait()).ok

    async def test_P66_writing_to_a_closed_input_is_told(self, world: World) -> None:
        """Sending to a program that closed its input raises BrokenResourceError, and the program's result
        stands."""
        async with world.subprocess.start(
            ["sh", "-c", "exec <&-; echo closed; exit 4"], pipe_stdin=True
        ) as process:
            assert process.stdin is not None
            assert (await process.wait()).exit_code == 4
            with pytest.raises((anyio.BrokenResourceError, anyio.ClosedResourceError)):  # noqa: PT012 - a pipe takes some
                for _ in range(100):
                    await process.stdin.send(b"x" * 65536)

    async def test_P90_no_input_is_lost_in_silence(self, world: World) -> None:
        """Once a program closed its input and said so, the first send fails: nothing is accepted that nobody can
        read."""
        for _ in range(5):
            async with world.subprocess.start(
                ["sh", "-c", "exec <&-; echo closed; exec sleep 30"], pipe_stdin=True, stdout=StreamMode.PIPE
            ) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                received = b""
                while received != b"closed\n":
                    received += await process.stdout.receive()
                with pytest.raises(anyio.BrokenResourceError):
                    await process.stdin.send(b"x")

    async def test_P67_input_reaches_files(self, world: World, scratch: str) -> None:
        """The end of input reaches the program in the world: what it saved from its input is complete."""
        result = await sh(world, 'cat >"$1"; echo saved', f"{scratch}/f", stdin=b"abc")
        assert result.stdout.data == b"saved\n"
        assert await world.fs.read_bytes(f"{scratch}/f") == b"abc"

    async def test_P68_streams_exist_by_mode(self, world: World, scratch: str) -> None:
        """A handle has a stream exactly when that stream is piped, and output can be asked for exactly when it is
        collected."""
        async with world.subprocess.start(
            ["sh", "-c", "echo out; echo err >&2"], stdout=StreamMode.PIPE, stderr=StreamMode.COLLECT
        ) as process:
            assert process.stdin is None
            assert process.stderr is None
            assert process.stdout is not None
            with pytest.raises(ValueError, match=r"."):
                process.read_output(OutputStream.STDOUT)
            assert b"".join([chunk async for chunk in process.stdout]) == b"out\n"
            result = await process.wait()
        assert result.stderr.data == b"err\n"
        assert result.stdout.data == b""
        null = await world.subprocess.run(
            ["sh", "-c", 'echo out; echo err >&2; : >"$1"', "sh", f"{scratch}/done"],
            stdout=StreamMode.NULL,
            stderr=StreamMode.NULL,
        )
        assert (null.stdout.data, null.stderr.data, null.ok) == (b"", b"", True)
        assert await world.fs.stat(f"{scratch}/done") is not None

    async def test_P69_pipes_are_not_modes_of_run(self, world: World) -> None:
        """``run`` collects or discards; a piped stream or a merged stdout is COMMAND_INVALID there."""
        with pytest.raises(CommandInvalid):
            await world.subprocess.run(["true"], stdout=StreamMode.PIPE)
        with pytest.raises(CommandInvalid):
            await world.subprocess.run(["true"], stderr=StreamMode.PIPE)
        with pytest.raises(CommandInvalid):
            await world.subprocess.run(["true"], stdout=StreamMode.MERGE)
