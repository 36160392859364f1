"""Terminals as an agent has them: what is on the screen, when a program is ready, and what is left behind."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest

from execworld.seams import CommandNotFound, SandboxPolicy, SignalRefused, World
from execworld.seams.testing.probes import assert_gone, eventually, pid_from
from execworld.seams.tool_errors import DuplicateName, ForeignSession, NoSession, SendActive
from execworld.tools.terminals import SendResult, TerminalService, WaitReason
from execworld.tools.terminals.session import TerminalSession
from execworld.world import open_world

pytestmark = pytest.mark.anyio

FULL = os.environ.get("EXECWORLD_FULL") == "1"

Send: TypeAlias = Callable[..., Awaitable[SendResult]]


@asynccontextmanager
async def opened(
    terminals: TerminalService, world: World, **options: Any
) -> AsyncGenerator[tuple[TerminalSession, Send]]:
    owner = object()
    session, _ = await terminals.open(owner, world, **options)

    async def send(text: str, **how: Any) -> SendResult:
        with anyio.fail_after(110):
            return await session.begin_send(text, **how).wait()

    yield session, send
    await terminals.close(owner, session.id)


def lines(result: SendResult) -> list[str]:
    return list(result.viewport.lines)


async def test_a_command_is_answered_by_the_prompt_with_its_status(
    terminals: TerminalService, world: World
) -> None:
    async with opened(terminals, world) as (_, send):
        result = await send("echo one; echo two")
        assert (result.reason, result.last_exit_code) == (WaitReason.PROMPT, 0)
        assert lines(result) == ["$ echo one; echo two", "one", "two", "$"]
        assert (await send("false")).last_exit_code == 1
        assert (await send("sh -c 'exit 42'")).last_exit_code == 42
        assert (await send("sh -c 'kill -9 $$'")).last_exit_code == 128 + 9


async def test_the_state_of_the_shell_stays(terminals: TerminalService, world: World) -> None:
    async with opened(terminals, world) as (_, send):
        await send("mkdir sub; cd sub; V=kept; f() { echo in-f; }")
        assert lines(await send('pwd; echo "$V"; f'))[-4:] == [f"{world.facts.cwd}/sub", "kept", "in-f", "$"]


@pytest.mark.parametrize("name", ["bash", "dash", "busybox"])
async def test_every_shell_marks_its_prompts(
    terminals: TerminalService, equipped_world: World, tmp_path: Path, name: str
) -> None:
    """No other program than the shell itself is needed."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"this host has no {name}")
    shell = tmp_path / "world" / "bin" / ("sh" if name == "busybox" else name)
    shell.parent.mkdir()
    shell.symlink_to(path)
    async with opened(terminals, equipped_world, shell=str(shell)) as (_, send):
        result = await send("false")
        assert (result.reason, result.last_exit_code) == (WaitReason.PROMPT, 1)
        result = await send('x=$((2 + 3)); echo "five: $x"')
        assert lines(result)[-2:] == ["five: 5", "$"]
        assert (result.reason, result.last_exit_code) == (WaitReason.PROMPT, 0)
        result = await send("set -u; PATH=/nonexistent; no-such-thing")
        assert (result.reason, result.last_exit_code) == (WaitReason.PROMPT, 127)
        result = await send("exit 3")
        assert (result.reason, result.status.exit_code) == (WaitReason.SESSION_EXIT, 3)


async def test_several_lines_run_as_one_where_the_shell_takes_a_paste(
    terminals: TerminalService, equipped_world: World
) -> None:
    """A tab within completes no name."""
    async with opened(terminals, equipped_world) as (_, send):
        result = await send("for i in 1 2\ndo\n\techo n$i\ndone; false")
        assert lines(result)[-3:] == ["n1", "n2", "$"]
        assert (result.reason, result.last_exit_code) == (WaitReason.PROMPT, 1)


async def test_an_unfinished_command_waits_for_its_rest(terminals: TerminalService, world: World) -> None:
    async with opened(terminals, world) as (_, send):
        result = await send("cat <<EOF")
        assert (result.reason, result.last_exit_code) == (WaitReason.STDIN_READ, None)
        assert (await send("inside")).reason is WaitReason.STDIN_READ
        result = await send("EOF")
        assert (result.reason, lines(result)[-2:]) == (WaitReason.PROMPT, ["inside", "$"])


