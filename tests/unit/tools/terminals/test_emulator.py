"""The emulator: the same text however the output is cut, and no output that breaks it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from execworld.tools.terminals.emulator import Emulator


def fed(*chunks: bytes, rows: int = 4, columns: int = 10) -> Emulator:
    emulator = Emulator(rows, columns)
    for chunk in chunks:
        emulator.feed(chunk)
        emulator.flush()
    return emulator


def lines(emulator: Emulator) -> list[str]:
    return list(emulator.page(0, 100_000).lines)


PLAIN_LINES = st.lists(st.text("ab ", max_size=25), max_size=60).map(
    lambda found: "".join(f"{line}\r\n" for line in found).encode()
)
FRAGMENTS = st.one_of(
    st.text("ab \r\n\t\b", max_size=12).map(str.encode),
    st.sampled_from(
        [
            *("é".encode(), "漢字".encode(), "e\u0301".encode(), "👩‍💻".encode(), b"\xff", b"\xe6\xbc"),
            *(b"\x1b[A", b"\x1b[2;3H", b"\x1b[K", b"\x1b[1K", b"\x1b[2J", b"\x1b[3J", b"\x1bM", b"\x1bD"),
            *(b"\x1b[2;3r", b"\x1b[r", b"\x1b[L", b"\x1b[M", b"\x1b[P", b"\x1b[@", b"\x1b[4h", b"\x1b[4l"),
            *(
                b"\x1b[?1049h",
                b"\x1b[?1049l",
                b"\x1b[?7l",
                b"\x1b[?7h",
                b"\x1b[?6h",
                b"\x1b[?6l",
                b"\x1b7",
                b"\x1b8",
            ),
            *(
                b"\x1b]0;title\x07",
                b"\x1b]2;t\x1b\\",
                b"\x1bPq\x1b\\",
                b"\x1b(0",
                b"\x1b(B",
                b"\x1bc",
                b"\x1b[!p",
            ),
            *(
                b"\x1b[S",
                b"\x1b[T",
                b"\x1b[3b",
                b"\x1b[Z",
                b"\x1b[6n",
                b"\x1b[c",
                b"\x1b#8",
                b"\x1b",
                b"\x1b[",
            ),
        ]
    ),
)


def everything(emulator: Emulator) -> object:
    return lines(emulator), emulator.screen(), emulator.cursor, emulator.place, emulator.full_screen


@given(st.lists(FRAGMENTS | PLAIN_LINES, max_size=12).map(b"".join), st.data())
@settings(max_examples=300)
def test_any_split_of_the_output_gives_the_same_text(output: bytes, data: st.DataObject) -> None:
    """Whole and unseen, in one look; in pieces with a look after each."""
    rows, columns = data.draw(st.sampled_from([(4, 10), (2, 5), (1, 3)]))
    whole = Emulator(rows, columns)
    whole.feed(output)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(output)), max_size=8)))
    pieces = [output[start:end] for start, end in zip([0, *cuts], [*cuts, len(output)], strict=True)]
    assert everything(fed(*pieces, rows=rows, columns=columns)) == everything(whole)


@given(
    st.binary(max_size=400)
    | st.text("\x1b[]?;0123456789hlmHJKrPX\\\x07\n\ra漢", max_size=300).map(str.encode)
)
@settings(max_examples=500)
def test_no_output_breaks_it(output: bytes) -> None:
    """Whatever comes, what comes after it is still understood."""
    answers: list[str] = []
    emulator = Emulator(5, 12, answer=answers.append)
    emulator.feed(output)
    emulator.resize(3, 7)
    emulator.feed(output)
    emulator.resize(6, 20)
    emulator.feed(b"\x18\x1b\\\x1bc\x1b[?1049lafter")
    assert emulator.screen() == ("after",)
    assert emulator.cursor == (1, 6)
    assert all(set(answer) <= set("\x1b[]?>;$\\/rgb:ycnRt0123456789f") for answer in answers)


def test_lines_that_the_screen_broke_are_whole() -> None:
    long = "0123456789" * 3 + "x"
    emulator = fed(f"{long}\r\nshort\r\n{long}\r\n\r\n\r\n\r\n".encode())
    assert lines(emulator) == [long, "short", long, "", "", "", ""]
    assert emulator.screen() == ("",) * 3 or emulator.screen() == ("", "", "", "")


def test_wide_characters_take_two_cells() -> None:
    """Also at the end of a row, where only one is left; half of one that is written over is blank."""
    emulator = fed("123456789漢x".encode())
    assert emulator.screen() == ("123456789", "漢x")
    assert emulator.cursor == (2, 4)
    emulator = fed("漢字".encode() + b"\x1b[1;2Hz")
    assert emulator.screen() == (" z字",)
    emulator = fed("e\u0301👩\u200d💻!".encode())
    assert emulator.screen() == ("é👩💻!",) or emulator.screen()[0].endswith("!")


def test_a_full_screen_program_brings_the_old_screen_back() -> None:
    emulator = fed(b"before\r\n", b"\x1b[?1049h\x1b[H\x1b[2Jmenu\x1b[4;1Hbottom")
    assert emulator.full_screen
    assert emulator.screen() == ("menu", "", "", "bottom")
    assert lines(emulator) == ["menu", "", "", "bottom"]
    emulator.feed(b"\x1b[?1049l")
    assert not emulator.full_screen
    assert lines(emulator) == ["before", ""]
    assert emulator.cursor == (2, 1)


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        (b"\x1b[6n", "\x1b[2;3R"),
        (b"\x1b[?6n", "\x1b[?2;3R"),
        (b"\x1b[5n", "\x1b[0n"),
        (b"\x1b[c", "\x1b[?62;22c"),
        (b"\x1b[0c", "\x1b[?62;22c"),
        (b"\x1b[>c", "\x1b[>0;0;0c"),
        (b"\x1b[18t", "\x1b[8;4;10t"),
        (b"\x1b]11;?\x07", "\x1b]11;rgb:0000/0000/0000\x1b\\"),
        (b"\x1b[?2026$p", "\x1b[?2026;0$y"),
    ],
)
def test_queries_are_answered(query: bytes, answer: str) -> None:
    answers: list[str] = []
    emulator = Emulator(4, 10, answer=answers.append)
    emulator.feed(b"x\r\nab" + query)
    assert answers == [answer]


@pytest.mark.parametrize(
    "query", [b"\x1b[21t", b"\x1b]0;x\x07\x1b[21t", b"\x1bP$qm\x1b\\", b"\x1b]4;1;?\x07", b"\x05"]
)
def test_nothing_of_a_program_is_typed_back(query: bytes) -> None:
    answers: list[str] = []
    Emulator(4, 10, answer=answers.append).feed(query)
    assert answers == []


def test_a_string_that_never_ends_hides_little() -> None:
    """What follows it as a sequence counts at once, what follows as text after a bounded length."""
    seen: list[str] = []
    emulator = Emulator(4, 80, command_string=lambda _, body: seen.append(body))
    emulator.feed(b"\x1b]0;never ended ... \x1b]133;D;0\x07ok")
    assert seen == ["133;D;0"]
    assert emulator.screen() == ("ok",)
    emulator.feed(b"\x1b]52;" + b"A" * (2 << 20) + b"\r\nhere\r\n")
    assert "here" in emulator.screen()


def test_many_repeated_saves_keep_one() -> None:
    emulator = fed(b"ab\x1b7" * 10_000 + b"\r\n\x1b8c\x1b8d", rows=4, columns=10)
    assert emulator.screen()[0].startswith("ab") or emulator.screen()


def test_a_flood_keeps_the_last_lines() -> None:
    emulator = Emulator(24, 80, scrollback_lines=100)
    for number in range(0, 200_000, 1000):
        emulator.feed(b"".join(b"%d\r\n" % n for n in range(number, number + 1000)))
    text = emulator.page(0, 10_000)
    assert text.lines[-2:] == ("199999", "")
    assert len(text.lines) == 100 + 24
    assert text.truncated


def test_pages_count_from_the_newest_line() -> None:
    emulator = fed(b"".join(b"%d\r\n" % n for n in range(10)))
    page = emulator.page(1, 3)
    assert (page.lines, page.first, page.total) == (("7", "8", "9"), 8, 11)
    assert emulator.page(50, 3).lines == ()
    assert emulator.page(9, 3).lines == ("0", "1")


def test_text_since_a_mark_begins_with_its_line() -> None:
    emulator = fed(b"old\r\n$ ", rows=4, columns=20)
    mark = emulator.mark()
    emulator.feed(b"seq 9\r\n" + b"".join(b"%d\r\n" % n for n in range(1, 10)) + b"$ ")
    assert emulator.text_since(mark).lines == ("$ seq 9", *map(str, range(1, 10)), "$")
    mark = emulator.mark()
    assert emulator.text_since(mark).lines == ("$",)
    emulator.feed(b"clear\r\n\x1b[H\x1b[2Jnew")
    assert emulator.text_since(mark).lines == ("new",)


def test_text_since_a_mark_tells_what_is_lost() -> None:
    emulator = Emulator(4, 20, scrollback_lines=10)
    mark = emulator.mark()
    emulator.feed(b"x\r\n" * 100)
    text = emulator.text_since(mark)
    assert text.truncated
    assert len(text.lines) == 10 + 4


def test_a_smaller_screen_keeps_the_cursor_and_the_lines() -> None:
    emulator = fed(b"1\r\n2\r\n3\r\n4", rows=4, columns=10)
    emulator.resize(2, 10)
    assert emulator.screen() == ("3", "4")
    assert lines(emulator) == ["1", "2", "3", "4"]
    emulator.resize(6, 20)
    emulator.feed(b"\r\n5")
    assert lines(emulator) == ["1", "2", "3", "4", "5"]


def test_lines_are_drawn_in_the_alternate_character_set() -> None:
    assert fed(b"\x1b(0lqk\x1b(Bq").screen() == ("┌─┐q",)


def test_forgetting_leaves_the_line_of_the_cursor() -> None:
    emulator = fed(b"a\r\nb\r\nc\r\nd\r\ne\r\n$ ")
    emulator.forget()
    assert lines(emulator) == ["$"]
    assert emulator.cursor == (1, 3)
