"""Clauses of how commands end: status, limits, cancellation, whole trees."""

from __future__ import annotations

import signal

import anyio
import pytest

from execworld.seams import (
    CommandFailed,
    CommandInvalid,
    CommandNotFound,
    CommandResult,
    CommandStatus,
    CommandTimeout,
    Process,
    StreamMode,
    World,
)
from execworld.seams.testing.probes import (
    assert_gone,
    eventually,
    is_alive,
    output_of,
    pid_from,
    read_when_there,
    sh,
)
from execworld.seams.testing.suite import ContractSuite

# Each starts something that outlives the shell unless its whole tree is ended, and writes its pid to "$1".
DESCENDANTS: dict[str, str] = {
    "child": 'sleep 30 & echo $! >"$1"; wait',
    "grandchild": 'sh -c \'sleep 30 & echo $! >"$1"; wait\' sh "$1"; true',
    "orphan": '( sleep 30 & echo $! >"$1" ); sleep 30; true',
    "deaf-orphan": '( (trap "" TERM; sleep 30; sleep 30) & echo $! >"$1" ); sleep 30; true',
    "own-session": 'setsid sleep 30 & echo $! >"$1"; wait',
    "daemon": '( setsid sh -c \'echo $$ >"$1"; exec sleep 30\' sh "$1" >/dev/null 2>&1 & ); sleep 30; true',
}


def elapsed_since(start: float) -> float:
    return anyio.current_time() - start


class StatusClauses(ContractSuite):
    """Why a command ended."""

    @pytest.mark.parametrize("code", [0, 1, 2, 124, 126, 127, 128, 130, 137, 143, 255])
    async def test_P29_an_exit_code_is_the_programs_own(self, world: World, code: int) -> None:
        """Any code from 0 to 255 is reported as the program gave it: those that shells use for signals, time limits
        and missing programs are no different."""
        result = await sh(world, f"exit {code}")
        assert (result.exit_code, result.signal, result.status) == (code, None, CommandStatus.EXITED)
        assert (result.timed_out, result.cancelled, result.output_limit_hit) == (False, False, False)
        assert result.ok == (code == 0)

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
    async def test_P80_a_signal_is_no_exit_code(self, world: World, number: signal.Signals) -> None:
        """A command that a signal ended has no exit code and the number of the signal, whoever sent it; that is
        neither a time limit nor a cancellation."""
        result = await sh(world, f"kill -{number.name.removeprefix('SIG')} $$")
        assert (result.exit_code, result.signal) == (None, int(number))
        assert result.status is CommandStatus.SIGNALLED
        assert not result.ok

    async def test_P81_check_turns_results_into_errors(self, world: World) -> None:
        """With ``check`` an exit other than 0 and a death by signal are COMMAND_FAILED, a time limit is
        COMMAND_TIMEOUT; both carry the result."""
        assert (await world.subprocess.run(["true"], check=True)).ok
        with pytest.raises(CommandFailed) as failed:
            await world.subprocess.run(["sh", "-c", "echo why >&2; exit 7"], check=True)
        assert failed.value.result.exit_code == 7
        assert failed.value.result.stderr.data == b"why\n"
        with pytest.raises(CommandFailed):
            await world.subprocess.run(["sh", "-c", "kill -KILL $$"], check=True)
        with pytest.raises(CommandTimeout) as timeout:
            await world.subprocess.run(["sleep", "30"], check=True, timeout_s=0.1, grace_s=0.5)
        assert timeout.value.result.timed_out
        assert isinstance(timeout.value, TimeoutError)

    async def test_P82_a_result_tells_how_long_and_how_much(self, world: World) -> None:
        """Duration and limit are in the result, and usage where the world can tell."""
        result = await world.subprocess.run(["sleep", "0.2"], timeout_s=20)
        assert 0.15 <= result.duration_s <= 5
        assert result.timeout_s == 20
        assert result.tree is None
        assert not result.background
        if result.usage is not None:
            assert result.usage.user_s + result.usage.system_s < 5
        assert (await world.subprocess.run(["true"])).timeout_s is None

    async def test_P83_waiting_can_be_repeated(self, world: World) -> None:
        """Any number of tasks may wait, during and after the run; all get the same result."""
        results: list[CommandResult] = []
        async with world.subprocess.start(["sh", "-c", "sleep 0.05; echo x; exit 5"]) as process:
            assert process.pid > 0

            async def wait() -> None:
                results.append(await process.wait())

            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(wait)
            await wait()
            assert not process.running
        assert len(results) == 5
        assert {(result.exit_code, result.stdout.data) for result in results} == {(5, b"x\n")}

    async def test_P84_a_cancelled_wait_harms_nothing(self, world: World) -> None:
        """Cancelling a wait leaves the process as it is; a later wait gets the result."""
        async with world.subprocess.start(["sh", "-c", "read x; exit 6"], pipe_stdin=True) as process:
            with anyio.move_on_after(0.05) as scope:
                await process.wait()
            assert scope.cancelled_caught
            assert process.running
            assert process.stdin is not None
            await process.stdin.aclose()
            assert (await process.wait()).exit_code == 6