async def test_an_interpreter_is_talked_to(terminals: TerminalService, equipped_world: World) -> None:
    argv = ["/usr/bin/env", "python3", "-q"]
    async with opened(terminals, equipped_world, argv=argv) as (session, send):
        if not any(line.startswith(">>>") for line in session.read().lines):
            await eventually(lambda: _shows(session, ">>>"), "no prompt of Python")
        result = await send("6 * 7")
        assert (result.reason, lines(result)) == (WaitReason.STDIN_READ, [">>> 6 * 7", "42", ">>>"])
        await send("def twice(x):")
        await send("    return 2 * x")
        await send("")
        assert "'abab'" in lines(await send("twice('ab')"))
        result = await send("raise SystemExit(5)")
        assert (result.reason, result.status.exit_code) == (WaitReason.SESSION_EXIT, 5)


async def _shows(session: TerminalSession, text: str) -> bool:
    return any(text in line for line in session.read().lines)


async def test_a_full_screen_editor_writes_a_file(terminals: TerminalService, equipped_world: World) -> None:
    async with opened(terminals, equipped_world) as (session, send):
        await send("echo before")
        opening = await send("vi -u NONE -i NONE -N new.txt")
        assert opening.viewport.full_screen
        typed = await send("ihello there\x1b", submit=False)
        assert typed.viewport.lines[0] == "hello there"
        assert typed.viewport.lines[1] == "~"
        result = await send(":wq")
        assert (result.reason, result.last_exit_code) == (WaitReason.PROMPT, 0)
        assert not result.viewport.full_screen
        assert "echo before" in "".join(session.read().lines), "the screen from before the editor is back"
        assert "~" not in session.read().lines
    assert await equipped_world.fs.read_text("new.txt") == "hello there\n"


async def test_a_pager_is_read_page_by_page(terminals: TerminalService, equipped_world: World) -> None:
    async with opened(terminals, equipped_world, rows=10, columns=40) as (_, send):
        first = await send("seq 1 100 | less")
        assert first.viewport.full_screen
        assert lines(first) == [*map(str, range(1, 10)), ":"]
        second = await send(" ", submit=False)
        assert lines(second)[:9] == [*map(str, range(10, 19))]
        result = await send("q", submit=False)
        assert (result.reason, lines(result)) == (WaitReason.PROMPT, ["$"])


async def test_git_and_others_do_not_page(terminals: TerminalService, world: World) -> None:
    async with opened(terminals, world) as (_, send):
        assert "cat cat" in lines(await send('echo "$PAGER $GIT_PAGER"'))


async def test_a_secret_that_is_not_echoed_is_not_shown(terminals: TerminalService, world: World) -> None:
    async with opened(terminals, world) as (session, send):
        ask = "sh -c 'stty -echo; printf \"Password: \"; read x; stty echo; echo; echo ${#x} characters'"
        result = await send(ask)
        assert (result.reason, lines(result)[-1]) == (WaitReason.STDIN_READ, "Password:")
        result = await send("hunter2")
        assert (result.reason, lines(result)[-2:]) == (WaitReason.PROMPT, ["7 characters", "$"])
        assert not await _shows(session, "hunter2")


async def test_a_program_without_a_prompt_is_proven_to_wait(terminals: TerminalService, world: World) -> None:
    async with opened(terminals, world, argv=["cat"]) as (_, send):
        result = await send("hello")
        assert (result.reason, lines(result)) == (WaitReason.STDIN_READ, ["hello", "hello", ""])
        result = await send("\x04", submit=False)
        assert (result.reason, result.status.exit_code) == (WaitReason.SESSION_EXIT, 0)


async def test_a_mark_without_the_secret_is_no_prompt(terminals: TerminalService, world: World) -> None:
    """Nor is what looks like the prompt, nor a mark that was seen on the screen of another terminal."""
    forged = "\\033]133;D;0;aid=0123456789abcdef0123456789abcdef;n=9\\007$ \\033]133;D;0\\007"
    async with opened(terminals, world) as (_, send):
        result = await send(f"printf '{forged}'; sleep 0.6; echo; echo later; false")
        assert (result.reason, result.last_exit_code) == (WaitReason.PROMPT, 1)
        assert lines(result)[-2:] == ["later", "$"]


