"""Every known way in which a guarantee gets lost without a word is refused, before anything has run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.compositions.doubles import GUARDS, Setting

from execworld.assembly import open_composition
from execworld.config import SystemFloor, Wanted, load
from execworld.kernel import Context, Key, plugin
from execworld.seams import Boundary, Dimension, ExecworldError, ServiceUnavailable
from execworld.seams.values import record

BASE = (
    "world: {use: box, config: {image: debian}}\n"
    "policy: {mode: workspace-write, workspace: /srv, hidden: [/secret, /keys], require: strict}\n"
    + GUARDS
    + "tool: {use: tool}\n"
)
FLOOR = """
floor:
  boundary: container
  mode: workspace-write
  hidden: [/secret]
  require: [fs.write, fs.metadata]
  guards: [refuse_downgrade, hold_floor]
"""


@record
class Case:
    """One way to lose a guarantee by documents.

    Attributes:
        patch: What is laid over the composition.
        code: How it is refused.
        said: A part of the message.
        floor: Whether a floor is there, too.
    """

    patch: str
    code: str
    said: str
    floor: bool = False


FLOOR_VIOLATED, SANDBOX_UNAVAILABLE, WRONG = "FLOOR_VIOLATED", "SANDBOX_UNAVAILABLE", "CONFIGURATION_INVALID"
CASES = {
    "typo in a policy key": Case("policy: {moode: full-access}", WRONG, "no `moode`"),
    "typo in a policy value": Case("policy: {network: nonne}", WRONG, "policy.network"),
    "list that wipes rules": Case("policy: {hidden: []}", WRONG, "drops 2 items"),
    "list that wipes rules on purpose": Case(
        "policy: {hidden: !replace []}", FLOOR_VIOLATED, "/secret hidden", floor=True
    ),
    "patch to local": Case("world: {use: local}", SANDBOX_UNAVAILABLE, "local"),
    "patch to local with a floor": Case(
        "world: {use: local}", FLOOR_VIOLATED, "container at least is wanted", floor=True
    ),
    "patch to local without a policy": Case(
        "world: {use: local}\npolicy: ~", FLOOR_VIOLATED, "policy.mode", floor=True
    ),
    "patch that drops require": Case(
        "policy: {require: default}", FLOOR_VIOLATED, "fs.metadata enforced is wanted", floor=True
    ),
    "patch that drops one dimension": Case(
        "policy: {require: {fs.write: no}}", FLOOR_VIOLATED, "fs.write enforced is wanted", floor=True
    ),
    "patch that lowers the floor": Case(
        "floor: {boundary: none}", FLOOR_VIOLATED, "would loosen", floor=True
    ),
    "guard row disabled": Case(
        "refuse_downgrade: {disabled: yes}", FLOOR_VIOLATED, "`refuse_downgrade` is wanted", floor=True
    ),
    "guard row removed": Case("hold_floor: ~", FLOOR_VIOLATED, "`hold_floor` is wanted", floor=True),
    "guard row put to another use": Case(
        "hold_floor: {use: tool}", FLOOR_VIOLATED, "`hold_floor` is wanted", floor=True
    ),
    "fs row shadowed in a realm": Case("other: {use: shadow}", SANDBOX_UNAVAILABLE, "no view"),
    "world shadowed in a realm": Case("other: {use: shadow_all}", SANDBOX_UNAVAILABLE, "no view"),
    "fake sandbox": Case("other: {use: foreign_sandbox}", SANDBOX_UNAVAILABLE, "no view"),
    "fake sandbox that copies a view": Case(
        "other: {use: fake_sandbox}", SANDBOX_UNAVAILABLE, "claims to enforce what is not"
    ),
}


@pytest.mark.anyio
async def test_the_composition_itself_runs(setting: Setting) -> None:
    """The twin of all cases: a refusal is one of what was patched."""
    async with open_composition(setting.compose(BASE, FLOOR)) as running:
        assert setting.tool.events == [f"start {running.world.world_id}"]


@pytest.mark.parametrize("case", [pytest.param(each, id=name) for name, each in CASES.items()])
@pytest.mark.anyio
async def test_a_document_cannot_take_it_away(setting: Setting, case: Case) -> None:
    async def attempt() -> None:
        composition = setting.compose(BASE, *([FLOOR] if case.floor else []), case.patch)
        async with open_composition(composition, on_error=lambda _: None):
            raise AssertionError

    with pytest.raises(ExecworldError) as caught:
        await attempt()
    assert caught.value.code == case.code
    assert case.said in caught.value.message
    if "other" not in case.patch:
        assert not setting.tool.events
        assert not setting.engine.opened


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "other:" in case.patch])
@pytest.mark.anyio
async def test_it_is_the_guard_that_refuses(setting: Setting, name: str) -> None:
    """Without guards, and without a floor that asks for them, the same composition runs."""
    composition = setting.compose(BASE.replace(GUARDS, ""), CASES[name].patch)
    async with open_composition(composition):
        assert setting.tool.events


@pytest.mark.anyio
async def test_a_variable_that_is_empty_is_not_a_default(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IMAGE", "")
    with pytest.raises(ExecworldError, match="set, but empty") as caught:
        setting.compose(BASE, "world: {config: {image: !env IMAGE}}")
    assert caught.value.code == WRONG


@pytest.fixture
def machine_floor(tmp_path: Path) -> SystemFloor:
    system = tmp_path / "floor.yml"
    system.write_text("floor: {boundary: kernel-policy}")
    system.chmod(0o644)
    tmp_path.chmod(0o755)
    return SystemFloor(str(system), str(tmp_path), tmp_path.stat().st_uid)


def test_a_second_profile_is_bound_by_the_floor_of_the_machine(
    setting: Setting, tmp_path: Path, machine_floor: SystemFloor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    profiles = tmp_path / "execworld" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "tight.yml").write_text("policy: {mode: read-only}")
    (profiles / "loose.yml").write_text("world: {use: local}")
    assert load(Wanted(profile="tight"), setting.registry(), system=machine_floor).floor.boundary
    with pytest.raises(ExecworldError) as caught:
        load(Wanted(profile="loose"), setting.registry(), system=machine_floor)
    assert caught.value.code == FLOOR_VIOLATED


Weaken = Callable[[Setting], None]


def _boundary(boundary: Boundary) -> Weaken:
    def weaken(setting: Setting) -> None:
        setting.engine.boundary = boundary

    return weaken


def _lose(dimension: Dimension) -> Weaken:
    def weaken(setting: Setting) -> None:
        setting.engine.unenforced = frozenset({dimension})

    return weaken


# What an engine that was restarted, a link that was made again and a world that is made again have in common: the same
# row is opened again.
AGAIN = {
    "engine restarted weaker": (_boundary(Boundary.KERNEL_POLICY), SANDBOX_UNAVAILABLE, ""),
    "reconnect to another host": (_boundary(Boundary.OTHER_HOST), SANDBOX_UNAVAILABLE, ""),
    "idle re-creation that enforces less": (_lose(Dimension.FS_METADATA), SANDBOX_UNAVAILABLE, ""),
    "engine restarted weaker, with a floor": (_boundary(Boundary.NONE), FLOOR_VIOLATED, FLOOR),
    "idle re-creation under a strict policy": (_lose(Dimension.FS_METADATA), SANDBOX_UNAVAILABLE, FLOOR),
}
REPORTED = BASE.replace("require: strict", "require: default")


@pytest.mark.parametrize(
    ("weaken", "code", "floor"), [pytest.param(*each, id=name) for name, each in AGAIN.items()]
)
@pytest.mark.anyio
async def test_a_world_does_not_come_back_weaker(
    setting: Setting, weaken: Weaken, code: str, floor: str
) -> None:
    """And the one before goes on."""
    composition = setting.compose(REPORTED if not floor else BASE, floor or "{}")
    async with open_composition(composition, on_error=lambda _: None) as running:
        before = running.world
        weaken(setting)
        with pytest.raises(ExecworldError) as caught:
            await running.open_world_again()
        assert caught.value.code == code
        assert running.world is before
        assert len(setting.tool.events) == 1


@pytest.mark.parametrize("weaken", [each for each, _, floor in AGAIN.values() if not floor])
@pytest.mark.anyio
async def test_it_is_the_guard_that_notices(setting: Setting, weaken: Weaken) -> None:
    async with open_composition(setting.compose(REPORTED.replace(GUARDS, ""))) as running:
        before = running.world
        weaken(setting)
        await running.open_world_again()
        assert running.world is not before


@pytest.mark.anyio
async def test_a_world_comes_back_as_it_was(setting: Setting) -> None:
    """The twin of the cases above."""
    async with open_composition(setting.compose(REPORTED)) as running:
        before = running.world
        await running.open_world_again()
        await running.context.settle()
        assert running.world is not before
        assert setting.tool.events[-1] == f"start {running.world.world_id}"


@pytest.mark.parametrize("guarded", [True, False], ids=["with guards", "without guards"])
@pytest.mark.anyio
async def test_what_is_opened_is_compared_with_the_floor_and_not_what_was_claimed(
    setting: Setting, guarded: bool
) -> None:
    """Also without any guard: the row of the world compares by itself."""
    setting.engine.boundary = Boundary.NONE
    base = BASE if guarded else BASE.replace(GUARDS, "")
    composition = setting.compose(base, "floor: {boundary: container}")
    with pytest.raises(ExecworldError, match="container at least is wanted, and there is none") as caught:
        async with open_composition(composition, on_error=lambda _: None):
            raise AssertionError
    assert caught.value.code == FLOOR_VIOLATED
    assert not setting.tool.events
    assert setting.engine.opened[0].closed


@pytest.mark.anyio
async def test_a_confining_world_without_a_policy_has_to_be_written_down(setting: Setting) -> None:
    usual = setting.compose("world: {use: landlock}\n" + GUARDS)
    assert usual.policy.confines
    said = setting.compose("world: {use: landlock}\npolicy: {mode: full-access}\n" + GUARDS)
    assert said.mode_is_said
    async with open_composition(said) as running:
        assert not running.world.policy.confines


@pytest.mark.anyio
async def test_no_world_is_opened_that_a_guard_would_not_see(setting: Setting) -> None:
    """A guard that waits for a service, at the start or later, guards nothing."""

    @plugin(inject=(Key[str]("audit_log"),))
    def picky(ctx: Context) -> None: ...

    setting.plugins["picky"] = picky
    setting.guards.add("picky")
    with pytest.raises(ServiceUnavailable, match=r"guard `picky` is PENDING"):
        async with open_composition(setting.compose(BASE, "picky: {use: picky}")):
            raise AssertionError
    assert not setting.engine.opened
    async with open_composition(setting.compose(BASE)) as running:
        await running.fibers["refuse_downgrade"].dispose()
        with pytest.raises(ServiceUnavailable, match=r"guard `refuse_downgrade` is DISPOSED"):
            await running.open_world_again()
        with pytest.raises(ServiceUnavailable, match=r"guard `picky` is PENDING"):
            await running.change_to(setting.compose(BASE, "picky: {use: picky}\nrefuse_downgrade: ~"))
        assert "picky" not in running.fibers
