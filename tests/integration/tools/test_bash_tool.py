"""The tool `bash` and the jobs behind it, as an agent meets them."""

from __future__ import annotations

import time

import anyio
import pytest

from execworld.seams import (
    CommandInvalid,
    ForeignSession,
    JobLimit,
    NoJob,
    SessionClosed,
    WorkingDirectoryMissing,
)
from execworld.tools.jobs import Jobs, JobsConfig, JobSnapshot, JobStatus
from execworld.tools.session import ToolSession

from .agents import Agent

pytestmark = pytest.mark.anyio


async def test_c021_a_background_job_holds_no_call(agent: Agent) -> None:
    begin = time.monotonic()
    answer = await agent.bash("sleep 60 & echo done", timeout_s=10)
    assert time.monotonic() - begin < 5
    assert answer.text == "done\n[processes that it started in the background go on]"


async def test_c025_c072_a_time_limit_is_ours_alone(agent: Agent) -> None:
    """A limit that fires says so, with its length; a program that exits with 124 by itself has not timed out."""
    begin = time.monotonic()
    answer = await agent.bash("echo before; sleep 300", timeout_s=1)
    assert 1 <= time.monotonic() - begin < 8
    assert answer.value.timed_out
    assert answer.text.startswith("before\n")
    assert "[timed out after 1 s]" in answer.text
    for code in (124, 137, 143):
        assert (await agent.bash(f"exit {code}")).text == f"(no output)\n[exit code {code}]"


async def test_c037_c039_the_end_of_long_output_is_shown_and_the_cut_described(agent: Agent) -> None:
    answer = await agent.bash("seq 1 200000; echo FINAL-ERROR-LINE; exit 3")
    assert answer.text.startswith("1\n2\n")
    assert answer.text.endswith("FINAL-ERROR-LINE\n[exit code 3]")
    path = answer.value.stdout.spill_path
    assert path is not None
    assert f"; all of it: {path}]" in answer.text
    assert "1: 1" in (await agent.read(path)).text  # within reach of the same agent


async def test_c041_endless_output_is_bounded(agent: Agent) -> None:
    answer = await agent.bash("yes", timeout_s=1)
    assert "[timed out after 1 s]" in answer.text
    assert len(answer.text.encode()) <= agent.tools["bash"].limit_bytes


async def test_c043_bytes_that_are_no_text_break_nothing(agent: Agent) -> None:
    agent.put(b"bytes", bytes(range(256)) * 16)
    answer = await agent.bash("cat bytes; echo END")
    assert answer.text.endswith("END")
    answer.text.encode()


async def test_c045_only_the_last_frame_is_shown(agent: Agent) -> None:
    answer = await agent.bash("for i in $(seq 1 500); do printf '\\rprogress %d%%' $i; done; echo")
    assert answer.text == "progress 500%"
    assert answer.value.stdout.text.count("progress") == 500


async def test_c047_control_sequences_are_left_out(agent: Agent) -> None:
    answer = await agent.bash(r"printf '\033[?25l\033]0;title\007\033[31mred\033[0m\033[?25h\n'")
    assert answer.text == "red"
    assert "\x1b" in answer.value.stdout.text


async def test_c049_c051_streams_are_apart_and_the_reason_is_shown(agent: Agent) -> None:
    answer = await agent.bash("echo o1; echo e1 >&2; echo o2; echo e2 >&2; exit 7")
    assert (answer.value.stdout.text, answer.value.stderr.text) == ("o1\no2\n", "e1\ne2\n")
    assert answer.text == "o1\no2\n[stderr]\ne1\ne2\n[exit code 7]"


async def test_c053_c065_there_is_no_input(agent: Agent) -> None:
    answer = await agent.bash('cat; read x; echo "got:[$x]"; head -n1; echo after', timeout_s=20)
    assert answer.text == "got:[]\nafter"


async def test_c055_no_pager_waits(agent: Agent) -> None:
    answer = await agent.bash("echo $PAGER; echo $GIT_PAGER")
    assert set(answer.text.split()) == {"cat"}


