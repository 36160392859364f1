"""The tools for files and searches, as an agent meets them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from pydantic import ValidationError

from execworld.seams import (
    AccessDenied,
    EditNotFound,
    FileError,
    FileMissing,
    InvalidPath,
    NotObserved,
    NotRegularFile,
    NotText,
    SandboxDenied,
    SearchInvalidPattern,
    StaleVersion,
)
from execworld.tools.content import Image
from execworld.tools.session import ToolSession

from .agents import Agent

pytestmark = pytest.mark.anyio


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


async def test_c097_a_working_directory_that_is_gone(agent: Agent) -> None:
    """A command works on in the nearest directory that is left, and says so."""
    gone = agent.directory / "t"
    gone.mkdir()
    async with ToolSession(str(gone)) as session:
        moved = Agent(agent.world, session, agent.jobs, agent.directory)
        assert (await moved.bash("pwd")).text == str(gone)
        await moved.bash("rm -rf ../t")
        answer = await moved.bash("pwd; echo alive")
    assert answer.text.splitlines()[:2] == [str(agent.directory), "alive"]
    assert f"{gone} is gone; {agent.directory} was used instead" in answer.text


async def test_c099_an_edit_makes_nothing(agent: Agent) -> None:
    with pytest.raises(FileMissing):
        await agent.edit("new/place/f.txt", "a", "b")
    assert not (agent.directory / "new").exists()


async def test_c101_a_sibling_with_the_same_beginning_is_another_place(confined: Agent) -> None:
    sibling = confined.directory.with_name(confined.directory.name + "-secret")
    sibling.mkdir()
    with pytest.raises((SandboxDenied, AccessDenied)):
        await confined.write(f"../{sibling.name}/f", "x")
    assert list(sibling.iterdir()) == []


async def test_c103_a_link_among_the_parents_leads_nowhere_new(confined: Agent) -> None:
    outside = confined.directory.with_name("outside")
    outside.mkdir()
    (confined.directory / "d").symlink_to(outside)
    with pytest.raises((SandboxDenied, AccessDenied)):
        await confined.write("d/new/x.txt", "x")
    assert list(outside.iterdir()) == []


async def test_c105_a_link_that_stays_inside_works(agent: Agent) -> None:
    (agent.directory / "lib").mkdir()
    (agent.directory / "a").mkdir()
    (agent.directory / "lib/f").write_text("text\n")
    (agent.directory / "a/lib").symlink_to("../lib")
    assert "1: text" in (await agent.read("a/lib/f")).text


async def test_c107_names_of_any_characters_go_there_and_back(agent: Agent) -> None:
    """Each is listed in one line, and what is listed can be read; none is taken for an option or a pattern."""
    names = ["a\nb", " lead", "trail ", "-rf", "*", "back\\slash", "é", "a\\nb"]
    for name in names:
        (agent.directory / name).write_text(f"content of {name!r}")
    listed = (await agent.list()).value.entries
    assert len(listed) == len(names)
    contents = [(await agent.read(entry.path)).value.lines[0].text for entry in listed]
    assert sorted(contents) == sorted(f"content of {name!r}" for name in names)


async def test_c109_a_name_that_is_not_utf8_can_be_read_as_it_is_shown(agent: Agent) -> None:
    agent.put(b"fo\xff.t", b"needle")
    assert [entry.path for entry in (await agent.list()).value.entries] == ["fo\\xff.t"]
    found = await agent.grep("needle")
    path = found.value.matches[0].path
    assert path.endswith("/fo\\xff.t")
    assert (await agent.read(path)).value.lines[0].text == "needle"
    assert (await agent.glob("*.t")).value.files == (path,)
    found.text.encode("utf-8")


async def test_c111_an_edit_keeps_crlf(agent: Agent) -> None:
    file = agent.directory / "f"
    file.write_bytes(b"a\r\nb\r\nc\r\n")
    assert (await agent.read("f")).text.splitlines()[1:4] == ["1: a", "2: b", "3: c"]
    await agent.edit("f", "b", "B")
    assert file.read_bytes() == b"a\r\nB\r\nc\r\n"


async def test_c113_a_lone_carriage_return_is_data(agent: Agent) -> None:
    file = agent.directory / "f"
    file.write_bytes(b"p1\rp2\rdone\nword\n")
    await agent.read("f")
    await agent.edit("f", "word", "WORD")
    assert file.read_bytes() == b"p1\rp2\rdone\nWORD\n"


async def test_c115_a_byte_order_mark_hides_nothing_and_stays(agent: Agent) -> None:
    file = agent.directory / "f"
    file.write_bytes(b"\xef\xbb\xbfkey: 1\n")
    assert "1: key: 1" in (await agent.read("f")).text
    await agent.edit("f", "key: 1", "key: 2")
    assert file.read_bytes() == b"\xef\xbb\xbfkey: 2\n"
    assert (await agent.grep("^key")).value.total == 1


async def test_c117_another_encoding_is_shown_and_kept(agent: Agent) -> None:
    file = agent.directory / "f"
    file.write_bytes(b"caf\xe9 word\n\xc4\xe3\xba\xc3\n")
    shown = await agent.read("f")
    assert shown.value.lines[0].text == "caf\ufffd word"
    assert "not UTF-8" in shown.text
    await agent.edit("f", "word", "WORD")
    assert file.read_bytes() == b"caf\xe9 WORD\n\xc4\xe3\xba\xc3\n"


async def test_c119_permission_bits_are_kept(agent: Agent) -> None:
    script = agent.directory / "s"
    script.write_text("echo a\n")
    script.chmod(0o755)
    await agent.read("s")
    await agent.edit("s", "a", "b")
    assert script.stat().st_mode & 0o7777 == 0o755
    assert (await agent.bash("./s || sh s")).value.exit_code == 0


async def test_c127_a_change_by_somebody_else_is_not_lost(agent: Agent) -> None:
    (agent.directory / "f").write_text("one\n")
    await agent.read("f")
    await agent.bash("echo two > f")
    for change in (agent.write("f", "three\n"), agent.edit("f", "two", "three")):
        with pytest.raises(StaleVersion) as caught:
            await change
        assert "read the file again" in caught.value.hint
    assert (agent.directory / "f").read_text() == "two\n"
    await agent.read("f")
    await agent.edit("f", "two", "three")
    await agent.edit("f", "three", "four")  # what it wrote itself it knows
    assert (agent.directory / "f").read_text() == "four\n"


async def test_what_was_not_read_is_not_overwritten(agent: Agent) -> None:
    (agent.directory / "f").write_text("one\n")
    for change in (agent.write("f", "two\n"), agent.edit("f", "one", "two")):
        with pytest.raises(NotObserved) as caught:
            await change
        assert "read the file" in caught.value.hint
    (agent.directory / "link").symlink_to("f")
    await agent.read("./link")  # the same file under another name
    await agent.write("f", "two\n")
    assert (agent.directory / "f").read_text() == "two\n"
    await agent.write("fresh/g", "new\n")  # where nothing is, nothing is lost
    await agent.write("fresh/g", "newer\n")


async def test_c129_what_could_block_is_refused(agent: Agent) -> None:
    os.mkfifo(agent.directory / "p")
    for call in (
        agent.read("p"),
        agent.edit("p", "a", "b"),
        agent.read("/dev/zero"),
        agent.read("."),
        agent.grep("x", "p"),
    ):
        with pytest.raises((NotRegularFile, NotObserved)):
            await call


async def test_c131_a_search_passes_what_is_no_file(agent: Agent) -> None:
    os.mkfifo(agent.directory / "p")
    make_socket(agent.directory / "s")
    (agent.directory / "f").write_text("x\n")
    assert (await agent.grep("x")).value.total == 1


async def test_c133_files_that_state_no_size_have_content(agent: Agent) -> None:
    assert "Name:" in (await agent.read("/proc/self/status")).text


async def test_c137_an_empty_file_is_a_file(agent: Agent) -> None:
    assert "created" in (await agent.write("e", "")).text
    shown = await agent.read("e")
    assert shown.value.lines == ()
    assert shown.text.endswith("[end of file, 0 lines in all]")


async def test_binary_files_are_named_as_such(agent: Agent) -> None:
    (agent.directory / "b").write_bytes(b"text\0more")
    with pytest.raises(NotText):
        await agent.read("b")
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
    (agent.directory / "i.txt").write_bytes(png)
    content = (await agent.read("i.txt")).content
    assert content[1] == Image("image/png", png)


async def test_windows_of_a_long_file(agent: Agent) -> None:
    (agent.directory / "f").write_text("".join(f"line {n}\n" for n in range(1, 5001)))
    first = await agent.read("f")
    assert (len(first.value.lines), first.value.next_offset, first.value.total_lines) == (2000, 2001, 5000)
    last = await agent.read("f", offset=4999)
    assert last.text.splitlines()[1:] == [
        "4999: line 4999",
        "5000: line 5000",
        "[end of file, 5000 lines in all]",
    ]
    with pytest.raises(FileMissing):
        await agent.read("f", offset=5001)
    (agent.directory / "long").write_text("é" * 5000 + "\nb")
    line = (await agent.read("long")).value.lines[0]
    assert (line.text, line.cut) == ("é" * 2000, True)
    (agent.directory / "wide").write_text(("x" * 1000 + "\n") * 100)
    wide = await agent.read("wide")
    assert wide.value.byte_capped
    assert wide.value.next_offset == len(wide.value.lines) + 1
    assert len(wide.text.encode()) < 56_000


async def test_a_search_names_what_is_wrong_with_a_pattern(agent: Agent) -> None:
    for pattern in ("(", "(?=a)", r"(a)\1", "[z-a]", ""):
        with pytest.raises(SearchInvalidPattern):
            await agent.grep(pattern)
    with pytest.raises(SearchInvalidPattern):
        await agent.grep("a", include="{a")
    with pytest.raises(SearchInvalidPattern):
        await agent.glob("[a")
    with pytest.raises(FileMissing):
        await agent.grep("a", "nowhere")


async def test_a_pattern_is_never_an_option(agent: Agent) -> None:
    (agent.directory / "f").write_text("--files -e x\n")
    for pattern in ("--files", "-e", "-"):
        assert (await agent.grep(pattern)).value.total == 1
    assert (await agent.glob("--help")).value.files == ()


async def test_more_than_is_shown_is_counted(agent: Agent) -> None:
    (agent.directory / "f").write_text("x\n" * 1000)
    found = await agent.grep("x")
    assert (len(found.value.matches), found.value.total) == (250, 1000)
    assert found.text.startswith("250 of 1000 matching lines\n")
    for n in range(120):
        (agent.directory / f"g{n}").touch()
    globbed = await agent.glob("g*")
    assert (len(globbed.value.files), globbed.value.total) == (100, 120)
    assert "100 of 120 files" in globbed.text


async def test_edits_that_cannot_be_done_say_why(agent: Agent) -> None:
    (agent.directory / "f").write_text("a\n")
    await agent.read("f")
    with pytest.raises(EditNotFound):
        await agent.edit("f", "b", "c")
    with pytest.raises(ValidationError):
        await agent.edit("f", "a", "a")
    with pytest.raises((InvalidPath, FileError)):
        await agent.read("a\0b")
