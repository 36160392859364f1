"""Standard input: nobody is there to type, and large input flows while output does."""

from __future__ import annotations

import os

import anyio
import pytest

from execworld.seams import CommandFailed, World
from execworld.seams.testing.probes import pattern_bytes, receive_to_end

pytestmark = pytest.mark.anyio


async def test_c053_a_reader_meets_the_end_of_input(world: World) -> None:
    """`cat` and a shell that would read commands end at once instead of waiting for the limit."""
    before = anyio.current_time()
    result = await world.shell.run("cat; sh; read x; echo after", timeout_s=20)
    assert (result.stdout.data, result.exit_code) == (b"after\n", 0)
    assert anyio.current_time() - before < 2


HISTORY = """
git init -q . && git config user.name n && git config user.email e@example.test
i=0; while [ $i -lt 300 ]; do
    printf 'commit refs/heads/main\\ncommitter n <e@example.test> %d +0000\\ndata 12\\nmessage %03d\\n\\n' $i $i
    i=$((i+1))
done | git fast-import --quiet --force
git symbolic-ref HEAD refs/heads/main
"""


async def test_c055_no_pager_takes_over(world: World) -> None:
    """The whole log arrives. The variable that says so can be overridden."""
    await world.shell.run(HISTORY, check=True)
    before = anyio.current_time()
    result = await world.shell.run("git log --format=%s", timeout_s=20)
    assert anyio.current_time() - before < 5
    assert len(result.stdout.text.splitlines()) == 300
    variables = await world.shell.run('echo "$PAGER $GIT_PAGER $TERM"')
    assert variables.stdout.data == b"cat cat dumb\n"
    overridden = await world.shell.run('echo "$PAGER $GIT_PAGER"', env={"PAGER": "head", "GIT_PAGER": None})
    assert overridden.stdout.data == b"head \n"


async def test_c055_on_a_terminal_the_caller_names_the_pager(world: World) -> None:
    """A terminal is for somebody who looks at it, so nothing is defaulted there; with a pager named, all comes."""
    await world.shell.run(HISTORY, check=True)
    argv = ["git", "log", "--format=%s"]
    async with world.subprocess.open_terminal(argv, env={"GIT_PAGER": "cat"}) as terminal:
        with anyio.fail_after(20):
            output = await receive_to_end(terminal)
        assert (await terminal.wait()).exit_code == 0
    assert output.count(b"message ") == 300


async def test_c057_large_input_meets_large_output(world: World) -> None:
    """A program that first writes more than a pipe holds and then reads does not block us, nor we it."""
    script = "head -c 131072 /dev/zero; head -c 131072 | sha256sum"
    data = pattern_bytes(131072)
    with anyio.fail_after(20):
        result = await world.subprocess.run(["sh", "-c", script], stdin=data)
    assert result.stdout.total_bytes == 131072 + len("0" * 64 + "  -\n")


async def test_c057_fifty_megabytes_go_round(world: World) -> None:
    data = pattern_bytes(1 << 20) * 50
    position = 0
    equal = True

    async def compare(_: object, chunk: bytes) -> None:
        nonlocal position, equal
        equal = equal and data[position : position + len(chunk)] == chunk
        position += len(chunk)

    with anyio.fail_after(60):
        result = await world.subprocess.run(["cat"], stdin=data, on_output=compare)
    assert (result.exit_code, position, equal) == (0, len(data), True)


async def test_c057_a_program_that_reads_nothing_is_no_error(world: World) -> None:
    with anyio.fail_after(20):
        result = await world.subprocess.run(["true"], stdin=b"x" * 5_000_000)
    assert result.ok


@pytest.mark.parametrize(
    "command", ["cat <<EOF\nhello", 'echo "abc', "echo $(", "if true; then", "for x in a b"]
)
async def test_c061_an_unfinished_command_is_an_error_of_the_shell(world: World, command: str) -> None:
    """It neither waits at a continuation prompt nor harms the next command."""
    before = anyio.current_time()
    result = await world.shell.run(command, timeout_s=20)
    assert anyio.current_time() - before < 2
    assert not result.timed_out
    if command.startswith("cat"):
        assert result.stdout.data.strip() == b"hello"  # shells accept this one, with a warning
    else:
        assert result.exit_code not in (0, None)
        assert result.stderr.data
    assert (await world.shell.run("echo usable")).stdout.data == b"usable\n"


async def test_c063_a_loop_over_several_lines_is_one_command(world: World) -> None:
    for name in ("a", "b", "c"):
        await world.fs.write_text(f"{name}.txt", name)
    loop = 'for f in *.txt\ndo\n  mv "$f" "${f%.txt}.md"\n  echo "moved $f"\ndone'
    result = await world.shell.run(loop, timeout_s=20)
    assert result.stdout.data == b"moved a.txt\nmoved b.txt\nmoved c.txt\n"
    assert [entry.name for entry in await world.fs.list_directory(".")] == ["a.md", "b.md", "c.md"]


async def test_c065_a_command_cannot_read_our_bookkeeping(world: World) -> None:
    """There is nothing on its input that is not the caller's, so `read` gets nothing and the status is its own."""
    result = await world.shell.run('read x; echo "got:[$x]"; head -n1; exit 4', timeout_s=20)
    assert (result.stdout.data, result.exit_code) == (b"got:[]\n", 4)
    given = await world.shell.run('read x; echo "got:[$x]"; cat', stdin=b"one\ntwo\n")
    assert given.stdout.data == b"got:[one]\ntwo\n"


async def test_c065_checked_failures_carry_what_was_said(world: World) -> None:
    with pytest.raises(CommandFailed) as caught:
        await world.shell.run("echo said; exit 3", check=True)
    assert caught.value.result.stdout.data == b"said\n"
    assert os.linesep not in caught.value.message
