"""The plugins of terminals, in a kernel; and what importing them brings."""

from __future__ import annotations

import subprocess
import sys

import pytest

from execworld.kernel import Context, open_kernel, plugin
from execworld.seams import World
from execworld.tools.registry import TOOLS, ToolRegistry
from execworld.tools.standard.bash_persistent import bash_persistent
from execworld.tools.standard.terminal_close import terminal_close
from execworld.tools.standard.terminal_list import terminal_list
from execworld.tools.standard.terminal_open import terminal_open
from execworld.tools.standard.terminal_read import terminal_read
from execworld.tools.standard.terminal_send import terminal_send
from execworld.tools.standard.terminal_signal import terminal_signal
from execworld.tools.terminals import TERMINALS
from execworld.tools.terminals.plugin import terminals as terminals_plugin


@pytest.mark.anyio
async def test_the_tools_are_there_as_long_as_the_service(equipped_world: World) -> None:
    """And terminals end with the service."""

    @plugin(provides=[TOOLS])
    def tools(ctx: Context) -> None:
        ctx.provide(TOOLS, ToolRegistry())

    async with open_kernel() as root:
        root.plugin(tools)
        service = root.plugin(terminals_plugin, {})
        for each in (
            bash_persistent,
            terminal_close,
            terminal_list,
            terminal_open,
            terminal_read,
            terminal_send,
            terminal_signal,
        ):
            root.plugin(each, {})
        await root.settle()
        names = {
            "bash_persistent",
            *(f"terminal_{name}" for name in ["close", "list", "open", "read", "send", "signal"]),
        }
        assert set(root.get(TOOLS).view(root)) == names
        session, _ = await root.get(TERMINALS).open(object(), equipped_world)
        await service.dispose()
        assert session.exited
        await root.settle()
        assert set(root.get(TOOLS).view(root)) == set()


def test_the_emulator_comes_with_the_first_terminal() -> None:
    """Tables of the widths of characters are large; who opens no terminal does not wait for them."""
    program = (
        "import sys, execworld.tools.terminals.plugin, execworld.tools.standard.bash_persistent, "
        "execworld.tools.standard.terminal_open, execworld.tools.standard.terminal_send; "
        "sys.exit(any(name in sys.modules for name in ('pyte', 'wcwidth')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