class LimitClauses(ContractSuite):
    """Time limits."""

    async def test_D1_limits_are_checked(self, world: World) -> None:
        """A time limit or a grace that is no positive, finite number is COMMAND_INVALID before anything starts."""
        for timeout_s in (0, -0.5, float("inf"), float("nan")):
            with pytest.raises(CommandInvalid):
                await world.subprocess.run(["true"], timeout_s=timeout_s)
            with pytest.raises(CommandInvalid):
                async with world.subprocess.start(["true"], timeout_s=timeout_s):
                    pass

    async def test_D2_the_limit_ends_the_command_in_time(self, world: World) -> None:
        """A time limit is measured from the start; the call returns soon after it fired, not before, and says so. A
        shorter run is not touched."""
        start = anyio.current_time()
        result = await world.subprocess.run(["sleep", "30"], timeout_s=0.3, grace_s=1)
        assert 0.29 <= elapsed_since(start) <= 3
        assert result.timed_out
        assert result.status is CommandStatus.TIMED_OUT
        assert not result.cancelled
        assert not result.ok
        assert result.timeout_s == 0.3
        assert (await world.subprocess.run(["sleep", "0.1"], timeout_s=5)).ok

    async def test_D3_the_first_cause_counts(self, world: World) -> None:
        """A command that exits with 0 on TERM after its limit has timed out and exited with 0; one that its caller
        terminated before is cancelled; one that ended before is neither."""
        script = 'trap "echo bye; exit 0" TERM; echo ready; while :; do sleep 0.05; done'
        result = await world.subprocess.run(["sh", "-c", script], timeout_s=0.4, grace_s=3)
        assert (result.timed_out, result.exit_code, result.signal) == (True, 0, None)
        assert result.stdout.data == b"ready\nbye\n"
        assert not result.ok
        async with world.subprocess.start(["sleep", "30"], timeout_s=20) as process:
            await process.terminate(grace_s=1)
            result = await process.wait()
        assert (result.cancelled, result.timed_out) == (True, False)
        assert result.status is CommandStatus.CANCELLED
        async with world.subprocess.start(["true"]) as process:
            assert (await process.wait()).ok
            await process.terminate()
            assert (await process.wait()).status is CommandStatus.EXITED

    async def test_D4_a_limit_holds_for_what_a_command_starts(self, world: World) -> None:
        """A started process has a time limit too, and a command that ignores TERM is killed after the grace, not
        before."""
        script = 'trap "" TERM; echo ready; while :; do sleep 0.05; done'
        start = anyio.current_time()
        async with world.subprocess.start(["sh", "-c", script], timeout_s=0.3, grace_s=0.4) as process:
            result = await process.wait()
        assert 0.69 <= elapsed_since(start) <= 4
        assert (result.timed_out, result.exit_code, result.signal) == (True, None, int(signal.SIGKILL))
        assert result.tree is not None

    async def test_D5_a_huge_limit_is_a_limit(self, world: World) -> None:
        """A limit of many years is accepted and does not fire."""
        assert (await world.subprocess.run(["true"], timeout_s=1e9)).ok

    async def test_P85_output_before_the_limit_is_kept(self, world: World) -> None:
        """What a command wrote before its limit fired, and while it was being ended, is in the result."""
        script = "trap 'echo last; exit 3' TERM; echo first; echo error >&2; sleep 30 & wait"
        result = await world.subprocess.run(["sh", "-c", script], timeout_s=0.4, grace_s=2)
        assert result.timed_out
        assert result.stdout.data == b"first\nlast\n"
        assert result.stderr.data == b"error\n"


