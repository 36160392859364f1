"""How paths are shown to people."""

from __future__ import annotations

from execworld.seams.paths import printable_path


def test_what_no_path_can_be_is_shown_by_its_beginning() -> None:
    assert printable_path("x" * 4096) == "x" * 4096
    assert printable_path(b"x" * 130_000) == "x" * 200 + "... (130000 characters)"
    assert printable_path("\n" * 5000) == "\\n" * 200 + "... (5000 characters)"
