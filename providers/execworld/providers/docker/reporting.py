"""What an engine says while it pulls or builds, as progress for people, or as the error that it ends with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from execworld.providers.docker.failures import refused, shortened
from execworld.providers.docker.inspected import ODD, Inspected
from execworld.seams.provider import OnProgress, OpenProgress

_MOST_LAYERS: Final = 1000
_KEPT_LINES: Final = 5
_STEP: Final = re.compile(r"Step \d+/\d+ : ")


class Reporter:
    """Takes the reports of one pull or build.

    Attributes:
        image: Id of what was built, when that was said.
    """

    def __init__(self, what: str, on_progress: OnProgress | None) -> None:
        self.image = ""
        self._what = what
        self._on_progress = on_progress
        self._step = ""
        self._said: list[str] = []
        self._layers: dict[str, tuple[int, int]] = {}

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Raises:
        EngineRefused: it is the report of a failure.
        """
        report = Inspected(event)
        if "error" in event or "errorDetail" in event:
            said = f"; it said {' / '.join(self._said)}" if self._said else ""
            reason = report.inner("errorDetail").text("message")
            reason = report.text("error") if reason is ODD else reason
            # The engine has answered that all is well before it knew.
            raise refused(500, f"{'it did not say why' if reason is ODD else reason}{said}", self._what)
        image, line, status = report.inner("aux").text("ID"), report.text("stream"), report.text("status")
        if image is not ODD:
            self.image = image
        if line is not ODD:
            self._take_line(shortened(line))
        elif status is not ODD:
            self._take_status(shortened(status), report)

    def _take_line(self, line: str) -> None:
        if not line:
            return
        if _STEP.match(line):
            self._step, self._said = line, []
            self._report(line)
        else:
            self._said = [*self._said, line][-_KEPT_LINES:]
            self._report(f"{self._step}: {line}" if self._step else line)

    def _take_status(self, status: str, report: Inspected) -> None:
        layer, detail = report.text("id", ""), report.inner("progressDetail")
        if layer is ODD:
            return
        if status == "Downloading" and len(self._layers) < _MOST_LAYERS:
            done, total = detail.number("current"), detail.number("total")
            if done is not ODD and total is not ODD:
                self._layers[layer] = (min(done, total), total)
        elif status == "Download complete" and layer in self._layers:
            total = self._layers[layer][1]
            self._layers[layer] = (total, total)
        self._report(f"{self._what}: {status.lower() if layer else status}")

    def _report(self, text: str) -> None:
        if self._on_progress is None:
            return
        whole = sum(total for _, total in self._layers.values())
        done = sum(done for done, _ in self._layers.values())
        self._on_progress(OpenProgress(text, done if whole else None, whole or None))