async def test_c061_an_unfinished_command_ends_at_once(agent: Agent) -> None:
    broken = await agent.bash('echo "abc', timeout_s=20)
    assert broken.value.exit_code not in (0, None)
    assert broken.value.stderr.text
    assert not broken.value.timed_out
    assert (await agent.bash("echo next")).text == "next"


async def test_c063_a_loop_is_one_command(agent: Agent) -> None:
    for name in "abc":
        (agent.directory / f"{name}.old").touch()
    answer = await agent.bash('for f in *.old\ndo\n  mv "$f" "${f%.old}.new"\n  echo "$f"\ndone')
    assert answer.text.split() == ["a.old", "b.old", "c.old"]
    assert sorted(path.name for path in agent.directory.iterdir()) == ["a.new", "b.new", "c.new"]


async def test_c066_c068_a_pipeline_is_not_praised(agent: Agent) -> None:
    """No word says that something succeeded: the exit status of a pipeline is that of its last command."""
    assert (await agent.bash("sh -c 'echo 2 failed; exit 1' | tail -1")).text == "2 failed"
    assert (await agent.bash("printf a | grep zzz | wc -l")).text.strip() == "0"


async def test_c074_no_output_ends_a_command(agent: Agent) -> None:
    lines = "[exit code 0]\n[timed out after 1 s]\n(no output)"
    answer = await agent.bash(f"printf '%s\\n' '{lines}'")
    assert answer.value.exit_code == 0
    assert answer.text == lines
    assert (await agent.bash("(exit 127)")).text.endswith("[exit code 127]")


async def test_c078_each_command_has_a_shell_of_its_own(agent: Agent) -> None:
    assert (await agent.bash("exit 3")).text.endswith("[exit code 3]")
    assert (await agent.bash("echo back")).text == "back"


async def test_a_signal_is_named(agent: Agent) -> None:
    assert (await agent.bash("kill -9 $$")).text == "(no output)\n[killed by SIGKILL]"


async def test_the_working_directory_can_be_chosen(agent: Agent) -> None:
    (agent.directory / "sub dir").mkdir()
    assert (await agent.bash("pwd", workdir="sub dir")).text == str(agent.directory / "sub dir")
    with pytest.raises(WorkingDirectoryMissing):
        await agent.bash("pwd", workdir="nowhere")
    with pytest.raises(CommandInvalid):
        await agent.bash("  ")


async def test_a_denial_points_to_the_sandbox(confined: Agent) -> None:
    answer = await confined.bash("echo x > /etc/execworld-test")
    assert "[this ran in a sandbox (workspace-write), which may be what refused it]" in answer.text
    assert answer.text.splitlines()[-1].startswith("[exit code ")


async def test_a_job_is_read_piece_by_piece(agent: Agent) -> None:
    started = await agent.bash(
        "echo one; until [ -e go ]; do sleep 0.05; done; echo two >&2; exit 4", run_in_background=True
    )
    job = started.value.job_id
    assert job == "bash-1"
    assert "bash-1" in started.text
    text = ""
    with anyio.fail_after(20):
        while "one" not in text:
            text = (await agent.call("job_output", job_id=job)).text
            await anyio.lowlevel.checkpoint()
    assert text == "one\n[job bash-1: running]"
    waited = await agent.call("job_output", job_id=job, wait=True, timeout_s=0.1)
    assert waited.text == "(no new output)\n[job bash-1: running]"
    (agent.directory / "go").touch()
    ended = await agent.call("job_output", job_id=job, wait=True, timeout_s=20.0)
    assert ended.text == "two\n[job bash-1: completed, exit code 4]"
    assert (await agent.call("job_output", job_id=job)).text.startswith("(no new output)\n")
    killed = await agent.call("job_kill", job_id=job)
    assert killed.text == "job bash-1 has ended already: completed, exit code 4"


