"""The text of an edit: positions, line ends and encodings, by random texts against a plain model."""

from __future__ import annotations

import random
import re

import pytest

from execworld.machine.fs.editing import NoOccurrence, SeveralOccurrences, edit
from execworld.machine.fs.text import TextError, decode_text, encode_text, exact_encoding

ATOMS = ("a", "b", "ab", "\n", "\r\n", "\r", "é", "\ufeff", " ")


def random_text(numbers: random.Random, size: int) -> str:
    return "".join(numbers.choices(ATOMS, k=size))


def test_the_edited_text_is_that_of_a_plain_replacement() -> None:
    """Read with line feeds, the result is what ``str.replace`` gives; what no occurrence touches stays byte
    for byte.
    """
    numbers = random.Random(3)
    edited = 0
    for _ in range(20_000):
        raw = random_text(numbers, numbers.randint(0, 14))
        old = random_text(numbers, numbers.randint(0, 3))
        # A lone CR at an edge may join a line feed of the neighbourhood: another text, not another edit.
        new = random_text(numbers, numbers.randint(0, 4)).replace("\r\n", "\n").replace("\r", "")
        plain, plain_old = raw.replace("\r\n", "\n"), old.replace("\r\n", "\n")
        count = plain.count(plain_old) if plain_old else 0
        if count == 0:
            with pytest.raises(NoOccurrence):
                edit(raw, old, new, replace_all=True)
            continue
        if count > 1:
            with pytest.raises(SeveralOccurrences) as caught:
                edit(raw, old, new, replace_all=False)
            assert caught.value.count == count
        result = edit(raw, old, new, replace_all=True)
        assert (result.before, result.replacements) == (plain, count)
        assert result.after == plain.replace(plain_old, new)
        if "\r" not in raw.replace("\r\n", ""):
            edited += 1
            assert result.raw.replace("\r\n", "\n") == result.after
            kept = plain.split(plain_old)
            pattern = ".*".join(
                re.escape(part).replace("\\\n", "\r?\n").replace("\n", "\r?\n") for part in kept
            )
            assert re.fullmatch(pattern, result.raw, re.DOTALL), (raw, old, new)
    assert edited > 500


@pytest.mark.parametrize(
    ("raw", "old", "new", "expected"),
    [
        ("a\r\nb\nc\r\n", "a\nb\nc\n", "a\nB\nc\n", "a\r\nB\nc\r\n"),
        ("a\nb\r\nc\n", "a\nb", "a\nx\nb", "a\nx\nb\r\nc\n"),
        ("a\r\nb\r\n", "b\n", "b\nc\n", "a\r\nb\r\nc\r\n"),
        ("a\r\nb\r\n", "\n", " ", "a b "),
        ("one", "one", "a\r\nb", "a\r\nb"),
        ("one", "one", "a\nb", "a\nb"),
        ("x\r\n\r\ny", "\n\n", "\n", "x\r\ny"),
        ("p\rq\r\n", "q", "r\ns", "p\rr\r\ns\r\n"),
        ("a\n" * 3 + "b\r\n", "b", "c\nd", "a\n" * 3 + "c\nd\r\n"),
    ],
)
def test_line_ends_take_after_what_they_replace(raw: str, old: str, new: str, expected: str) -> None:
    """Lines given as context keep their own ends; new ones take those of the replaced text, else of the file,
    else their own."""
    assert edit(raw, old, new, replace_all=True).raw == expected


ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32", "latin-1", "cp1252", "gbk", "shift_jis")


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("mark", [True, False])
def test_content_survives_decoding_and_encoding(encoding: str, mark: bool) -> None:
    """In the variant that keeps a byte order mark, whichever byte order it states."""
    text = "key: 1\r\n\u6f22" if encoding not in ("latin-1", "cp1252") else "key: 1\r\n\u00e9"
    variants = {"utf-16": ("utf-16-le", "utf-16-be"), "utf-32": ("utf-32-le", "utf-32-be")}
    for variant in variants.get(encoding, (encoding,)):
        if mark and not variant.startswith("utf"):
            continue
        plain = "utf-8" if variant == "utf-8-sig" else variant
        data = (("\ufeff" if mark else "") + text).encode(plain)
        if not mark and variant.endswith("be"):
            variant = encoding = "utf-16-be" if "16" in variant else "utf-32-be"
        decoded = decode_text(data, encoding)
        assert decoded == ("\ufeff" if mark else "") + text
        assert encode_text(decoded, exact_encoding(encoding, data[:4])) == data


def test_a_file_of_utf_16_gets_its_mark() -> None:
    """As the codec of Python writes it; a text that brings its own mark does not get a second one."""
    for encoding in ("utf-16", "utf-8-sig", "utf-32"):
        once = encode_text("a", encoding)
        assert decode_text(once, encoding) == "\ufeffa"
        assert encode_text("\ufeffa", encoding) == once


@pytest.mark.parametrize("encoding", ["no-such", "hex", "rot13", "base64", "zlib"])
def test_only_text_encodings_are_encodings(encoding: str) -> None:
    """A codec between bytes and bytes, or text and text, is a wrong argument and no property of the file."""
    for call in (lambda: decode_text(b"61", encoding), lambda: encode_text("a", encoding)):
        with pytest.raises(ValueError, match="no text encoding") as caught:
            call()
        assert not isinstance(caught.value, TextError)
