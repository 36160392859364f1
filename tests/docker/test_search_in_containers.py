"""A search gives one answer in a container too, with and without ripgrep there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.contract.docker_worlds import BUSYBOX, DEBIAN, engine_of_this_host, open_container

from execworld.seams import FileKind, SandboxPolicy
from execworld.tools.search.ripgrep import find_ripgrep
from execworld.tools.search.searching import Engine, search_content

pytestmark = [pytest.mark.anyio, pytest.mark.docker, pytest.mark.slow]


async def test_both_engines_agree_in_a_container() -> None:
    engine_of_this_host()
    program = shutil.which("rg")
    if program is None:
        message = "ripgrep is compared with: sh scripts/ci-tools brings it"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    async with open_container(SandboxPolicy.full_access(), DEBIAN) as world:
        data = Path(program).read_bytes()  # noqa: ASYNC240 - before anything else runs
        await world.fs.write_bytes("/usr/local/bin/rg", data, mode=0o755)
        assert await find_ripgrep(world) == "/usr/local/bin/rg"
        await world.shell.run(
            "for i in $(seq 1 300); do printf 'a\\nneedle %d\\r\\n\\377' $i > f$i; done; mkfifo p"
        )
        root = await world.fs.resolve(".")
        for pattern in ("needle [0-9]*7$", "^a", r"\d{3}", "."):
            one = await search_content(world, pattern, root, FileKind.DIRECTORY, engine=Engine.RIPGREP)
            other = await search_content(world, pattern, root, FileKind.DIRECTORY, engine=Engine.PORTABLE)
            assert one == other
            assert one.total > 0


async def test_a_world_without_ripgrep_is_searched() -> None:
    engine_of_this_host()
    async with open_container(SandboxPolicy.full_access(), BUSYBOX) as world:
        assert await find_ripgrep(world) is None
        await world.fs.write_text("f", "needle\n")
        root = await world.fs.resolve(".")
        assert (await search_content(world, "n.edle", root, FileKind.DIRECTORY)).total == 1