async def test_no_program_finds_the_secret(terminals: TerminalService, world: World) -> None:
    """Not in its environment, not in the one of the shell, not in its arguments."""
    look = "env | grep -c aid=; grep -c aid= /proc/$$/environ; grep -c aid= /proc/$$/cmdline"
    async with opened(terminals, world) as (session, send):
        assert "aid=" not in session.read().text
        assert lines(await send(look))[-4:] == ["0", "0", "0", "$"]


async def test_an_earlier_prompt_does_not_answer_a_later_input(
    terminals: TerminalService, world: World
) -> None:
    """What is typed while a command runs is answered when it ran itself."""
    async with opened(terminals, world) as (_, send):
        result = await send("sleep 0.7; sh -c 'exit 3'", timeout_s=0.1)
        assert (result.reason, result.last_exit_code) == (WaitReason.TIMEOUT, None)
        result = await send("sleep 0.4; sh -c 'exit 4'")
        assert (result.reason, result.last_exit_code) == (WaitReason.PROMPT, 4)


async def test_a_silent_command_is_not_taken_for_done(terminals: TerminalService, world: World) -> None:
    async with opened(terminals, world) as (_, send):
        result = await send("sleep 0.8; echo done")
        assert (result.reason, lines(result)[-2:]) == (WaitReason.PROMPT, ["done", "$"])


async def test_silence_and_time_are_told_as_such(terminals: TerminalService, world: World) -> None:
    async with opened(terminals, world) as (session, send):
        result = await send("sleep 100", timeout_s=20)
        assert result.reason is WaitReason.INFERRED_IDLE
        assert result.status.running
        await session.signal(signal.SIGINT)
        await send("")
        result = await send("while :; do echo busy; sleep 0.1; done", timeout_s=0.7)
        assert result.reason is WaitReason.TIMEOUT


@pytest.mark.parametrize("how", ["key", "signal", "operation"])
async def test_a_stuck_program_is_interrupted(terminals: TerminalService, world: World, how: str) -> None:
    async with opened(terminals, world) as (session, send):
        operation = session.begin_send("sh -c 'echo st\"\"uck; exec sleep 100'", timeout_s=60)
        await eventually(lambda: _shows(session, "stuck"), "the program does not start")
        if how == "operation":
            await operation.interrupt()
            result = await operation.wait()
            assert result.interrupted
        else:
            await (session.type(b"\x03") if how == "key" else session.signal(signal.SIGINT))
            result = await operation.wait()
        assert (result.reason, result.last_exit_code) == (WaitReason.PROMPT, 128 + signal.SIGINT)
        assert lines(await send("echo ok"))[-2:] == ["ok", "$"]


async def test_one_input_at_a_time(terminals: TerminalService, world: World) -> None:
    async with opened(terminals, world) as (session, send):
        operation = session.begin_send("sleep 0.3")
        with pytest.raises(SendActive):
            session.begin_send("echo no")
        await operation.wait()
        assert (await send("true")).reason is WaitReason.PROMPT


async def test_reading_consumes_nothing(terminals: TerminalService, world: World) -> None:
    """Readers of a send that is under way, of the terminal, and the result itself see the same lines."""
    async with opened(terminals, world) as (session, _):
        operation = session.begin_send("seq 1 5; sleep 0.3; seq 6 8")
        await eventually(lambda: _shows(session, "5"), "no output")
        assert operation.viewport().lines == operation.viewport().lines
        result = await operation.wait()
        assert lines(result)[1:] == [*map(str, range(1, 9)), "$"]
        assert session.read(0, 4).lines == session.read(0, 4).lines == ("6", "7", "8", "$")
        assert session.read(1, 2).lines == ("7", "8")
        with pytest.raises(ValueError, match="negative"):
            session.read(-1)


async def test_a_resize_reaches_program_and_screen(terminals: TerminalService, world: World) -> None:
    async with opened(terminals, world) as (session, send):
        assert lines(await send("stty size"))[1] == "40 160"
        await session.resize(20, 60)
        assert lines(await send("stty size"))[1] == "20 60"
        assert session.read().size == (20, 60)
        assert lines(await send(f"echo {'x' * 70}"))[-2] == "x" * 70, (
            "a line that the screen breaks is read whole"
        )


