"""What a hostile program tries from within a view of the landlock world, beside the tables of the escape suite."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from execworld.seams import OutcomeUnknown, SandboxPolicy, SandboxUnavailable, TooLarge, World, WorldLost
from execworld.seams.enforcement import Dimension, EnforcementState
from execworld.seams.policy import ResourceLimits, SandboxMode
from execworld.world import open_world

if TYPE_CHECKING:
    from tests.integration.conftest import CommandLine

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="views of this host need Linux"),
]


@asynccontextmanager
async def opened(policy: SandboxPolicy) -> AsyncGenerator[World]:
    try:
        async with open_world("landlock", policy=policy, cwd=policy.workspace) as world:
            yield world
    except SandboxUnavailable as refusal:
        pytest.skip(f"this host cannot confine: {refusal.message}")


async def test_the_mode_of_a_device_is_not_the_views_to_change(tmp_path: Path) -> None:
    async with opened(SandboxPolicy.workspace_write(str(tmp_path))) as world:
        if world.enforcement.state(Dimension.FS_METADATA) is not EnforcementState.ENFORCED:
            pytest.skip("metadata is not reported as enforced here")
        for device in ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"):
            mode = os.stat(device).st_mode & 0o7777
            # The same as it has, so that nothing is broken where it works.
            result = await world.subprocess.run(["/bin/chmod", f"{mode:o}", device])
            assert result.exit_code != 0, device
        assert (await world.shell.run("echo gone > /dev/null")).exit_code == 0


async def test_what_watches_a_program_cannot_be_stopped_by_it(tmp_path: Path) -> None:
    async with opened(SandboxPolicy.workspace_write(str(tmp_path))) as world:
        with anyio.fail_after(60):
            # Some of these are faster than the note that they were started.
            for _ in range(20):
                result = await world.subprocess.run(["/bin/sh", "-c", "kill -STOP $PPID; exit 7"])
                assert result.exit_code == 7
            result = await world.subprocess.run(
                ["/bin/sh", "-c", "sleep 0.1; kill -STOP $PPID; exec sleep 600"], timeout_s=1
            )
        assert result.timed_out


async def test_files_of_a_view_do_not_tell_the_environment_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BREAKER_VALUE", "of the host alone")
    async with opened(SandboxPolicy.workspace_write(str(tmp_path))) as world:
        for path in ("/proc/self/environ", "/proc/thread-self/environ", "/proc/1/environ"):
            try:
                content = await world.fs.read_bytes(path)
            except OSError:
                continue
            assert b"of the host alone" not in content


def run_among_mounts(mounts: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command line in a mount namespace in which *mounts*, shell commands, were run before."""
    unshare = ("unshare", "--map-root-user", "--mount")
    if subprocess.run([*unshare, "mount", "-t", "tmpfs", "x", "/mnt"], capture_output=True).returncode:
        pytest.skip("this host lets nobody make mounts")
    line = f'set -e; {mounts}; exec "$@"'
    program = [sys.executable, "-m", "execworld.cli", "run", "-q", *arguments]
    return subprocess.run(
        [*unshare, "sh", "-c", line, "sh", *program], cwd=cwd, capture_output=True, text=True, timeout=60
    )


def test_what_is_hidden_is_hidden_at_every_mount_of_it(tmp_path: Path) -> None:
    for name in ("work", "data/deep", "alias", "inner"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "data/deep/secret").write_text("the secret")
    (tmp_path / "data/other").write_text("the rest")
    paths = ("data/deep/secret", "alias/deep/secret", "inner/secret", "data/other", "alias/other")
    mounts = (
        f"mount --bind {tmp_path}/data {tmp_path}/alias; mount --bind {tmp_path}/data/deep {tmp_path}/inner"
    )
    for hidden in ("data/deep/secret", "data/deep", "alias/deep"):
        result = run_among_mounts(
            mounts,
            *("--mode", "read-only", "--hide", f"{tmp_path}/{hidden}"),
            *("--", "cat", *(f"{tmp_path}/{path}" for path in paths)),
            cwd=tmp_path / "work",
        )
        assert result.stdout == "the restthe rest", (hidden, result)