class TreeClauses(ContractSuite):
    """Whole process trees."""

    @pytest.mark.parametrize("kind", DESCENDANTS.keys())
    @pytest.mark.parametrize("how", ["timeout", "terminate", "cancel", "leave"])
    async def test_P22_ending_a_command_ends_its_tree(
        self, world: World, scratch: str, kind: str, how: str
    ) -> None:
        """However a running command is ended, none of its descendants runs afterwards: children, grandchildren,
        orphans, those that ignore TERM, and those in sessions of their own."""
        if "setsid" in DESCENDANTS[kind]:
            try:
                await world.subprocess.resolve_executable("setsid")
            except CommandNotFound:
                return  # nothing in this world makes a session
        argv = ["sh", "-c", DESCENDANTS[kind], "sh", f"{scratch}/pid"]
        pid = 0
        report = None
        if how == "timeout":
            async with anyio.create_task_group() as tasks:

                async def watch() -> None:
                    nonlocal pid
                    pid = await pid_from(world, f"{scratch}/pid")

                tasks.start_soon(watch)
                result = await world.subprocess.run(argv, timeout_s=0.6, grace_s=0.3)
                assert result.timed_out
                report = result.tree
                assert report is not None
        elif how == "cancel":
            async with anyio.create_task_group() as tasks:

                async def cancel() -> None:
                    nonlocal pid
                    pid = await pid_from(world, f"{scratch}/pid")
                    tasks.cancel_scope.cancel()

                tasks.start_soon(cancel)
                await world.subprocess.run(argv, grace_s=0.3)
        else:
            async with world.subprocess.start(argv, grace_s=0.3) as process:
                pid = await pid_from(world, f"{scratch}/pid")
                if how == "terminate":
                    report = await process.terminate()
                    assert not await is_alive(world, pid), f"process {pid} outlived terminate"
        if report is not None:
            assert report.gone
            assert report.survivors == ()
        assert pid
        await assert_gone(world, pid, f"a descendant ({kind})", within_s=0.3)

    async def test_P23_a_survivor_of_the_leader_is_killed(self, world: World, scratch: str) -> None:
        """When the leader obeys TERM and a descendant does not, the descendant is killed after the grace."""
        script = '(trap "" TERM; echo here >"$1.ready"; sleep 30; sleep 30) & echo $! >"$1"; exec sleep 30'
        async with world.subprocess.start(["sh", "-c", script, "sh", f"{scratch}/pid"]) as process:
            pid = await pid_from(world, f"{scratch}/pid")
            await read_when_there(world, f"{scratch}/pid.ready")
            start = anyio.current_time()
            report = await process.terminate(grace_s=0.4)
            assert elapsed_since(start) >= 0.39
            assert report.gone
        await assert_gone(world, pid, "a descendant that ignores TERM", within_s=0.1)

    async def test_P24_terminating_is_idempotent(self, world: World, scratch: str) -> None:
        """Terminating again, or from several tasks at once, joins the first call; after the end it does nothing."""
        script = 'trap "" TERM; echo here >"$1"; while :; do sleep 0.05; done'
        async with world.subprocess.start(["sh", "-c", script, "sh", f"{scratch}/ready"]) as process:
            await read_when_there(world, f"{scratch}/ready")
            start = anyio.current_time()
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(_terminate, process, 0.4)
            assert 0.39 <= elapsed_since(start) <= 3
            assert (await process.wait()).signal == int(signal.SIGKILL)
            with anyio.fail_after(1):
                await process.terminate(grace_s=30)
                await process.aclose()
                await process.aclose()

    async def test_P25_an_obedient_tree_needs_no_grace(self, world: World) -> None:
        """A tree that ends on TERM is not waited for any longer."""
        start = anyio.current_time()
        async with world.subprocess.start(["sh", "-c", "sleep 30 & sleep 30"]) as process:
            report = await process.terminate(grace_s=20)
        assert elapsed_since(start) < 5
        assert report.gone

    async def test_P27_a_signal_goes_to_the_leader_alone(self, world: World, scratch: str) -> None:
        """``send_signal`` reaches the leader and nobody else; once the leader ended it does nothing."""
        script = (
            'trap \'echo told >"$1.told"\' USR1; sleep 20 & echo $! >"$1"; '
            'while [ ! -e "$1.go" ]; do sleep 0.02; done; kill $(cat "$1"); exit 9'
        )
        async with world.subprocess.start(["sh", "-c", script, "sh", f"{scratch}/pid"]) as process:
            pid = await pid_from(world, f"{scratch}/pid")
            await process.send_signal(signal.SIGUSR1)
            assert await read_when_there(world, f"{scratch}/pid.told") == "told\n"
            assert await is_alive(world, pid), "the signal reached a child as well"
            await world.fs.write_text(f"{scratch}/pid.go", "")
            assert (await process.wait()).exit_code == 9
            await process.send_signal(signal.SIGKILL)
            assert (await process.wait()).exit_code == 9
        await assert_gone(world, pid, "a child")

    async def test_P28_the_whole_tree_can_be_waited_for(self, world: World, scratch: str) -> None:
        """``wait_tree`` returns when the last process of the tree has ended, and not with the leader; cancelling it
        affects nothing."""
        script = '( while [ ! -e "$1" ]; do sleep 0.02; done ) >/dev/null 2>&1 & exit 0'
        async with world.subprocess.start(["sh", "-c", script, "sh", f"{scratch}/go"]) as process:
            with anyio.fail_after(2):
                assert (await process.wait()).background
            with anyio.move_on_after(0.1) as scope:
                await process.wait_tree()
            assert scope.cancelled_caught
            await world.fs.write_text(f"{scratch}/go", "")
            with anyio.fail_after(3):
                await process.wait_tree()

    @pytest.mark.parametrize(
        "redirection", ["", ">/dev/null", "2>/dev/null", "</dev/null >/dev/null", ">/dev/null 2>&1"]
    )
    async def test_P30_a_background_job_does_not_hold_the_call(
        self, world: World, scratch: str, redirection: str
    ) -> None:
        """A job that a command leaves behind does not delay its result, whichever streams it holds; all output of
        the command itself is there; the job runs on, and the result says so."""
        script = f'sleep 20 {redirection} & echo $! >"$1"; seq 1 2000; echo done; exit 4'
        with anyio.fail_after(2):
            result = await sh(world, script, f"{scratch}/pid")
        assert result.exit_code == 4
        assert result.stdout.data.endswith(b"\n2000\ndone\n")
        assert result.stdout.total_bytes == len("".join(f"{n}\n" for n in range(1, 2001))) + 5
        assert result.background
        assert not result.timed_out
        pid = int(await world.fs.read_text(f"{scratch}/pid"))
        assert await is_alive(world, pid)
        await output_of(world, 'kill "$1"', str(pid))
        await assert_gone(world, pid, "a job that was killed by its number")

    async def test_P86_a_started_job_ends_with_its_handle(self, world: World, scratch: str) -> None:
        """What a started command left in the background belongs to its handle and ends with it."""
        script = 'sleep 30 >/dev/null 2>&1 & echo $! >"$1"; exit 0'
        async with world.subprocess.start(["sh", "-c", script, "sh", f"{scratch}/pid"]) as process:
            with anyio.fail_after(2):
                assert (await process.wait()).background
            pid = await pid_from(world, f"{scratch}/pid")
        await assert_gone(world, pid, "a background job", within_s=0.3)

    async def test_P87_many_short_lives_leave_nothing(self, world: World, scratch: str) -> None:
        """Starting and leaving at once, again and again, raises nothing and leaves no process."""
        pids: list[int] = []
        for _ in range(15):
            async with world.subprocess.start(["sleep", "30"], grace_s=1) as process:
                pids.append(process.pid)
        assert len(pids) == 15
        for pid in pids[-5:]:
            await assert_gone(world, pid, "a process that was left at once", within_s=0.3)
        pids.clear()
        for number in range(6):
            path = f"{scratch}/{number}"
            with anyio.move_on_after(0.02 * number):
                await world.subprocess.run(
                    ["sh", "-c", 'echo $$ >"$1"; exec sleep 30', "sh", path], grace_s=1
                )
            if await world.fs.stat(path) is not None and (text := await world.fs.read_text(path)):
                pids.append(int(text))
        for pid in pids:
            await assert_gone(world, pid, "a process whose call was cancelled", within_s=0.3)

    async def test_P4_a_cancelled_call_does_not_start(self, world: World, scratch: str) -> None:
        """In a scope that is cancelled already nothing is started."""
        with anyio.CancelScope() as scope:
            scope.cancel()
            await world.subprocess.run(["touch", f"{scratch}/made"])
        await anyio.sleep(0.05)
        assert await world.fs.stat(f"{scratch}/made") is None

    async def test_P88_an_error_in_the_body_ends_the_tree(self, world: World) -> None:
        """An exception of the caller leaves the context unchanged, and the tree is gone."""

        class Mine(Exception):
            pass

        handles: list[Process] = []
        with pytest.raises(Mine):  # noqa: PT012 - the body of a context is what is tested
            async with world.subprocess.start(["sleep", "30"], stdout=StreamMode.PIPE) as process:
                handles.append(process)
                raise Mine
        assert not handles[0].running
        await assert_gone(world, handles[0].pid, "a process of a failed body", within_s=0.3)

    async def test_P89_running_is_told(self, world: World) -> None:
        """A process counts as running until its end was seen."""
        async with world.subprocess.start(["cat"], pipe_stdin=True) as process:
            assert process.running
            assert process.stdin is not None
            await process.stdin.aclose()

            async def stopped() -> bool:
                return not process.running

            await eventually(stopped, "a process that ended counts as running")


async def _terminate(process: Process, grace_s: float) -> None:
    assert (await process.terminate(grace_s=grace_s)).gone