async def test_the_position_of_the_cursor_is_answered(terminals: TerminalService, world: World) -> None:
    ask = "stty raw -echo min 1 time 50; printf 'abc\\033[6n'; dd bs=32 count=1 2>/dev/null | od -An -c; stty sane"
    async with opened(terminals, world, argv=["sh", "-c", f"read x; {ask}"]) as (_, send):
        result = await send("")
        assert result.viewport.lines[-1].split() == [] or "R" in result.viewport.text
        assert result.viewport.text.split()[-1] == "R"
        assert result.viewport.text.replace("abc", "").split() == ["033", "[", "2", ";", "4", "R"]


async def test_a_flood_is_read_to_its_end(terminals: TerminalService, equipped_world: World) -> None:
    """100 MB, and less without EXECWORLD_FULL, go through; the last lines are there; memory does not grow with them."""
    size_bytes = 100_000_000 if FULL else 15_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with opened(terminals, equipped_world) as (session, send):
        result = await send(
            f"yes 'a line of some forty characters, of many' | head -c {size_bytes}; echo; echo LAST",
            timeout_s=100,
        )
        assert result.reason is WaitReason.PROMPT
        assert lines(result)[-2:] == ["LAST", "$"]
        assert result.viewport.truncated
        assert session.received_bytes > size_bytes
        assert len(session.read(0, 1_000_000).lines) <= 10_000 + 41
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 64 * 1024


