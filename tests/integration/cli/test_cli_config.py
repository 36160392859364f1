"""``execworld config``, ``check`` and ``floor``: the real program, its output and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Run

PATCH = """\
world:
  use: docker
  config: {image: "debian:bookworm", env: {TOKEN: !env TOKEN}}
policy: {mode: workspace-write, workspace: /workspace, network: none}
floor: {boundary: container, images: ["debian:*"]}
"""


class Home:
    """A user with documents."""

    def __init__(self, directory: Path, run: Run) -> None:
        self.directory = directory
        self.run = run

    def __call__(self, *arguments: str, code: int = 0, **variables: str) -> bytes:
        finished = self.run(
            *arguments, env={"XDG_CONFIG_HOME": str(self.directory), **variables}, cwd=self.directory
        )
        assert finished.returncode == code, finished.stderr
        self.said = finished.stderr.decode()
        return finished.stdout

    def write(self, name: str, text: str) -> str:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))


@pytest.fixture
def home(tmp_path: Path, execworld: Run) -> Home:
    return Home(tmp_path, execworld)


def test_show_tells_the_layer_of_every_value_and_no_secret(home: Home) -> None:
    home.write("docker.patch.yml", PATCH)
    home.write("execworld/config.yml", "policy: {hidden: [/secret]}")
    shown = home("config", "show", "--patch", "docker.patch.yml", TOKEN="correct-horse").decode()
    assert "  use: docker  # patch: docker.patch.yml:2\n" in shown
    assert f"    - /secret  # home: {home.directory}/execworld/config.yml:1\n" in shown
    assert "      TOKEN: !env TOKEN  # patch: docker.patch.yml:3\n" in shown
    assert "horse" not in shown + home.said


def test_what_is_shown_is_the_same_composition_again(home: Home) -> None:
    home.write("docker.patch.yml", PATCH)
    shown = home("config", "show", "--patch", "docker.patch.yml")
    home.write("shown.yml", shown.decode())
    first = home.json("config", "show", "--patch", "docker.patch.yml")
    again = home.json("config", "show", "--alone", "--patch", "shown.yml")
    assert first["document"] == again["document"]
    assert [layer["layer"] for layer in first["layers"]] == ["defaults", "patch"]
    assert first["origins"]["/world/use"] == {
        "layer": "patch",
        "file": "docker.patch.yml",
        "line": 2,
        "column": 8,
    }


def test_a_mistake_is_told_with_its_place_and_the_right_name(home: Home) -> None:
    home.write("wrong.yml", "world:\n  use: docker\n  config:\n    imge: debian\n")
    home("config", "show", "--patch", "wrong.yml", code=125)
    assert home.said == (
        "execworld: error [CONFIGURATION_INVALID]: wrong.yml:4:5: `world.config` has no `imge`\n"
        "hint: did you mean `image`?\n"
    )


def test_settings_lie_over_patches_and_profiles_below(home: Home) -> None:
    home.write("execworld/profiles/work.yml", "policy: {network: none, mode: read-only}")
    home.write("p.yml", "policy: {network: all}")
    arguments = ("--profile", "work", "--patch", "p.yml", "--set", "policy.limits={processes: 5}")
    document = home.json("config", "show", *arguments)["document"]
    assert document["policy"] == {"network": "all", "mode": "read-only", "limits": {"processes": 5}}
    home("config", "show", "--profile", "worrk", code=125)
    assert "hint: did you mean `work`?" in home.said


def test_init_begins_a_document_that_is_read_and_changes_nothing(home: Home) -> None:
    before = home.json("config", "show")["document"]
    path = home("config", "init").decode().strip()
    assert path == f"{home.directory}/execworld/config.yml"
    assert home.json("config", "show")["document"] == before
    home("config", "init", code=125)
    assert "exists already" in home.said
    profile = home("config", "init", "--profile", "work").decode().strip()
    assert profile == f"{home.directory}/execworld/profiles/work.yml"
    assert home.json("config", "show", "--profile", "work")["document"] == before
    home("config", "init", "--profile", "../work", code=125)


def test_what_init_writes_is_right_when_its_comments_are_taken_away(home: Home) -> None:
    text = Path(home("config", "init").decode().strip()).read_text()
    lines = text.split("#\n", 1)[1].splitlines()
    home.write("all.yml", "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines))
    document = home.json("config", "show", "--patch", "all.yml")["document"]
    assert document["world"]["use"] == "docker"
    guards = {"refuse_downgrade", "keep_one_world", "hold_floor"}
    assert set(document) - guards == {"world", "policy", "floor"}
    home("check", "all.yml", TOKEN="x")


def test_path_names_what_is_looked_for(home: Home) -> None:
    home.write("execworld/profiles/work.yml", "")
    found = {each["layer"]: each for each in home.json("config", "path", "--profile", "work")}
    assert list(found) == ["system", "defaults", "profile work", "home"]
    assert found["system"]["file"] == "/etc/execworld/floor.yml"
    assert (found["profile work"]["exists"], found["home"]["exists"]) == (True, False)
    assert b"config.yml (absent)\n" in home("config", "path")


def test_schema_has_the_options_of_the_installed_worlds(home: Home) -> None:
    schema = json.loads(home("config", "schema"))
    assert "image" in schema["$defs"]["world.docker"]["properties"]


def test_check_tells_what_is_lacking_and_what_is_lost(home: Home) -> None:
    docker = home.write("docker.patch.yml", PATCH)
    looser = home.write("looser.yml", PATCH.replace("network: none", "network: all"))
    assert home("check") == b"nothing is missing\n"
    assert home("check", docker, TOKEN="x") == b"nothing is missing\n"
    assert home("check", docker, docker, TOKEN="x") == b"nothing is missing\n"
    lost = home("check", docker, looser, code=1, TOKEN="x").decode()
    assert f"loses policy.network: none is wanted, and there is all ({looser}:4:56)\n" in lost
    assert home("check", looser, docker, TOKEN="x") == b"nothing is missing\n"
    home.write("execworld/config.yml", "floor: {mode: read-only}")
    lacking = home("check", docker, code=1, TOKEN="x").decode()
    assert lacking.startswith("lacks policy.mode: read-only at the widest is wanted")
    assert home("check", "--no-home", docker, TOKEN="x") == b"nothing is missing\n"
    assert home.json("check", code=1) == {
        "lacks": [
            {"subject": "policy.mode", "wanted": "read-only at the widest", "found": "workspace-write"}
        ],
        "loses": [],
    }


def test_check_tells_a_wrong_document_from_a_weak_one(home: Home) -> None:
    home("check", "absent.yml", code=125)
    home("check", "a", "b", "c", code=2)
    home("check", home.write("loose.yml", "floor: {boundary: none}\n"), code=0)
    home.write("execworld/config.yml", "floor: {boundary: kernel-policy}")
    home("check", "loose.yml", code=125)
    assert "[FLOOR_VIOLATED]: loose.yml:1:9: this would loosen `floor.boundary`" in home.said


def test_floor_show_tells_who_demands_what(home: Home) -> None:
    assert home("floor", "show") == b"{}\n"
    assert "no layer has a floor" in home.said
    home.write("docker.patch.yml", PATCH)
    assert home("floor", "show", "--patch", "docker.patch.yml").decode() == (
        "floor:\n"
        "  boundary: container  # patch: docker.patch.yml:5\n"
        "  images:\n"
        '    - "debian:*"  # patch: docker.patch.yml:5\n'
    )
    found = home.json("floor", "show", "--patch", "docker.patch.yml")
    assert found["floor"] == {"boundary": "container", "images": ["debian:*"]}
    assert found["origins"]["/floor/boundary"]["line"] == 5
