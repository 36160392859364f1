"""Profile and home layers change what runs, as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.integration.compositions.doubles import Setting

from execworld.assembly import RELOADED, DocumentFollower, Reloaded, RunningComposition, open_composition
from execworld.config import Composition, Locations, SystemFloor, Wanted, load
from execworld.seams import ConfigurationError, FloorViolated

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class User:
    """A user who edits documents, and hears what became of that."""

    def __init__(self, directory: Path, setting: Setting) -> None:
        self.locations = Locations(str(directory / "execworld"))
        self._setting = setting
        self._nowhere = SystemFloor(str(directory / "floor.yml"), str(directory), os.getuid())
        base = directory / "base.yml"
        base.write_text(
            "world: {use: box}\npolicy: {mode: workspace-write, workspace: /srv}\ntool: {use: tool}\n"
        )
        self.base = str(base)

    def load(self) -> Composition:
        profile = self.locations.profile("own")
        wanted = Wanted(profile="own" if os.path.exists(profile) else None, patches=(self.base,))
        return load(wanted, self._setting.registry(), system=self._nowhere)

    def write(self, path: str, text: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        draft = f"{path}.draft"
        Path(draft).write_text(text)
        os.replace(draft, path)

    @asynccontextmanager
    async def following(self) -> AsyncGenerator[tuple[RunningComposition, Heard]]:
        async with open_composition(self.load(), on_error=lambda _: None) as running:
            heard = Heard(running)
            follower = DocumentFollower(running, self.load, self.locations)
            running.context.start_soon(follower.run)
            yield running, heard


class Heard:
    """What was told of reloads, one after the other."""

    def __init__(self, running: RunningComposition) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[Reloaded](20)
        running.context.on(RELOADED, self._send.send_nowait)
        running.context.effect(lambda: self._close)

    def _close(self) -> None:
        self._send.close()
        self._receive.close()

    async def next(self) -> Reloaded:
        with anyio.fail_after(20):
            return await self._receive.receive()


@pytest.fixture
def user(tmp_path: Path, setting: Setting, monkeypatch: pytest.MonkeyPatch) -> User:
    tmp_path.chmod(0o755)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return User(tmp_path, setting)


async def test_a_document_that_appears_is_read_and_one_that_goes_too(user: User) -> None:
    """In directories that were not there before."""
    async with user.following() as (running, heard):
        user.write(user.locations.home, "second: {use: tool}\n")
        assert (await heard.next()).error is None
        assert "second" in running.fibers
        user.write(user.locations.profile("own"), "third: {use: tool}\n")
        assert (await heard.next()).error is None
        assert {"second", "third"} <= set(running.fibers)
        os.unlink(user.locations.home)
        assert (await heard.next()).error is None
        assert "second" not in running.fibers
        assert "third" in running.fibers


async def test_a_bad_edit_keeps_what_runs_and_the_next_good_one_is_taken(user: User) -> None:
    async with user.following() as (running, heard):
        world = running.world
        user.write(user.locations.home, "second: {use: toool}\n")
        refusal = (await heard.next()).error
        assert isinstance(refusal, ConfigurationError)
        assert "did you mean `tool`?" in refusal.hint
        assert "second" not in running.fibers
        user.write(user.locations.home, "second: {use: tool}\n")
        assert (await heard.next()).error is None
        assert "second" in running.fibers
        assert running.world is world


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("refuse_downgrade: {disabled: yes}\n", "refuse_downgrade"),
        ("hold_floor: ~\n", "hold_floor"),
        ("floor: {hidden: [/secret]}\n", "/secret hidden"),
    ],
)
async def test_whoever_may_write_a_document_cannot_take_a_guarantee_back(
    user: User, edit: str, said: str
) -> None:
    async with user.following() as (running, heard):
        before = running.composition
        user.write(user.locations.home, edit)
        refusal = (await heard.next()).error
        assert isinstance(refusal, FloorViolated)
        assert said in refusal.message
        assert running.composition is before


async def test_a_guarantee_that_is_added_opens_another_world(user: User) -> None:
    async with user.following() as (running, heard):
        old = running.world
        user.write(user.locations.home, "policy: {mode: workspace-write, workspace: /srv, network: none}\n")
        assert (await heard.next()).error is None
        assert running.world is not old
        assert running.world.policy.network.mode == "none"
        assert old.closed
