"""The pytest plugin: options that name a world, makers for the suites, deviations, a report by clause.

It is loaded into every pytest run of an environment that has execworld, so it imports nothing until a suite is there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial, wraps
from importlib.metadata import entry_points
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from execworld.testing.contract_items import CLAUSE_LIMIT_S, CONTRACT_ITEM, ContractCollection, suite_of

if TYPE_CHECKING:
    from execworld.seams import World
    from execworld.seams.testing import BreakableWorld, BrokenWorldMaker, WorldMaker

BREAKER_GROUP: Final = "execworld.breakers"
"""Entry points, named like their provider: an async function that loses the world given to it."""

_OUTCOMES: Final = pytest.StashKey[list[tuple[str, str, str, str]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("execworld", "execution worlds")
    group.addoption("--world", dest="world_name", metavar="NAME", help="world to run contract suites against")
    group.addoption(
        "--world-config",
        dest="world_config",
        action="append",
        metavar="KEY=VALUE",
        help="option of that world; may be repeated",
    )
    group.addoption(
        "--world-config-file",
        metavar="FILE",
        help="options of that world as a JSON object of strings, for values that must not be in an argument list",
    )
    group.addoption("--world-cwd", dest="world_cwd", metavar="DIR", help="working directory in that world")
    group.addoption(
        "--world-mode",
        dest="world_mode",
        choices=("full-access", "workspace-write"),
        default="full-access",
        help="policy of that world; the workspace is the working directory",
    )
    group.addoption("--clauses", metavar="PATTERNS", help="run only clauses that match, for example F-31,P-*")
    group.addoption(
        "--deviations",
        dest="deviation_files",
        action="append",
        metavar="FILE",
        help="deviations of a world that execworld does not know",
    )
    group.addoption("--contract-report", metavar="FILE", help="write the outcome of each clause as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_OUTCOMES] = []


@pytest.fixture(scope="session")
def world_maker(request: pytest.FixtureRequest) -> WorldMaker:
    """Opens the world that ``--world`` names."""
    name: str | None = request.config.getoption("world_name")
    if not name:
        pytest.fail("no world: give --world NAME, or a fixture `world_maker` of your own", pytrace=False)
    from execworld.seams import SandboxPolicy
    from execworld.world import resolve_world

    options: dict[str, object] = {}
    file: str | None = request.config.getoption("world_config_file")
    if file is not None:
        options.update(json.loads(Path(file).read_text(encoding="utf-8")))
    given: list[str] = request.config.getoption("world_config") or []
    for item in given:
        key, separator, value = item.partition("=")
        if not separator:
            pytest.fail(f"--world-config needs KEY=VALUE, got {key!r}", pytrace=False)
        options[key] = value
    resolved = resolve_world(name, options, text=True)
    cwd: str | None = request.config.getoption("world_cwd")
    policy = SandboxPolicy.full_access()
    if request.config.getoption("world_mode") == "workspace-write":
        policy = SandboxPolicy.workspace_write(cwd or str(Path.cwd()))

    def make() -> AbstractAsyncContextManager[World]:
        return resolved.open(policy=policy, cwd=cwd)

    return make


@pytest.fixture(scope="session")
def broken_world_maker(request: pytest.FixtureRequest, world_maker: WorldMaker) -> BrokenWorldMaker:
    """Opens a world that can be lost, where its provider registers a way to lose it."""
    from execworld.testing.contract_items import world_kind

    kind = world_kind(request.config.getoption("world_name") or "")
    points = entry_points(group=BREAKER_GROUP, name=kind)
    if not points:
        pytest.fail(f"no distribution registers a way to lose a `{kind}` world", pytrace=False)
    lose: Callable[[World], Awaitable[None]] = next(iter(points)).load()

    @asynccontextmanager
    async def make() -> AsyncGenerator[BreakableWorld]:
        from execworld.seams.testing import BreakableWorld

        async with world_maker() as world:
            yield BreakableWorld(world, partial(lose, world))

    return make


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not any(suite_of(item) for item in items):
        return
    collection = ContractCollection(config)
    marked = [(item, collection.mark(item)) for item in items]
    dropped = [item for item, kept in marked if not kept]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item, kept in marked if kept]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Bound each clause: a world that hangs fails the clause and not the whole run."""
    original = pyfuncitem.obj
    if CONTRACT_ITEM not in pyfuncitem.stash or not iscoroutinefunction(original):
        return (yield)
    import anyio

    @wraps(original)
    async def bounded(**arguments: object) -> None:
        with anyio.move_on_after(CLAUSE_LIMIT_S) as scope:
            await original(**arguments)
        if scope.cancelled_caught:
            pytest.fail(f"the clause took longer than {CLAUSE_LIMIT_S:g} s", pytrace=False)

    pyfuncitem.obj = bounded
    try:
        return (yield)
    finally:
        pyfuncitem.obj = original


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A clause passes, fails, or deviates as declared; no test and no provider can excuse itself."""
    report = yield
    contract = item.stash.get(CONTRACT_ITEM, None)
    if contract is None:
        return report
    excused = report.skipped and contract.deviation is None
    if excused:
        report.outcome = "failed"
        report.longrepr = f"{contract.clause} was skipped, and no deviation of `{contract.world}` is declared"
        if hasattr(report, "wasxfail"):
            del report.wasxfail
    if report.when == "call" or report.outcome != "passed":
        outcome = {"passed": "passed", "failed": "failed", "skipped": "deviation"}[report.outcome]
        item.config.stash[_OUTCOMES].append((contract.world, contract.clause, outcome, item.nodeid))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    deviations: dict[tuple[str, str], str] = {}
    mutants: Counter[str] = Counter()
    for report in terminalreporter.getreports("xfailed"):
        reason = str(getattr(report, "wasxfail", "")).removeprefix("reason: ")
        clause, _, rest = reason.partition(" ")
        world, separator, why = rest.partition(": ")
        if separator and "-" in clause:
            if world.startswith("mutant "):
                mutants[world] += 1
            else:
                deviations[world, clause] = why
    if deviations:
        terminalreporter.section("declared deviations from the contract")
        for (world, clause), why in sorted(deviations.items()):
            terminalreporter.line(f"{world:10} {clause:6} {why}")
    if mutants:
        terminalreporter.section("wrong worlds that the contract rejected")
        terminalreporter.line(f"{len(mutants)} mutants, {sum(mutants.values())} rejections")


def pytest_sessionfinish(session: pytest.Session) -> None:
    path: str | None = session.config.getoption("contract_report")
    if path is None:
        return
    rows = [
        {"world": world, "clause": clause, "outcome": outcome, "test": test}
        for world, clause, outcome, test in session.config.stash[_OUTCOMES]
    ]
    Path(path).write_text(json.dumps(rows, indent=1), encoding="utf-8")
