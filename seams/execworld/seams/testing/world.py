"""Clauses of the world as a whole: one identity, one place, one end."""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

import anyio
import pytest

from execworld.seams import (
    CommandNotFound,
    FileKind,
    World,
    WorldClosed,
    WorldMismatch,
    encode_path,
)
from execworld.seams.testing.probes import assert_gone, is_alive, output_of, pid_from, sh
from execworld.seams.testing.suite import ContractSuite, WorldMaker, scratch_directory

AWKWARD_NAMES = {
    "plain": "plain.txt",
    "spaces": " lead and trail ",
    "newline": "two\nlines",
    "quotes": 'it\'s "quoted" `$(x)`',
    "non-ascii": "漢字-é-😀",
    "dash": "-rf",
    "star": "*",
    "backslash": "a\\b",
    "not-utf8": "fo\udcff.t",
}

# What a host may hold that no command of any world should ever see.
FORBIDDEN_NAMES = (
    "EXECWORLD_FAKE_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN",
    "DATABASE_URL",
    "RESTIC_PASSPHRASE",
    "SSH_AUTH_SOCK",
    "GIT_ASKPASS",
    "KUBECONFIG",
    "LD_LIBRARY_PATH",
    "NODE_OPTIONS",
    "PYTHONSTARTUP",
    "BASH_ENV",
    "ENV",
)
SECRET = "s3cr3t-of-the-host"

Use: TypeAlias = "Callable[[World], Awaitable[object]]"


async def _open_process(world: World) -> None:
    async with world.subprocess.start(["true"]):
        pass


async def _open_terminal(world: World) -> None:
    async with world.subprocess.open_terminal(["true"]):
        pass


async def _walk(world: World) -> None:
    async for _ in world.fs.walk("."):
        pass


USES: dict[str, Use] = {
    "fs.stat": lambda world: world.fs.stat("."),
    "fs.resolve": lambda world: world.fs.resolve("."),
    "fs.write_text": lambda world: world.fs.write_text("late", ""),
    "fs.walk": _walk,
    "subprocess.run": lambda world: world.subprocess.run(["true"]),
    "subprocess.start": _open_process,
    "subprocess.open_terminal": _open_terminal,
    "subprocess.resolve_executable": lambda world: world.subprocess.resolve_executable("sh"),
    "shell.run": lambda world: world.shell.run("true"),
}


