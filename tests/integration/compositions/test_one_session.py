"""One scripted session of an agent reads the same in every world: that its tools move together, and mean the same."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import pytest
from tests.contract.docker_worlds import BUSYBOX, WORKSPACE, engine_of_this_host, open_container

from execworld.seams import SandboxPolicy, World
from execworld.tools.approval import Answer, ApprovalRequest
from execworld.tools.toolset import Toolset, toolset
from execworld.world import open_world

pytestmark = [pytest.mark.slow, pytest.mark.landlock, pytest.mark.docker, pytest.mark.timeout(180)]

FACTS: Final = (
    (re.compile(r"\bpid \d+\b"), "pid N"),
    (re.compile(r"\b\d+(\.\d+)? s\b"), "N s"),
)
"""What may differ: process ids and durations, beside the directory of the session."""
PROGRAM: Final = "add() { echo $(($1 - $2)); }\n"
TEST: Final = (
    '. ./calc.sh\n[ "$(add 2 3)" = 5 ] || { echo "2 + 3 is $(add 2 3)" >&2; exit 1; }\necho passed\n'
)


@asynccontextmanager
async def opened(kind: str, directory: Path) -> AsyncGenerator[World]:
    """A world with a shell, an editor and a directory to write in; local, which confines nothing, has no policy."""
    if kind == "docker":
        engine_of_this_host()
        async with open_container(SandboxPolicy.workspace_write(WORKSPACE), BUSYBOX) as world:
            yield world
        return
    await anyio.Path(directory).mkdir()
    policy = SandboxPolicy.full_access() if kind == "local" else SandboxPolicy.workspace_write(str(directory))
    async with open_world(kind, cwd=str(directory), policy=policy) as world:
        yield world


async def session(tools: Toolset, cwd: str) -> dict[str, str]:
    """The texts that the agent reads, by what it did."""
    read: dict[str, str] = {}

    async def call(what: str, tool: str, /, **arguments: object) -> str:
        text = (await tools.call(tool, arguments)).text.replace(cwd, "<here>")
        for pattern, instead in FACTS:
            text = pattern.sub(instead, text)
        read[what] = text
        return text

    await call("write the program", "write", file_path="calc.sh", content=PROGRAM)
    await call("write its test", "write", file_path="test.sh", content=TEST)
    await call("see it fail", "bash", command="busybox sh test.sh")
    await call("read the program", "read", file_path="calc.sh")
    await call("edit what is not there", "edit", file_path="calc.sh", old_string="$1 * $2", new_string="x")
    await call("repair it", "edit", file_path="calc.sh", old_string="$1 - $2", new_string="$1 + $2")
    await call("see it pass", "bash", command="busybox sh test.sh")

    opened = await call("start a shell", "terminal_open", argv=["busybox", "sh"], name="shell")
    shell = re.findall(r"pty-\d+", opened)[0]
    await call("set a variable", "terminal_send", session_id=shell, text="x=41")
    await call("use it", "terminal_send", session_id=shell, text="echo $((x + 1))")
    await call("end the shell", "terminal_close", session_id=shell)

    opened = await call(
        "start an editor", "terminal_open", argv=["busybox", "vi", "note"], rows=8, columns=40
    )
    editor = re.findall(r"pty-\d+", opened)[0]
    await call("type", "terminal_send", session_id=editor, text="ihello\x1b", submit=False)
    await call("save", "terminal_send", session_id=editor, text=":wq")
    await call("what was saved", "read", file_path="note")

    server = "echo up >log; while :; do sleep 1; done"
    await call("start a server", "bash", command=server, run_in_background=True)
    await call("wait for it", "bash", command="until [ -s log ]; do sleep 0.1; done; cat log")
    await call("list jobs", "job_list")
    await call("end it", "job_kill", job_id="bash-1")
    await call("what became of it", "job_output", job_id="bash-1", wait=True)

    await call("search", "grep", pattern=r"add\(?")
    await call("find", "glob", pattern="*.sh")
    await call("list", "list")
    await call("read what is not there", "read", file_path="nothing")
    await call("call what is not there", "nothing")
    return read


@pytest.mark.anyio
async def test_one_session_reads_the_same_in_every_world(tmp_path: Path) -> None:
    if shutil.which("busybox") is None:
        pytest.fail("the script uses busybox, as it is in its image: apt-get install busybox-static")
    texts: dict[str, dict[str, str]] = {}
    for kind in ("local", "landlock", "docker"):
        async with opened(kind, tmp_path / kind) as world, toolset(world) as tools:
            texts[kind] = await session(tools, world.facts.cwd)
    assert "2 + 3 is -1" in texts["local"]["see it fail"]
    assert "passed" in texts["local"]["see it pass"]
    assert "42" in texts["local"]["use it"]
    assert "hello" in texts["local"]["what was saved"]
    for kind in ("landlock", "docker"):
        differing = {
            what: (texts["local"][what], text)
            for what, text in texts[kind].items()
            if text != texts["local"][what]
        }
        assert differing == {}, kind


@pytest.mark.anyio
@pytest.mark.root
async def test_asking_for_more_reads_the_same_where_something_is_denied(tmp_path: Path) -> None:
    """A wider sandbox for one call, in the worlds that confine: asked for, refused, granted, and over with the call."""
    texts: dict[str, list[str]] = {}
    asked: list[str] = []
    for kind in ("landlock", "docker"):
        answers = [Answer.REJECTED, Answer.ALLOWED_ONCE]

        async def approve(request: ApprovalRequest, answers: list[Answer] = answers) -> Answer:
            asked.append(request.call.name)
            return answers.pop(0)

        outside = "/etc/asked-by-a-test-of-execworld"
        command = f"busybox sh -c 'echo x >{outside} && cat {outside} && rm {outside}'"
        wider = {"sandbox_permissions": "full-access", "justification": "to try it"}
        async with opened(kind, tmp_path / kind) as world, toolset(world, approve=approve) as tools:
            texts[kind] = [
                (await tools.call("bash", {"command": command, **more})).text
                for more in ({}, wider, wider, {})
            ]
    assert asked == ["bash"] * 4, texts
    assert "Read-only file system" in texts["landlock"][0]
    assert [text.splitlines()[0] for text in texts["landlock"]][2] == "x"
    assert texts["landlock"] == texts["docker"]
