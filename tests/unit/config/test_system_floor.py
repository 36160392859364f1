"""The floor of the machine: only what nobody but its owner could have written is believed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from execworld.config.nodes import plain_value
from execworld.config.system_floor import PATH, SystemFloor
from execworld.seams import ConfigurationError

TEXT = "floor: {mode: read-only}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    directory = tmp_path / "etc" / "execworld"
    directory.mkdir(parents=True)
    for each in (tmp_path, tmp_path / "etc", directory):
        each.chmod(0o755)
    file = directory / "floor.yml"
    file.write_text(TEXT)
    file.chmod(0o644)
    return file


def floor_at(path: Path, tmp_path: Path, owner: int | None = None) -> SystemFloor:
    return SystemFloor(str(path), str(tmp_path), os.getuid() if owner is None else owner)


def refusal(path: Path, tmp_path: Path, owner: int | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        floor_at(path, tmp_path, owner).read()
    assert "nobody else may write" in caught.value.hint or caught.value.line or "rename" in caught.value.hint
    return caught.value.message


def test_it_is_read_where_it_can_be_trusted(path: Path, tmp_path: Path) -> None:
    layer = floor_at(path, tmp_path).read()
    assert layer is not None
    assert plain_value(layer.root) == {"floor": {"mode": "read-only"}}
    assert layer.name == "system"


@pytest.mark.parametrize("gone", ["floor.yml", "execworld"])
def test_a_machine_need_not_have_one(path: Path, tmp_path: Path, gone: str) -> None:
    path.unlink()
    if gone == "execworld":
        path.parent.rmdir()
    assert floor_at(path, tmp_path).read() is None


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
@pytest.mark.parametrize("which", ["file", "directory", "above", "anchor"])
def test_what_others_may_write_is_not_believed(path: Path, tmp_path: Path, which: str, mode: int) -> None:
    target = {"file": path, "directory": path.parent, "above": path.parent.parent, "anchor": tmp_path}[which]
    target.chmod(mode | (0o111 if which != "file" else 0))
    message = refusal(path, tmp_path)
    assert f"cannot be trusted: {target} may be written by others" in message


def test_what_belongs_to_somebody_else_is_not_believed(path: Path, tmp_path: Path) -> None:
    assert "belongs to user" in refusal(path, tmp_path, owner=os.getuid() + 1)


@pytest.mark.parametrize("which", ["file", "directory"])
def test_a_link_is_not_followed(path: Path, tmp_path: Path, which: str) -> None:
    target = path if which == "file" else path.parent
    moved = target.rename(target.with_name("moved"))
    target.symlink_to(moved)
    assert "a link is on the way" in refusal(path, tmp_path)


def test_what_is_no_file_is_an_error(path: Path, tmp_path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o755)
    assert "it is no regular file" in refusal(path, tmp_path)
    path.rmdir()
    os.mkfifo(path, 0o644)
    assert "it is no regular file" in refusal(path, tmp_path)


def test_what_cannot_be_read_is_an_error_and_never_no_floor(path: Path, tmp_path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))
    path.parent.write_text("a file where the directory should be")
    assert "a link is on the way" in refusal(path, tmp_path)


def test_one_under_a_wrong_name_is_an_error(path: Path, tmp_path: Path) -> None:
    path.rename(path.with_suffix(".yaml"))
    assert "would never be read" in refusal(path, tmp_path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mode: read-only", ":1:1: `mode` has no place here"),
        ("world: {use: plain}\nfloor: {}", ":1:1: `world` has no place here"),
        ("floor: {mod: read-only}", ":1:9: `floor` has no `mod`"),
        ("floor: [", "this is not YAML"),
    ],
)
def test_a_mistake_in_it_is_an_error(path: Path, tmp_path: Path, text: str, problem: str) -> None:
    path.write_text(text)
    assert problem in refusal(path, tmp_path)


def test_nothing_but_the_code_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EXECWORLD_FLOOR", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "HOME"):
        monkeypatch.setenv(name, "/elsewhere")
    assert SystemFloor().path == PATH == "/etc/execworld/floor.yml"
    assert (SystemFloor().anchor, SystemFloor().owner) == ("/", 0)
