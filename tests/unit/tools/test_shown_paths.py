"""Paths as an agent reads them lead back to the same names."""

from hypothesis import given
from hypothesis import strategies as st

from execworld.seams.paths import decode_path
from execworld.tools.shown_paths import meant_path, shown_path


@given(st.binary(max_size=12).map(lambda name: name.replace(b"\0", b"")))
def test_every_name_goes_there_and_back(name: bytes) -> None:
    shown = shown_path(name)
    assert meant_path(shown) == decode_path(name)
    assert "\n" not in shown
    shown.encode("utf-8")


@given(st.text(alphabet="\\xnu0f\n\x85\xa0é\u200b\U000e0001", max_size=12))
def test_escapes_in_names_are_names(name: str) -> None:
    assert meant_path(shown_path(name)) == name
