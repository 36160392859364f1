"""The terminal tools as an agent calls them: bodies, what they show, and what ends with the session."""

from __future__ import annotations

import anyio
import pytest

from execworld.seams import ForeignSession, NoSession, World
from execworld.seams.testing.probes import assert_gone, pid_from
from execworld.tools.calls import ToolCall, ToolContext, ToolResult
from execworld.tools.content import text_of
from execworld.tools.definition import AnyTool
from execworld.tools.session import ToolSession
from execworld.tools.standard.bash_persistent import BashPersistentTool, bash_persistent_tool
from execworld.tools.standard.terminal_close import terminal_close_tool
from execworld.tools.standard.terminal_list import terminal_list_tool
from execworld.tools.standard.terminal_open import terminal_open_tool
from execworld.tools.standard.terminal_read import terminal_read_tool
from execworld.tools.standard.terminal_send import terminal_send_tool
from execworld.tools.standard.terminal_signal import terminal_signal_tool
from execworld.tools.standard.terminal_values import TerminalTools
from execworld.tools.terminals import TerminalService

pytestmark = pytest.mark.anyio


async def no_other_tools(name: str, _: object) -> ToolResult:
    raise AssertionError(f"{name} was called")


class Agent:
    """Calls the bodies of tools, and shows their values."""

    def __init__(self, terminals: TerminalService, world: World, session: ToolSession) -> None:
        config = TerminalTools(close_grace_s=0.3)
        makers = (
            terminal_open_tool,
            terminal_send_tool,
            terminal_read_tool,
            terminal_signal_tool,
            terminal_close_tool,
            terminal_list_tool,
        )
        tools: list[AnyTool] = [make(config, terminals) for make in makers]
        tools.append(bash_persistent_tool(BashPersistentTool(timeout_s=2.5, output_chars=200), terminals))
        self.tools = {tool.name: tool for tool in tools}
        self.world = world
        self.session = session

    async def call(self, tool_name: str, /, **arguments: object) -> str:
        tool = self.tools[tool_name]
        call = ToolCall("token", tool_name, None, None, self.session)
        context = ToolContext(call, self.world, call_tool=no_other_tools)
        checked = tool.arguments.model_validate(arguments, strict=True)
        value = await tool.run(context, checked)
        assert tool.value.model_validate_json(value.model_dump_json()) == value, "a value is JSON"
        return text_of(tool.render(checked, value))

    async def bash(self, command: str) -> str:
        with anyio.fail_after(30):
            return await self.call("bash_persistent", command=command)


async def test_a_conversation(terminals: TerminalService, world: World) -> None:
    async with ToolSession(world.facts.cwd) as session:
        agent = Agent(terminals, world, session)
        assert await agent.call("terminal_list") == "(no terminals)"
        opening = await agent.call("terminal_open", name="main")
        assert opening == "$\n[terminal pty-1 (main): shell]\n[running]"
        sent = await agent.call("terminal_send", session_id="pty-1", text="echo hi; false")
        assert sent == (
            "$ echo hi; false\nhi\n$\n"
            "[the shell is at its prompt]\n[exit code of the last command: 1]\n[running]"
        )
        page = await agent.call("terminal_read", session_id="pty-1", offset=1, count=1)
        assert page == "hi\n[lines 2-2 of 3]\n[running]"
        await agent.call("terminal_send", session_id="pty-1", text="sleep 60", timeout_s=0.3)
        assert (await agent.call("terminal_signal", session_id="pty-1", signal="INT")).startswith(
            "INT was sent"
        )
        listed = await agent.call("terminal_list")
        assert listed.startswith("pty-1 (main): shell; running; pid ")
        ended = await agent.call("terminal_send", session_id="pty-1", text="exit 3")
        assert ended.endswith("[it ended]\n[exited with code 3]")
        assert await agent.call("terminal_close", session_id="pty-1") == "terminal pty-1 is closed"
        with pytest.raises(NoSession):
            await agent.call("terminal_read", session_id="pty-1")


async def test_a_full_screen_program_is_said_to_be_one(
    terminals: TerminalService, equipped_world: World
) -> None:
    async with ToolSession(equipped_world.facts.cwd) as session:
        agent = Agent(terminals, equipped_world, session)
        opening = await agent.call(
            "terminal_open", argv=["vi", "-u", "NONE", "-i", "NONE"], rows=12, columns=60
        )
        assert "[full screen of 12 rows and 60 columns; cursor in row 1, column 1]" in opening


async def test_a_relative_directory_starts_from_that_of_the_session(
    terminals: TerminalService, world: World
) -> None:
    await world.fs.make_directory("a/b", parents=True)
    async with ToolSession(f"{world.facts.cwd}/a") as session:
        agent = Agent(terminals, world, session)
        opening = await agent.call("terminal_open", argv=["pwd"], cwd="b")
        assert opening.startswith(f"{world.facts.cwd}/a/b\n")