class WorldContract(ContractSuite):
    """One file system and one process table that see the same paths, under one name."""

    @pytest.mark.parametrize("name", AWKWARD_NAMES.values(), ids=AWKWARD_NAMES.keys())
    async def test_W1_a_process_opens_what_fs_names(self, world: World, scratch: str, name: str) -> None:
        """A process of the world that opens the process path of a file reads the bytes that fs wrote, whatever
        characters the name holds."""
        await world.fs.write_bytes(f"{scratch}/{name}", b"content\n")
        target = await world.fs.resolve(f"{scratch}/{name}")
        result = await world.subprocess.run(["cat", encode_path(target.process_path)])
        assert (result.stdout.data, result.exit_code) == (b"content\n", 0)

    async def test_W2_each_side_sees_what_the_other_wrote(self, world: World, scratch: str) -> None:
        """What a process wrote is visible to fs as soon as the process has ended, and what fs wrote is visible to
        the next process."""
        path = f"{scratch}/f"
        for number in range(5):
            await sh(world, 'printf %s "$2" > "$1"', path, f"by process {number}")
            assert await world.fs.read_text(path) == f"by process {number}"
            await world.fs.write_text(path, f"by fs {number}")
            assert await output_of(world, 'cat "$1"', path) == f"by fs {number}"

    async def test_W3_both_sides_start_from_the_same_directory(self, world: World, scratch: str) -> None:
        """``fs.resolve`` and a command agree on the working directory: the world's own, and one that is given."""
        assert (await world.fs.resolve(".")).process_path == await output_of(world, "pwd -P")
        await world.fs.make_directory(f"{scratch}/real")
        await world.fs.make_symlink(f"{scratch}/link", "real")
        target = await world.fs.resolve(".", cwd=f"{scratch}/link")
        assert target.process_path == await output_of(world, "pwd -P", cwd=f"{scratch}/link")

    async def test_W4_programs_are_looked_up_in_the_world(self, world: World, scratch: str) -> None:
        """``resolve_executable`` answers for the world: it finds a program that exists only there, names a file
        that fs sees, and does not find what is not there."""
        await world.fs.write_text(f"{scratch}/only-in-this-world", "#!/bin/sh\necho found\n", mode=0o755)
        found = await world.subprocess.resolve_executable("only-in-this-world", env={"PATH": scratch})
        assert found == f"{scratch}/only-in-this-world"
        shell = await world.fs.stat(await world.subprocess.resolve_executable("sh"))
        assert shell is not None
        assert shell.kind is FileKind.FILE
        with pytest.raises(CommandNotFound):
            await world.subprocess.resolve_executable("only-in-this-world")

    @pytest.mark.parametrize("name", AWKWARD_NAMES.values(), ids=AWKWARD_NAMES.keys())
    async def test_W5_a_file_url_is_that_of_the_world(self, world: World, scratch: str, name: str) -> None:
        """``file_url`` percent-encodes the bytes of the process path; decoding it gives them back."""
        target = await world.fs.resolve(f"{scratch}/{name}")
        url = world.fs.file_url(target)
        assert url.startswith("file:///")
        assert url.isascii()
        assert not set(url) & set(' \n"`<>\\^{|}')
        path = url.removeprefix("file://")
        assert urllib.parse.unquote_to_bytes(path) == encode_path(target.process_path)

    async def test_W6_containment_goes_by_components(self, world: World, scratch: str) -> None:
        """A directory contains itself and what lies below it, through links as well; not its parent, and not a
        sibling whose name merely starts alike."""
        await world.fs.make_directory(f"{scratch}/a/b")
        await world.fs.make_directory(f"{scratch}/ab")
        await world.fs.make_symlink(f"{scratch}/link", "a")
        root, a, b, ab, missing, linked = [
            await world.fs.resolve(f"{scratch}/{name}") for name in (".", "a", "a/b", "ab", "a/x/y", "link/b")
        ]
        contains = world.fs.contains
        assert contains(a, a)
        assert contains(a, b)
        assert contains(a, missing)
        assert contains(a, linked)
        assert contains(await world.fs.resolve("/"), b)
        assert not contains(a, ab)
        assert not contains(a, root)
        assert not contains(b, a)

    async def test_W7_targets_of_another_world_are_refused(self, world: World, scratch: str) -> None:
        """A target carries its world; using one of another world or generation is WORLD_MISMATCH, and nothing
        happens."""
        await world.fs.write_text(f"{scratch}/f", "old")
        own = await world.fs.resolve(f"{scratch}/f")
        assert own.world_id == world.world_id
        foreign = replace(own, world_id=f"{own.world_id}-other")
        with pytest.raises(WorldMismatch):
            world.fs.contains(own, foreign)
        with pytest.raises(WorldMismatch):
            world.fs.contains(foreign, own)
        with pytest.raises(WorldMismatch):
            await world.fs.read_text(foreign)
        with pytest.raises(WorldMismatch):
            await world.fs.stat(foreign)
        with pytest.raises(WorldMismatch):
            await world.fs.write_text(foreign, "new")
        with pytest.raises(WorldMismatch):
            await world.fs.remove(foreign)
        assert await world.fs.read_text(own) == "old"

    async def test_W10_closing_is_idempotent(self, world_maker: WorldMaker) -> None:
        """Closing a world again, or from several tasks at once, joins the first closing and is no error."""
        async with world_maker() as world:
            assert not world.closed
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(world.aclose)
            assert world.closed
            await world.aclose()
        assert world.closed

    @pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
    async def test_W11_a_closed_world_is_void(self, world_maker: WorldMaker, use: Use) -> None:
        """Everything that is asked of a closed world is WORLD_CLOSED."""
        async with world_maker() as world:
            await world.aclose()
            with pytest.raises(WorldClosed) as caught:
                await use(world)
            assert caught.value.world == world.world_id

    async def test_W12_credentials_of_the_host_stay_there(
        self, world_maker: WorldMaker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Names that look like credentials, pointers to credentials, and names that load code into programs do not
        reach a command, a shell or a terminal; neither does their value by any other way."""
        for name in FORBIDDEN_NAMES:
            monkeypatch.setenv(name, SECRET)
        async with world_maker() as world:
            seen = [await output_of(world, "env"), (await world.shell.run("env")).stdout.text]
            async with world.subprocess.open_terminal(["env"]) as terminal:
                received = b""
                while True:
                    try:
                        received += await terminal.receive()
                    except anyio.EndOfStream:
                        break
            seen.append(received.decode())
        for text in seen:
            assert "PATH=" in text
            assert SECRET not in text
            names = {line.partition("=")[0] for line in text.splitlines()}
            assert not names & set(FORBIDDEN_NAMES)

    async def test_W13_all_seams_carry_one_identity(self, world: World) -> None:
        """fs, subprocess, shell and sandbox of a world name the same world and the same view, and so does every
        result."""
        seams = (world.fs, world.subprocess, world.shell, world.sandbox)
        assert {seam.world_id for seam in seams} == {world.world_id}
        assert {seam.view_id for seam in seams} == {world.view_id}
        run = await world.subprocess.run(["true"])
        shell = await world.shell.run("true")
        assert {run.world_id, shell.world_id} == {world.world_id}
        assert {run.view_id, shell.view_id} == {world.view_id}
        async with world.subprocess.start(["true"]) as process:
            assert (process.world_id, process.view_id) == (world.world_id, world.view_id)
        async with world.subprocess.open_terminal(["true"]) as terminal:
            assert (terminal.world_id, terminal.view_id) == (world.world_id, world.view_id)

    async def test_W14_the_identity_says_what_it_is(self, world: World) -> None:
        """A world id is kind, instance and generation; a view id adds the digest of the policy."""
        identity = world.identity
        assert identity.kind
        assert identity.instance
        assert identity.generation >= 1
        assert world.world_id == f"{identity.kind}:{identity.instance}#{identity.generation}"
        assert world.view_id.startswith(world.world_id)
        assert world.policy.digest in world.view_id

    async def test_W15_facts_are_those_of_the_world(self, world: World) -> None:
        """Kernel, machine, user and directories in the facts are what a command finds; all paths are absolute."""
        facts = world.facts
        assert facts.os == (await output_of(world, "uname -s")).lower()
        assert facts.arch == await output_of(world, "uname -m")
        assert facts.kernel == await output_of(world, "uname -r")
        assert str(facts.uid) == await output_of(world, "id -u")
        assert str(facts.gid) == await output_of(world, "id -g")
        assert facts.cwd == await output_of(world, "pwd")
        assert facts.search_path == await output_of(world, 'printf %s "$PATH"')
        for path in (facts.cwd, facts.home, *facts.temp_roots):
            assert path.startswith("/")

    async def test_W16_the_first_temporary_root_can_be_used(self, world: World) -> None:
        """There is a temporary root, and fs and commands can write below the preferred one."""
        root = world.facts.temp_roots[0]
        made = await output_of(world, 'cd "$1" && mktemp -d "$1/contract-XXXXXX"', root)
        try:
            await world.fs.write_text(f"{made}/f", "x")
            assert await output_of(world, 'cat "$1/f"', made) == "x"
        finally:
            await world.fs.remove(made, recursive=True)

    async def test_W17_the_clock_offset_is_measured(self, world: World) -> None:
        """World time minus host time is in the facts, so that times of files can be compared with the host's."""
        before_s = time.time()
        inside_s = int(await output_of(world, "date +%s"))
        after_s = time.time()
        offset_s = world.facts.clock_offset_s
        assert before_s + offset_s - 2 <= inside_s <= after_s + offset_s + 2

    async def test_W18_closing_ends_every_tree(self, world_maker: WorldMaker) -> None:
        """Running commands and background jobs of finished ones are gone when closing returns, and whoever waits
        for a command does not hear of a success."""
        script = 'echo $$ >"$1"; exec sleep 30'
        async with world_maker() as observer, scratch_directory(observer) as scratch, world_maker() as world:
            if observer.world_id != world.world_id:
                await world.fs.make_directory(scratch)
            with anyio.fail_after(2):
                await sh(world, 'sh -c "$2" sh "$1" >/dev/null 2>&1 &', f"{scratch}/job", script)
            outcomes: list[bool] = []
            pids: list[int] = []

            async def run() -> None:
                try:
                    result = await world.subprocess.run(["sh", "-c", script, "sh", f"{scratch}/run"])
                except WorldClosed:
                    outcomes.append(False)
                else:
                    outcomes.append(result.ok)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                pids += [await pid_from(world, f"{scratch}/{name}") for name in ("job", "run")]
                await world.aclose()
            assert outcomes == [False]
            if observer.world_id == world.world_id:
                for pid in pids:
                    assert not await is_alive(observer, pid), f"process {pid} outlived its world"

    async def test_W19_closing_removes_what_the_world_made(self, world_maker: WorldMaker) -> None:
        """Opening, using and closing a world leaves nothing in its temporary roots and working directory but what
        commands and fs calls were told to make."""
        async with world_maker() as observer:

            async def listing(of: World) -> set[str]:
                roots = {of.facts.cwd, *of.facts.temp_roots}
                return {
                    entry.path
                    for root in roots
                    if await of.fs.stat(root) is not None
                    for entry in await of.fs.list_directory(root)
                    if "execworld" in entry.name
                }

            left: set[str] = set()
            for _attempt in range(
                5
            ):  # others may open worlds in the same place meanwhile, though not each time
                before = await listing(observer)
                async with world_maker() as world:
                    await world.subprocess.run(["true"])
                    await world.fs.write_text(f"{world.facts.cwd}/contract-left", "x")
                    await world.fs.remove(f"{world.facts.cwd}/contract-left")
                if observer.world_id != world.world_id:
                    return
                left = await listing(observer) - before
                if not left:
                    return
            assert left == set()

    async def test_W60_a_command_may_be_told_where_it_is(self, world: World, scratch: str) -> None:
        """The enforcement that a result carries is that of the view it ran in."""
        result = await world.subprocess.run(["true"], cwd=scratch)
        assert result.enforcement == world.enforcement
        assert result.enforcement == world.sandbox.enforcement

    async def test_W61_worlds_are_used_from_many_tasks(self, world: World, scratch: str) -> None:
        """Forty commands at once each get their own output, and files written at the same time do not mix."""
        outputs: dict[int, str] = {}

        async def one(number: int) -> None:
            path = f"{scratch}/{number}"
            await world.fs.write_text(path, f"file {number}")
            result = await sh(world, 'echo "$1"; cat "$2"', str(number), path)
            outputs[number] = result.stdout.text

        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(one, number)
        assert outputs == {number: f"{number}\nfile {number}" for number in range(40)}

    async def test_W62_input_and_content_stay_off_command_lines(self, world: World, scratch: str) -> None:
        """No process of the world carries the input of a command or the content of a file in its argument list."""
        if world.facts.os != "linux":
            return  # argument lists of others can be read under /proc alone
        token = "zz-unique-content-of-the-contract"
        script = (
            'for f in /proc/[0-9]*/cmdline; do tr "\\0" " " <"$f" 2>/dev/null; echo; done; cat >/dev/null'
        )
        await world.fs.write_text(f"{scratch}/f", token)
        result = await sh(world, script, stdin=token.encode())
        assert "sh -c" in result.stdout.text
        assert token not in result.stdout.text

    async def test_W63_cleaning_up_survives_cancellation(self, world_maker: WorldMaker) -> None:
        """Cancelling the task that holds a world still closes it completely before the cancellation passes."""
        opened: list[World] = []
        with anyio.CancelScope() as scope:
            async with world_maker() as world:
                opened.append(world)
                scope.cancel()
                await anyio.sleep(10)
        assert scope.cancelled_caught
        assert opened[0].closed

    async def test_W64_a_process_of_a_closed_world_has_ended(self, world_maker: WorldMaker) -> None:
        """Closing a world ends processes whose handles are still open; their handles stay closable."""
        async with world_maker() as observer, world_maker() as world:
            async with world.subprocess.start(["sleep", "30"]) as process:
                pid = process.pid
                await world.aclose()
                assert not process.running
            if observer.world_id == world.world_id:
                await assert_gone(observer, pid, "a process of a closed world")

    async def test_W65_views_end_with_their_world(self, world_maker: WorldMaker) -> None:
        """A view that a world made is closed with it."""
        async with world_maker() as world:
            view = await world.sandbox.confine(world.policy)
            await world.aclose()
            assert view.closed
            with pytest.raises(WorldClosed):
                await view.subprocess.run(["true"])
