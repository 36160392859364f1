"""Progress of a transfer, shown to a person at a terminal and to nobody else."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from execworld.cli.messages import STDERR, is_terminal
from execworld.cli.transfer import Progress
from execworld.seams import OpenProgress, printable_path

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID


class _Silent:
    def begin(self, path: str, size_bytes: int) -> None:
        pass

    def advance(self, size_bytes: int) -> None:
        pass


class _Bar:
    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task: TaskID | None = None

    def begin(self, path: str, size_bytes: int) -> None:
        if self._task is not None:
            self._bars.remove_task(self._task)
        # A file that states no size may have content all the same.
        self._task = self._bars.add_task(printable_path(path), total=size_bytes or None)

    def advance(self, size_bytes: int) -> None:
        if self._task is not None:
            self._bars.advance(self._task, size_bytes)


@contextmanager
def show_progress(*, quiet: bool) -> Generator[Progress]:
    if quiet or not is_terminal(STDERR):
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    # Markup is off: a file may be called [bold].
    text = TextColumn("{task.description}", markup=False)
    with Bars(
        text,
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bars:
        yield _Bar(bars)


class OpeningBar:
    """What is being done while a world opens: nothing is shown before something takes long, nor after `finish`."""

    def __init__(self) -> None:
        self._bars: Bars | None = None
        self._task: TaskID | None = None

    def __call__(self, progress: OpenProgress) -> None:
        if self._bars is None:
            self._bars = _opening_bars()
            self._bars.start()
            self._task = self._bars.add_task("", total=None)
        assert self._task is not None
        self._bars.update(
            self._task,
            description=progress.text,
            completed=progress.done_bytes or 0,
            total=progress.total_bytes,
        )

    def finish(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None


@contextmanager
def show_opening() -> Generator[OpeningBar]:
    bar = OpeningBar()
    try:
        yield bar
    finally:
        bar.finish()


def _opening_bars() -> Bars:
    from rich.console import Console
    from rich.progress import DownloadColumn, SpinnerColumn, TextColumn
    from rich.progress import Progress as Bars
    from rich.table import Column

    # Markup is off: it may be the output of a program.
    text = TextColumn(
        "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")
    )
    return Bars(SpinnerColumn(), text, DownloadColumn(), console=Console(stderr=True), transient=True)