async def test_the_end_of_a_session_ends_its_terminals(terminals: TerminalService, world: World) -> None:
    async with ToolSession(world.facts.cwd) as other:
        stranger = Agent(terminals, world, other)
        async with ToolSession(world.facts.cwd) as session:
            agent = Agent(terminals, world, session)
            await agent.call("terminal_open")
            await agent.call(
                "terminal_send", session_id="pty-1", text="sh -c 'echo $$ >pid; exec sleep 60' &"
            )
            await agent.bash("sh -c 'echo $$ >pid2; exec sleep 60' &")
            with pytest.raises(ForeignSession):
                await stranger.call("terminal_read", session_id="pty-1")
            pids = [await pid_from(world, "pid"), await pid_from(world, "pid2")]
        for pid in pids:
            await assert_gone(world, pid, "a job of a session that is over", within_s=0.3)


async def test_a_cancelled_send_interrupts_the_program(terminals: TerminalService, world: World) -> None:
    async with ToolSession(world.facts.cwd) as session:
        agent = Agent(terminals, world, session)
        await agent.call("terminal_open")
        with anyio.move_on_after(0.5):
            await agent.call("terminal_send", session_id="pty-1", text="sleep 60", timeout_s=60)
        assert "free" in await agent.call("terminal_send", session_id="pty-1", text="echo fr''ee")


async def test_commands_of_the_persistent_shell(terminals: TerminalService, world: World) -> None:
    """State stays, output is exact, the status is told."""
    async with ToolSession(world.facts.cwd) as session:
        agent = Agent(terminals, world, session)
        assert await agent.bash("X=1; mkdir d; cd d") == "(no output)"
        assert await agent.bash('echo "$X"; pwd') == f"1\n{world.facts.cwd}/d"
        assert await agent.bash("printf 'no end'; (exit 7)") == "no end\n[exit code: 7]"
        assert await agent.bash('for i in 1 2\ndo\n\techo "it\'s $i"\ndone') == "it's 1\nit's 2"
        assert await agent.bash("echo 'a!b' \"c!!d\"") == "a!b c!!d"
        assert await agent.bash("cat <<'EOF'\n$X `y` 'z'\nEOF") == "$X `y` 'z'"
        assert await agent.bash("printf 'a\\003b' | od -An -tx1; printf '\x03\x7f' | od -An -tx1") == (
            " 61 03 62\n 03 7f"
        )
        assert await agent.call("terminal_list") == "(no terminals)"


async def test_an_unfinished_command_is_an_error_at_once(terminals: TerminalService, world: World) -> None:
    async with ToolSession(world.facts.cwd) as session:
        agent = Agent(terminals, world, session)
        await agent.bash("X=kept")
        for command in ('echo "abc', "if true; then", "( echo"):
            shown = await agent.bash(command)
            assert shown.endswith(("[exit code: 1]", "[exit code: 2]"))
            assert "yntax" in shown or "nexpected" in shown or "nterminated" in shown
        assert await agent.bash("echo $X") == "kept"


async def test_a_long_command_is_taken_whole(terminals: TerminalService, world: World) -> None:
    """Longer than a line of a terminal, and with what would have to be quoted."""
    async with ToolSession(world.facts.cwd) as session:
        agent = Agent(terminals, world, session)
        text = "é'\"$`\\!*" * 4000
        assert await agent.bash(f"cat >long <<'EOF'\n{text}\nEOF") == "(no output)"
        assert await world.fs.read_text("long") == f"{text}\n"


async def test_a_command_that_asks_returns_early_and_is_interrupted(
    terminals: TerminalService, world: World
) -> None:
    async with ToolSession(world.facts.cwd) as session:
        agent = Agent(terminals, world, session)
        await agent.bash("X=kept")
        asked = await agent.bash("printf 'name? '; cat")
        assert asked.startswith("name?")
        assert asked.endswith(
            "[it waits for input, which cannot be given here; the next command interrupts it]"
        )
        assert await agent.bash("echo $X") == "kept"


async def test_a_command_that_takes_too_long_costs_the_shell(
    terminals: TerminalService, world: World
) -> None:
    async with ToolSession(world.facts.cwd) as session:
        agent = Agent(terminals, world, session)
        await agent.bash("X=lost")
        late = await agent.bash("echo begun; echo $$ >pid; exec 3>&1; sleep 60")
        assert late == "begun\n[not over after 2.5 s: the shell was closed; the next command gets a new one]"
        await assert_gone(world, int(await world.fs.read_text("pid")), "the shell", within_s=0.5)
        assert await agent.bash('echo "${X:-new}"') == "new"
        gone = await agent.bash("echo bye; exit 4")
        assert gone.startswith("bye\n")
        assert gone.endswith("[the shell ended with code 4; the next command gets a new one]")
        assert await agent.bash("echo again") == "again"


async def test_long_output_keeps_its_start(terminals: TerminalService, world: World) -> None:
    async with ToolSession(world.facts.cwd) as session:
        agent = Agent(terminals, world, session)
        shown = await agent.bash("seq 1 1000; (exit 3)")
        assert shown.startswith("1\n2\n3\n")
        assert shown.endswith("characters more were written]\n[exit code: 3]")
        lost = await agent.bash("seq 1 200000")
        assert lost.startswith("[the beginning was dropped")