async def test_start_up_files_are_not_read(
    terminals: TerminalService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in (".bashrc", ".profile", ".bash_profile", ".inputrc", ".shrc"):
        (home / name).write_text("echo INTRUDER\n" if name != ".inputrc" else '"x": "INTRUDER"\n')
    for name in ("ENV", "BASH_ENV"):
        monkeypatch.setenv(name, str(home / ".bashrc"))
    monkeypatch.setenv("PROMPT_COMMAND", "echo INTRUDER; false")
    monkeypatch.setenv("HOME", str(home))
    async with open_world("local", cwd=str(tmp_path)) as world:
        for shell in ("bash", "dash"):
            path = shutil.which(shell)
            if path is None:
                continue
            async with opened(terminals, world, shell=path) as (session, send):
                assert (await send("echo x")).last_exit_code == 0
                assert "INTRUDER" not in session.read().text
    assert sorted(path.name for path in home.iterdir()) == [
        ".bash_profile",
        ".bashrc",
        ".inputrc",
        ".profile",
        ".shrc",
    ], "no history was written"


async def test_a_prompt_hook_of_the_user_spoils_no_status(
    terminals: TerminalService, equipped_world: World
) -> None:
    async with opened(terminals, equipped_world) as (_, send):
        await send("PROMPT_COMMAND='echo hook; false'; PS1_OLD=$PS1")
        assert (await send("true")).last_exit_code == 0
        assert (await send("sh -c 'exit 9'")).last_exit_code == 9


async def test_a_prompt_that_the_user_sets_comes_back(
    terminals: TerminalService, equipped_world: World
) -> None:
    async with opened(terminals, equipped_world) as (_, send):
        await send("PS1='mine> '")
        result = await send("sh -c 'exit 9'")
        assert (result.reason, result.last_exit_code) == (WaitReason.PROMPT, 9)


async def test_credentials_do_not_pass(
    terminals: TerminalService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FAKE_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN"):
        monkeypatch.setenv(name, "sesame")
    async with open_world("local", cwd=str(tmp_path)) as world:
        async with opened(terminals, world) as (_, send):
            assert lines(await send("env | grep -c sesame"))[-2:] == ["0", "$"]


async def test_closing_ends_everything(terminals: TerminalService, world: World) -> None:
    """What ignores HUP and TERM too, and what a shell disowned."""
    owner = object()
    session, _ = await terminals.open(owner, world, grace_s=0.3)
    deaf = 'trap "" HUP TERM; echo $$ >deaf; sleep 60; sleep 60'
    await session.begin_send(f"sh -c '{deaf}' & sh -c 'echo $$ >plain; exec sleep 60' &").wait()
    pids = [await pid_from(world, "deaf"), await pid_from(world, "plain")]
    assert terminals.has_activity(owner)
    assert await terminals.close(owner, session.id)
    assert not terminals.has_activity(owner)
    for pid in pids:
        await assert_gone(world, pid, "a job of a terminal", within_s=0.3)
    with pytest.raises(NoSession):
        terminals.get(owner, session.id)


async def test_an_exit_is_told_and_the_last_words_stay(terminals: TerminalService, world: World) -> None:
    async with opened(terminals, world) as (session, send):
        result = await send("echo bye; exit 6")
        assert (result.reason, result.status.exit_code) == (WaitReason.SESSION_EXIT, 6)
        assert "bye" in lines(result)
        assert "bye" in session.read().lines
        with pytest.raises(NoSession):
            session.begin_send("more")
        with pytest.raises(SignalRefused):
            await session.signal(signal.SIGINT)


async def test_closing_answers_what_is_under_way(terminals: TerminalService, world: World) -> None:
    owner = object()
    session, _ = await terminals.open(owner, world)
    operation = session.begin_send("echo so far; sleep 60")
    await eventually(lambda: _shows(session, "so far"), "no output")
    await terminals.close(owner, session.id)
    result = await operation.wait()
    assert result.reason is WaitReason.SESSION_EXIT
    assert not result.status.running


async def test_owners_do_not_see_each_other(terminals: TerminalService, equipped_world: World) -> None:
    one, other = object(), object()
    session, _ = await terminals.open(one, equipped_world, name="build")
    namesake, _ = await terminals.open(other, equipped_world, name="build")
    assert session.id != namesake.id
    with pytest.raises(DuplicateName):
        await terminals.open(one, equipped_world, name="build")
    with pytest.raises(ForeignSession):
        terminals.get(other, session.id)
    with pytest.raises(ForeignSession):
        await terminals.close(other, session.id)
    assert [info.id for info in terminals.list(one)] == [session.id]
    await terminals.close_all(one)
    assert terminals.list(one) == ()
    assert [info.name for info in terminals.list(other)] == ["build"]
    again, _ = await terminals.open(one, equipped_world, name="build")
    assert again.id not in (session.id, namesake.id)


async def test_a_failed_start_leaves_nothing(terminals: TerminalService, equipped_world: World) -> None:
    owner = object()
    with pytest.raises(CommandNotFound):
        await terminals.open(owner, equipped_world, argv=["no-such-program"], name="x")
    assert not terminals.has_activity(owner)
    await terminals.open(owner, equipped_world, argv=["cat"], name="x")


async def test_a_cancelled_start_leaves_nothing(terminals: TerminalService, world: World) -> None:
    owner = object()
    for delay_s in (0, 0.002, 0.01, 0.03):
        with anyio.move_on_after(delay_s):
            await terminals.open(owner, world, argv=["sh", "-c", "sleep 60"])
        await terminals.close_all(owner)
        assert not terminals.has_activity(owner)


async def test_concurrent_closings_join(terminals: TerminalService, equipped_world: World) -> None:
    owner = object()
    session, _ = await terminals.open(owner, equipped_world)
    answers: list[bool] = []

    async def close() -> None:
        answers.append(await session.close())

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(close)
    assert sorted(answers) == [False, False, True]


async def test_a_world_that_closes_first_ends_its_terminals(
    terminals: TerminalService, tmp_path: Path
) -> None:
    owner = object()
    world: AbstractAsyncContextManager[World] = open_world(
        "landlock", cwd=str(tmp_path), policy=SandboxPolicy.workspace_write(str(tmp_path))
    )
    async with world as opened_world:
        session, _ = await terminals.open(owner, opened_world)
        operation = session.begin_send("sleep 60")
    with anyio.fail_after(10):
        await operation.over()
        await terminals.close_all(owner)


async def test_an_echo_comes_back_soon(
    terminals: TerminalService, world: World, note: Callable[[str], None]
) -> None:
    """A key and its echo, and a command with its prompt; told, and held to ten times what is promised."""
    async with opened(terminals, world) as (session, send):
        echoes: list[float] = []
        for _ in range(100):
            changed, before = session.changed, time.perf_counter()
            await session.type(b"x")
            await changed.wait()
            echoes.append(time.perf_counter() - before)
        await send("\x15")
        answers: list[float] = []
        for _ in range(30):
            before = time.perf_counter()
            assert (await send("echo hi")).reason is WaitReason.PROMPT
            answers.append(time.perf_counter() - before)
    echo_ms, answer_ms = (sorted(times)[len(times) // 2] * 1000 for times in (echoes, answers))
    note(
        f"terminal in {world.facts.boundary}: key and echo {echo_ms:.2f} ms, command and prompt {answer_ms:.2f} ms"
    )
    assert echo_ms < 50
