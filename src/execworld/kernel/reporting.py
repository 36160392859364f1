"""Errors that no caller waits for: they are reported, and what goes on goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from execworld.seams.values import value_class

_LOGGER = logging.getLogger("execworld.kernel")


@value_class
class ErrorReport:
    """One error in a plugin that had nobody to be raised to.

    Attributes:
        plugin: Name of the plugin whose code raised it.
        during: What it was doing, for people.
        error: What it raised.
    """

    plugin: str
    during: str
    error: Exception


OnError: TypeAlias = Callable[[ErrorReport], None]


def log_error(report: ErrorReport) -> None:
    """What is done with a report if nothing else is asked for."""
    _LOGGER.error("plugin `%s`, %s: %s", report.plugin, report.during, report.error, exc_info=report.error)
