"""Progress of a transfer, shown to a person at a terminal and to nobody else."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from execworld.cli.messages import STDERR, is_terminal
from execworld.cli.transfer import Progress
from execworld.seams import printable_path

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
