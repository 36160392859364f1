"""Guards that tighten the policy of a world before it is opened, so that the world itself holds it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.compositions.doubles import GUARDS, Setting

from execworld.assembly import open_composition
from execworld.kernel import WORLD_OPENING, Context, Next, plugin
from execworld.seams import ConfigurationError, PolicyRefused, SandboxPolicy, SandboxUnavailable

pytestmark = [pytest.mark.anyio, pytest.mark.landlock]


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return "world: {use: landlock}\n" + GUARDS


async def test_limit_time_ends_a_command_whoever_starts_it(setting: Setting, base: str) -> None:
    """Also in a terminal, and although the caller set no limit or a longer one."""
    composition = setting.compose(base, "limit: {use: limit_time, config: {wall_s: 0.2}}")
    async with open_composition(composition) as running:
        result = await running.world.shell.run("sleep 60", timeout_s=50)
        assert result.timed_out
        async with running.world.subprocess.open_terminal(["sleep", "60"]) as terminal:
            assert (await terminal.wait()).timed_out
    async with open_composition(setting.compose(base)) as running:
        assert (await running.world.shell.run("sleep 0.3")).exit_code == 0


async def test_limit_output_ends_a_flood(setting: Setting, base: str) -> None:
    composition = setting.compose(base, "limit: {use: limit_output, config: {output_bytes: 1000}}")
    async with open_composition(composition) as running:
        result = await running.world.shell.run("yes", timeout_s=30)
        assert (result.timed_out, result.exit_code) == (False, None)
        assert (await running.world.shell.run("echo hi")).exit_code == 0


async def test_scrub_environment_takes_variables_out(
    setting: Setting, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILD_NUMBER", "7")
    monkeypatch.setenv("DEPLOY_TOKEN", "secret")
    policy = "policy: {environment: [BUILD_NUMBER, DEPLOY_TOKEN]}"
    command = "echo ${BUILD_NUMBER-none} ${DEPLOY_TOKEN-none}"
    for rows, seen in (
        ("{}", b"7 secret\n"),
        ("scrub: {use: scrub_environment, config: {allow: [BUILD_NUMBER]}}", b"7 none\n"),
        ("scrub: {use: scrub_environment}", b"none none\n"),
    ):
        async with open_composition(setting.compose(base, policy, rows)) as running:
            assert (await running.world.shell.run(command)).stdout.head == seen


async def test_a_smaller_limit_stays_and_two_rows_agree(setting: Setting, base: str) -> None:
    rows = "a: {use: limit_time, config: {wall_s: 20}}\nb: {use: limit_time, config: {wall_s: 9}}\n"
    for limits, expected in (("{}", 9), ("policy: {limits: {wall_s: 5}}", 5)):
        async with open_composition(setting.compose(base, rows, limits)) as running:
            assert running.world.policy.limits.wall_s == expected


async def test_a_limit_that_changes_opens_another_world(setting: Setting, base: str) -> None:
    row = "limit: {use: limit_time, config: {wall_s: %s}}"
    async with open_composition(setting.compose(base, row % 20)) as running:
        old = running.world
        await running.change_to(setting.compose(base, row % 10))
        assert running.world.policy.limits.wall_s == 10
        assert old.closed


async def test_where_nothing_holds_a_limit_nothing_is_opened(setting: Setting) -> None:
    with pytest.raises(SandboxUnavailable):
        async with open_composition(
            setting.compose("world: {use: local}\nlimit: {use: limit_time, config: {wall_s: 9}}"),
            on_error=lambda _: None,
        ):
            raise AssertionError


@pytest.mark.parametrize("config", ["{}", "{wall_s: 0}", "{wall_s: -1}", "{wall: 5}", "{wall_s: .inf}"])
async def test_a_limit_that_is_none_is_refused(setting: Setting, base: str, config: str) -> None:
    with pytest.raises(ConfigurationError):
        setting.compose(base, f"limit: {{use: limit_time, config: {config}}}")


async def test_nobody_can_loosen_a_policy_on_the_way(setting: Setting, base: str) -> None:
    @plugin()
    def loosen(ctx: Context) -> None:
        async def widen(policy: SandboxPolicy, go_on: Next[SandboxPolicy, SandboxPolicy]) -> SandboxPolicy:
            return replace(await go_on(), hidden=())

        ctx.on(WORLD_OPENING, widen)

    setting.plugins["loosen"] = loosen
    setting.guards.add("loosen")
    with pytest.raises(PolicyRefused, match=r"policy\.hidden"):
        async with open_composition(
            setting.compose(base, "policy: {hidden: [/etc/ssl]}", "bad: {use: loosen}"),
            on_error=lambda _: None,
        ):
            raise AssertionError