def test_a_process_table_elsewhere_shows_no_other_processes(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    result = run_among_mounts(
        f"mount --rbind /proc {tmp_path}/proc", "--", "sh", "-c", "ls proc; echo $$", cwd=tmp_path
    )
    pids = [int(line) for line in result.stdout.split() if line.isdecimal()]
    assert pids, result
    # Its own number space: only the cell, what supervises, and the command.
    assert len(pids) < 10
    assert pids.count(pids[-1]) == 2


@pytest.mark.parametrize("kind", ["file", "directory"])
async def test_a_view_ends_when_what_it_hides_is_replaced_from_outside(tmp_path: Path, kind: str) -> None:
    secret = tmp_path / "secret"
    content = secret / "key" if kind == "directory" else secret

    def write(text: str) -> None:
        if kind == "directory":
            secret.mkdir()
        content.write_text(text)

    write("the first")
    policy = SandboxPolicy(SandboxMode.WORKSPACE_WRITE, str(tmp_path), hidden=(str(secret),))
    async with opened(SandboxPolicy.full_access()) as world:
        try:
            view = await world.sandbox.confine(policy)
        except SandboxUnavailable as refusal:
            pytest.skip(f"this host cannot hide: {refusal.message}")
        if "mount namespace" not in view.enforcement.entries[Dimension.FS_READ].by:
            pytest.skip("nothing is mounted here that could go")

        async def outlive_the_secret() -> None:
            async with view.subprocess.start(["/bin/sleep", "600"]) as process:
                # As an editor does that keeps what was there, and a check-out.
                secret.rename(tmp_path / "aside")
                write("the second")
                await process.wait()

        with anyio.fail_after(20), pytest.raises(OutcomeUnknown, match="replaced from outside"):
            await outlive_the_secret()
        with pytest.raises(WorldLost):
            await view.fs.read_text(str(content))
        again = await world.sandbox.confine(policy)
        assert again.view_id != view.view_id
        assert (await again.shell.run(f"cat {content}")).stdout.text == ""
        (tmp_path / "beside").write_text("an ordinary change")
        (tmp_path / "beside").rename(tmp_path / "elsewhere")
        assert (await again.shell.run(f"cat {tmp_path}/elsewhere")).stdout.text == "an ordinary change"


def test_a_world_can_be_opened_within_a_view_and_is_under_both_policies(
    command_line: CommandLine, tmp_path: Path
) -> None:
    execworld = [sys.executable, "-m", "execworld.cli", "run", "-q"]
    (tmp_path / "inner").mkdir()
    script = "echo x > inner/here; echo x > outer; echo x > /var/tmp/execworld-outside; ls inner outer"
    inner = [*execworld, "--workspace", f"{tmp_path}/inner", "--", "sh", "-c", script]
    result = command_line.run("run", "-q", "--", *inner)
    assert result.stdout.split() == [b"inner:", b"here"], result


async def test_no_file_operation_goes_past_the_limit_on_file_size(tmp_path: Path) -> None:
    limits = ResourceLimits(file_size_bytes=1000)
    policy = SandboxPolicy(SandboxMode.WORKSPACE_WRITE, str(tmp_path), limits=limits)
    async with opened(policy) as world:
        await world.fs.write_bytes("fits", b"x" * 1000)
        with pytest.raises(TooLarge):
            await world.fs.write_bytes("large", b"x" * 1001)
        assert os.listdir(tmp_path) == ["fits"]
        # It still runs, and what it starts is told by the signal as anywhere.
        result = await world.subprocess.run(["/usr/bin/head", "-c", "5000", "/dev/zero"])
        assert len(result.stdout.text) == 5000
        result = await world.subprocess.run(["/bin/sh", "-c", "exec head -c 5000 /dev/zero > large"])
        assert result.signal == signal.SIGXFSZ
