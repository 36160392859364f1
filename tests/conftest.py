"""Fixtures that every test may use."""

import gc
import signal
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A machine that does other things as well is no fault of the code, and what a run finds is told by the run itself.
settings.register_profile(
    "execworld", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("execworld")


def pytest_configure() -> None:
    """Start from the usual answers to signals.

    Under nohup(1), and as a background command of a shell without job control, every program that a test starts would
    ignore them.
    """
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Collect no garbage while a failure is put into words.

    That parses source, and so does the report of an object that cannot be finalized. One inside the other is more than
    CPython before 3.11.8 and 3.12.2 can take (python/cpython#106905): the whole run would end with a SystemError.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        return (yield)
    finally:
        if enabled:
            gc.enable()


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run each test that is marked `anyio` on both event loops, in every world.

    A test that can hold on one loop only names it: `@pytest.mark.parametrize("anyio_backend", ["asyncio"])`.
    Module scope is what anyio asks for, so that fixtures of that scope can be async.
    """
    backend: str = request.param
    return backend


Note = Callable[[str], None]


@pytest.fixture
def note(record_property: Callable[[str, object], None]) -> Note:
    """Say something in the summary of the run."""

    def say(text: str) -> None:
        record_property("note", text)

    return say


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    found = [
        value
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == "note"
    ]
    if found:
        terminalreporter.section("notes")
    for text in dict.fromkeys(map(str, found)):
        terminalreporter.line(text)
