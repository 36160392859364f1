"""Output as a reader without a screen sees it."""

import pytest

from execworld.tools.standard.plain_text import plain_text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a\nb\n", "a\nb\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("10%\r20%\r100%\n", "100%\n"),
        ("long line\rshort\n", "shortline\n"),
        ("abc\b\bX\n", "aXc\n"),
        ("\x1b[31mred\x1b[0m\x1b[?25h", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]unfinished\nEND", "unfinished\nEND"),  # it must not swallow what follows
        ("\ufffd\rEND", "\ufffdEND"),
        ("\x00\x07tab\tstays", "tab\tstays"),
    ],
)
def test_what_stays_is_shown(raw: str, shown: str) -> None:
    assert plain_text(raw) == shown
