"""Wrong commands: what `Subprocess` answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from execworld.seams import CommandResult, Output, SpawnFailed, StreamMode
from execworld.testing.mutants.mutant import Delegate, Mutant, with_subprocess


class _ChangesResults(Delegate):
    def __init__(self, inner: Any, change: Callable[[CommandResult], CommandResult]) -> None:
        super().__init__(inner)
        self._change = change

    async def run(self, *arguments: Any, **options: Any) -> CommandResult:
        return self._change(await self.inner.run(*arguments, **options))


def _keeps_the_tail_only(result: CommandResult) -> CommandResult:
    def cut(output: Output) -> Output:
        if not output.truncated:
            return output
        return replace(output, head=b"", dropped_bytes=output.dropped_bytes + len(output.head))

    return replace(result, stdout=cut(result.stdout), stderr=cut(result.stderr))


def _counts_wrongly(result: CommandResult) -> CommandResult:
    output = result.stdout
    if not output.truncated:
        return result
    return replace(result, stdout=replace(output, dropped_lines=output.dropped_lines + 1))


def _decodes_and_encodes(result: CommandResult) -> CommandResult:
    def recode(data: bytes) -> bytes:
        return data.decode("utf-8", "replace").encode()

    output = result.stdout
    return replace(result, stdout=replace(output, head=recode(output.head), tail=recode(output.tail)))


def _fails_without_a_spill_file(result: CommandResult) -> CommandResult:
    if result.stdout.spill_error:
        raise SpawnFailed("the output could not be saved")
    return result


def _takes_codes_for_limits(result: CommandResult) -> CommandResult:
    return replace(result, timed_out=result.timed_out or result.exit_code == 124)


class _MergesAfterwards(Delegate):
    async def run(
        self, *arguments: Any, stderr: StreamMode = StreamMode.COLLECT, **options: Any
    ) -> CommandResult:
        if stderr is not StreamMode.MERGE:
            result: CommandResult = await self.inner.run(*arguments, stderr=stderr, **options)
            return result
        result = await self.inner.run(*arguments, stderr=StreamMode.COLLECT, **options)
        joined = replace(result.stdout, head=result.stdout.data + result.stderr.data, tail=b"")
        return replace(result, stdout=joined, stderr=Output())


class _JoinsArguments(Delegate):
    async def run(self, argv: Any, **options: Any) -> CommandResult:
        parts = [
            part if isinstance(part, bytes) else part.encode("utf-8", "surrogateescape") for part in argv
        ]
        if parts[:1] == [b"printf"]:
            parts = [b"sh", b"-c", b" ".join(parts)]
        result: CommandResult = await self.inner.run(parts, **options)
        return result


class _SearchesTheCurrentDirectory(Delegate):
    async def resolve_executable(self, name: str, *, env: Any = None, cwd: Any = None) -> str:
        if env and "PATH" in env and cwd is not None and "/" not in name:
            env = {**env, "PATH": ":".join(part or str(cwd) for part in env["PATH"].split(":"))}
        found: str = await self.inner.resolve_executable(name, env=env, cwd=cwd)
        return found


_ENDED_BY_TIMEOUT = tuple(
    f"P-22[timeout-{kind}]"
    for kind in ("child", "grandchild", "orphan", "deaf-orphan", "own-session", "daemon")
)

COMMAND_MUTANTS = (
    Mutant(
        "mutant hides-time-limits",
        "kills at the time limit and does not say so",
        ("D-2", "D-3"),
        ("P-71", "P-85", *_ENDED_BY_TIMEOUT),
        world=with_subprocess(
            lambda inner: _ChangesResults(inner, lambda result: replace(result, timed_out=False))
        ),
    ),
    Mutant(
        "mutant takes-codes-for-limits",
        "takes exit 124 for a time limit",
        ("P-29[124]",),
        world=with_subprocess(lambda inner: _ChangesResults(inner, _takes_codes_for_limits)),
    ),
    Mutant(
        "mutant keeps-the-tail-only",
        "drops the head of a long output",
        ("P-13", "P-14", "P-15", "P-17", "P-21", "P-70", "P-71", "P-78"),
        world=with_subprocess(lambda inner: _ChangesResults(inner, _keeps_the_tail_only)),
    ),
    Mutant(
        "mutant counts-wrongly",
        "miscounts dropped lines by one",
        ("P-13",),
        world=with_subprocess(lambda inner: _ChangesResults(inner, _counts_wrongly)),
    ),
    Mutant(
        "mutant keeps-text-only",
        "decodes output and so loses bytes that are not UTF-8",
        ("P-21", "P-2[not-utf8]", "P-62", "P-14"),
        ("P-17", "P-78"),
        world=with_subprocess(lambda inner: _ChangesResults(inner, _decodes_and_encodes)),
    ),
    Mutant(
        "mutant fails-without-a-spill-file",
        "fails a command because its output could not be saved",
        ("P-78", "P-17"),
        world=with_subprocess(lambda inner: _ChangesResults(inner, _fails_without_a_spill_file)),
    ),
    Mutant(
        "mutant merges-afterwards",
        "joins stderr to the end of stdout",
        ("P-76",),
        world=with_subprocess(_MergesAfterwards),
    ),
    Mutant(
        "mutant joins-arguments",
        "hands arguments to a shell",
        ("P-2",),
        world=with_subprocess(_JoinsArguments),
    ),
    Mutant(
        "mutant searches-the-current-directory",
        "takes an empty part of PATH for the current directory",
        ("P-1",),
        world=with_subprocess(_SearchesTheCurrentDirectory),
    ),
    Mutant(
        "mutant hides-background-jobs",
        "does not tell that processes are left",
        ("P-30",),
        world=with_subprocess(
            lambda inner: _ChangesResults(inner, lambda result: replace(result, background=False))
        ),
    ),
)
