"""Control sequences, whole and in pieces."""

from __future__ import annotations

import pytest

from execworld.tools.terminals.sequences import SequenceParser


class Recorder:
    """A handler that writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def draw(self, text: str) -> None:
        if self.events and self.events[-1][0] == "draw":
            text = f"{self.events.pop()[1]}{text}"
        self.events.append(("draw", text))

    def control(self, character: str) -> None:
        self.events.append(("control", character))

    def escape(self, intermediate: str, final: str) -> None:
        self.events.append(("escape", intermediate, final))

    def csi(self, private: str, numbers: tuple[int, ...], intermediate: str, final: str) -> None:
        self.events.append(("csi", private, numbers, intermediate, final))

    def command_string(self, kind: str, body: str) -> None:
        self.events.append(("string", kind, body))


def parsed(*chunks: str) -> list[tuple[object, ...]]:
    recorder = Recorder()
    parser = SequenceParser(recorder)
    for chunk in chunks:
        parser.feed(chunk)
    return recorder.events


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("a\x1b[1;31mb", [("draw", "a"), ("csi", "", (1, 31), "", "m"), ("draw", "b")]),
        ("\x1b[m", [("csi", "", (0,), "", "m")]),
        ("\x1b[?25h", [("csi", "?", (25,), "", "h")]),
        ("\x1b[>4;2m", [("csi", ">", (4, 2), "", "m")]),
        ("\x1b[2 q", [("csi", "", (2,), " ", "q")]),
        ("\x1b[38:2::1:2:3m", [("csi", "", (38,), "", "m")]),
        ("\x1b[99999999999H", [("csi", "", (9999,), "", "H")]),
        ("\x1b]0;t\x07x", [("string", "OSC", "0;t"), ("draw", "x")]),
        ("\x1b]0;t\x1b\\x", [("string", "OSC", "0;t"), ("draw", "x")]),
        ("\x1bPq\x1b\\x", [("string", "DCS", "q"), ("draw", "x")]),
        ("\x1b]0;t\x18x", [("control", "\x18"), ("draw", "x")]),
        ("\x1b]0;t\x1b[mx", [("csi", "", (0,), "", "m"), ("draw", "x")]),
        ("\x1b(0q", [("escape", "(", "0"), ("draw", "q")]),
        ("\x1b7\x1bM", [("escape", "", "7"), ("escape", "", "M")]),
        ("\x1b[1\nmx", [("control", "\n"), ("draw", "mx")]),
        ("\x1b\x1b[mx", [("csi", "", (0,), "", "m"), ("draw", "x")]),
        ("a\x9b31mb", [("draw", "a31mb")]),
        ("漢\r\n", [("draw", "漢"), ("control", "\r"), ("control", "\n")]),
    ],
)
def test_a_sequence_is_the_same_in_pieces(text: str, events: list[tuple[object, ...]]) -> None:
    assert parsed(text) == events
    assert parsed(*text) == events


@pytest.mark.parametrize("start", ["\x1b[", "\x1b[1;", "\x1b]0;", "\x1bP", "\x1b("])
def test_what_never_ends_does_not_grow(start: str) -> None:
    parser = SequenceParser(Recorder())
    for _ in range(3000):
        parser.feed(start if _ == 0 else "1" * 1000)
    assert len(parser._rest) < 5000  # pyright: ignore[reportPrivateUsage]  # what is kept is the matter


def test_a_string_that_is_too_long_is_dropped_whole() -> None:
    assert parsed("\x1b]0;" + "x" * 10_000 + "\x07after") == [("draw", "after")]
    assert parsed(*("\x1b]0;" + "x" * 10_000 + "\x1b\\after")) == [("draw", "after")]
