"""``images/make-bases`` gives an engine without a registry what the Dockerfiles begin with, or says why it cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .engines import Engine, OwnEngine

pytestmark = [
    pytest.mark.docker,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(shutil.which, ("apt-get", "busybox"))),
        reason="stand-ins are made with apt and busybox: sh scripts/ci-tools on Debian and Ubuntu",
    ),
]

IMAGES = Path(__file__).resolve().parents[2] / "images"
BUSYBOX, DEBIAN = "busybox:stable", "debian:bookworm-slim"
STAND_IN = '{{index .Config.Labels "io.execworld.stand-in"}}'


def make_bases(
    engine: Engine, *options: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(IMAGES / "make-bases"), *options],
        capture_output=True,
        text=True,
        env={**os.environ, "DOCKER_HOST": engine.url, **(env or {})},
        timeout=110,
    )


def install(directory: Path, name: str, script: str) -> dict[str, str]:
    """A program that is found first."""
    program = directory / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:{os.environ['PATH']}"}


def tags_in(engine: Engine) -> set[str]:
    return set(engine.docker("images", "--format", "{{.Repository}}:{{.Tag}}").split())


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_an_empty_engine_gets_them_and_the_dockerfiles_build(
    own_engine: OwnEngine, tmp_path: Path, cache: dict[str, str]
) -> None:
    """What debootstrap does is not the matter here: it takes half a minute and a network."""
    tree = 'for word; do case $word in */tree) tree=$word ;; esac; done; mkdir -p "$tree/etc" "$tree/bin"'
    env = cache | install(tmp_path, "debootstrap", f'{tree}; echo made >"$tree/etc/by"')
    made = make_bases(own_engine, env=env)
    assert made.returncode == 0, made.stderr
    assert f"{BUSYBOX}: not pulled: " in made.stdout
    assert tags_in(own_engine) == {BUSYBOX, DEBIAN}
    assert own_engine.docker("inspect", "--format", STAND_IN, BUSYBOX) == "busybox-static"
    assert own_engine.docker("inspect", "--format", STAND_IN, DEBIAN) == "debootstrap bookworm"
    for name in ("minimal", "scratch"):
        own_engine.docker("build", "--quiet", "--tag", f"world-{name}", str(IMAGES / f"world-{name}"))
    run = ("run", "--rm", "--network=none", "world-minimal")
    assert own_engine.docker(*run, "sh", "-c", "pwd && id -u && ls -ld /tmp | cut -c 1-10").split() == [
        *("/workspace", "0", "drwxrwxrwt"),
    ]

    again = make_bases(own_engine, env=env)
    assert again.stdout == f"make-bases: {BUSYBOX}: there\nmake-bases: {DEBIAN}: there\n"
    # What was made once is kept: no debootstrap is needed any more.
    own_engine.docker("rmi", DEBIAN)
    anew = make_bases(own_engine, "--offline", env=cache | install(tmp_path, "debootstrap", "exit 1"))
    assert anew.returncode == 0, anew.stderr
    assert tags_in(own_engine) >= {BUSYBOX, DEBIAN}


def test_what_fails_leaves_nothing_half_done(
    own_engine: OwnEngine, tmp_path: Path, cache: dict[str, str]
) -> None:
    fails = install(
        tmp_path,
        "debootstrap",
        'for word; do case $word in */tree) mkdir "$word" ;; esac; done\necho E: no such suite; exit 1',
    )
    made = make_bases(own_engine, "--offline", env=cache | fails)
    assert made.returncode == 1
    assert "E: no such suite" in made.stderr
    assert f"make-bases: {DEBIAN}: debootstrap failed" in made.stderr
    assert tags_in(own_engine) == {BUSYBOX}
    assert [path.name for path in (tmp_path / "cache" / "execworld").iterdir()] == ["make-bases.lock"]


def test_without_an_engine_it_says_so(own_engine: OwnEngine, cache: dict[str, str]) -> None:
    own_engine.stop()
    made = make_bases(own_engine, env=cache)
    assert made.returncode == 1
    assert "make-bases: no engine answers: " in made.stderr


def test_it_tells_how_it_is_used() -> None:
    told = subprocess.run(["sh", str(IMAGES / "make-bases"), "--help"], capture_output=True, text=True)
    assert told.returncode == 0
    assert told.stdout.startswith("usage: ")
    wrong = subprocess.run(["sh", str(IMAGES / "make-bases"), "--hlep"], capture_output=True, text=True)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("usage: ")