async def test_c027_a_killed_job_leaves_nothing(agent: Agent) -> None:
    started = await agent.bash("sleep 86301 & sleep 86302", run_in_background=True)
    job = started.value.job_id
    assert (await agent.call("job_list")).text == f"{job} bash running: sleep 86301 & sleep 86302"
    assert (await agent.call("job_kill", job_id=job)).value.requested
    ended = await agent.call("job_output", job_id=job, wait=True, timeout_s=20.0)
    assert ended.value.job.status is JobStatus.KILLED
    left = await agent.bash("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")
    assert "sleep 8630" not in left.value.stdout.text


async def test_a_job_that_does_not_start_leaves_no_trace(agent: Agent) -> None:
    with pytest.raises(WorkingDirectoryMissing):
        await agent.bash("true", workdir="nowhere", run_in_background=True)
    assert (await agent.call("job_list")).text == "no jobs"
    assert (await agent.bash("true", run_in_background=True)).value.job_id == "bash-1"


async def test_a_session_has_so_many_jobs_and_sees_no_others(agent: Agent) -> None:
    async with Jobs(JobsConfig(running=1)) as jobs:
        async with ToolSession(agent.world.facts.cwd) as one, ToolSession(agent.world.facts.cwd) as other:
            first = Agent(agent.world, one, jobs, agent.directory)
            second = Agent(agent.world, other, jobs, agent.directory)
            await first.bash("sleep 300", run_in_background=True)
            with pytest.raises(JobLimit):
                await first.bash("sleep 300", run_in_background=True)
            assert (await second.bash("sleep 300", run_in_background=True)).value.job_id == "bash-2"
            with pytest.raises(ForeignSession):
                await second.call("job_kill", job_id="bash-1")
            with pytest.raises(NoJob):
                await second.call("job_output", job_id="bash-9")
            assert len((await second.call("job_list")).value.jobs) == 1
        with pytest.raises(SessionClosed):
            await first.bash("true", run_in_background=True)


async def test_c239_the_end_of_a_session_ends_its_jobs(agent: Agent) -> None:
    settled: list[JobSnapshot] = []
    async with Jobs(on_settled=lambda _, job: settled.append(job)) as jobs:
        async with ToolSession(agent.world.facts.cwd) as session:
            owner = Agent(agent.world, session, jobs, agent.directory)
            for _ in range(3):
                await owner.bash("trap '' TERM; sleep 303", run_in_background=True)
            begin = time.monotonic()
        assert time.monotonic() - begin < 12
        assert jobs.of(session) == ()
    assert settled == [], "an owner that ended its session is not told of it"
    left = await agent.bash("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")
    assert "sleep 303" not in left.value.stdout.text


async def test_c239_a_cancelled_call_leaves_no_process(agent: Agent) -> None:
    for _ in range(5):
        with anyio.move_on_after(0.2):
            await agent.bash("sleep 304")
    left = await agent.bash("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")
    assert "sleep 304" not in left.value.stdout.text


async def test_c245_many_at_once_keep_apart(agent: Agent) -> None:
    async def one(number: int) -> None:
        assert (await agent.bash(f"echo {number}; sleep 0.0{number % 10}")).text == str(number)

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(one, number)


async def test_c247_a_command_cannot_kill_what_runs_it(agent: Agent) -> None:
    """Its text is on nobody's command line but the shell's own, which is told by its signal."""
    answer = await agent.bash("pkill -f zz_unique_token; echo after")
    assert answer.text == "after" or answer.text.endswith("[killed by SIGTERM]")


async def test_what_a_job_prints_is_not_torn(agent: Agent) -> None:
    started = await agent.bash(
        r"printf 'a\303'; until [ -e go ]; do sleep 0.05; done; printf '\251b'", run_in_background=True
    )
    job = started.value.job_id
    text = ""
    with anyio.fail_after(20):
        while not text:
            text = (await agent.call("job_output", job_id=job)).value.text
            await anyio.lowlevel.checkpoint()
    assert text == "a"
    (agent.directory / "go").touch()
    assert (await agent.call("job_output", job_id=job, wait=True)).value.text == "éb"
