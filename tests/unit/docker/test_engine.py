"""What the engine is told, in the form that it wants."""

from __future__ import annotations

import io
import tarfile

import pytest

from execworld.providers.docker.engine import archive_of, unix_time


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("1970-01-01T00:00:01Z", "1.000000000"),
        ("1970-01-01T00:00:01.5Z", "1.500000000"),
        ("2026-11-30T20:34:56.123456789Z", "1796070896.123456789"),
        ("2026-11-30T22:34:56.123456789+02:00", "1796070896.123456789"),
        ("2026-11-30T20:34:56+00:00", "1796070896.000000000"),
    ],
)
def test_times_keep_all_their_digits(written: str, asked: str) -> None:
    assert unix_time(written) == asked


def test_an_archive_has_the_owners_and_modes_that_are_given() -> None:
    archive = archive_of(("/d", None, 0o755, 0, 0), ("/d/f", b"content", 0o555, 7, 8))
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        directory, file = tar.getmembers()
        assert (directory.name, directory.isdir(), directory.mode) == ("d", True, 0o755)
        assert (file.name, file.mode, file.uid, file.gid) == ("d/f", 0o555, 7, 8)
        content = tar.extractfile(file)
        assert content is not None
        assert content.read() == b"content"
