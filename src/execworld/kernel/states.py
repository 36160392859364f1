"""The states of a fiber."""

from __future__ import annotations

from enum import StrEnum


class FiberState(StrEnum):
    """Where a fiber is in its life.

    PENDING waits for a service, LOADING runs the start of the plugin, UNLOADING undoes what it did. FAILED has undone
    everything and keeps the error, until a service or the configuration changes.
    """

    PENDING = "PENDING"
    LOADING = "LOADING"
    ACTIVE = "ACTIVE"
    UNLOADING = "UNLOADING"
    FAILED = "FAILED"
    DISPOSED = "DISPOSED"
