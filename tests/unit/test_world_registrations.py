"""Registered providers are those that `importlib.metadata` would name, found without importing it."""

from __future__ import annotations

import importlib
import sys
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from execworld.seams import ENTRY_POINT_GROUP
from execworld.world.registrations import Registration, read_registrations

METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n\nName: not this\n"


def expected() -> set[tuple[str, str, str]]:
    return {
        (point.name, point.value, point.dist.name if point.dist is not None else "")
        for point in entry_points(group=ENTRY_POINT_GROUP)
    }


def found() -> set[tuple[str, str, str]]:
    return {(one.name, one.value, one.distribution) for one in read_registrations()}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "absent"), *sys.path])
    return tmp_path


def register(site: Path, directory: str, name: str, entries: str) -> None:
    information = site / directory
    information.mkdir(parents=True)
    metadata = "PKG-INFO" if directory.endswith(".egg-info") else "METADATA"
    (information / metadata).write_text(METADATA.format(name=name))
    (information / "entry_points.txt").write_text(entries)
    importlib.invalidate_caches()


def test_our_own_are_found() -> None:
    assert found() == expected()
    assert "local" in {one.name for one in read_registrations()}


@pytest.mark.parametrize(
    "entries",
    [
        f"[{ENTRY_POINT_GROUP}]\nacme = acme.worlds:provider\n",
        f"[console_scripts]\nacme = acme:main\n\n[{ENTRY_POINT_GROUP}]\n# none\na=b:c\n d  = e.f:g \n[x]\ny=z:z\n",
        f"[other]\n{ENTRY_POINT_GROUP} = acme:main\n",
        f"[{ENTRY_POINT_GROUP}.more]\nacme = acme:main\n",
        "",
    ],
)
@pytest.mark.parametrize("directory", ["acme_worlds-1.0.dist-info", "acme_worlds-1.0-py3.11.egg-info"])
def test_files_are_read_alike(site: Path, directory: str, entries: str) -> None:
    register(site, directory, "acme-worlds", entries)
    assert found() == expected()


def test_the_first_on_the_path_hides_others_of_its_name(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(site / "first"), str(site / "second"), *sys.path])
    for place, directory in (("first", "Acme.Worlds-2.dist-info"), ("second", "acme_worlds-1.dist-info")):
        register(site / place, directory, "acme-worlds", f"[{ENTRY_POINT_GROUP}]\nacme = {place}:provider\n")
    assert found() == expected()
    assert "first:provider" in {one.value for one in read_registrations()}


def test_an_archive_on_the_path_is_looked_into(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = site / "archive.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("acme-1.0.dist-info/METADATA", METADATA.format(name="acme"))
        file.writestr("acme-1.0.dist-info/entry_points.txt", f"[{ENTRY_POINT_GROUP}]\nacme = a:b\n")
    monkeypatch.setattr(sys, "path", [str(archive), *sys.path])
    importlib.invalidate_caches()
    assert ("acme", "a:b", "acme") in found()
    assert found() == expected()


@pytest.mark.parametrize("value", ["", "no module", "json:absent", "json:"])
def test_what_names_no_object_is_an_attribute_error(value: str) -> None:
    with pytest.raises(AttributeError):
        Registration("acme", value, "acme").load()
