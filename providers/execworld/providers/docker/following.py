"""An answer of the engine that comes bit by bit, and that can be broken off: the engine then ends what it does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """One that has begun.

    Attributes:
        response: Of the SDK's session; it holds the connection.
        events: What comes.
    """

    response: Any
    events: Iterator[Mapping[str, Any]]


class Followed:
    """Read in a thread, and stopped from anywhere else."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._response: Any = None
        self._stopped = False

    @contextmanager
    def begin(self, answer: Answer) -> Generator[Iterator[Mapping[str, Any]]]:
        with self._lock:
            self._response = answer.response
            if self._stopped:
                _break_off(answer.response)
        try:
            yield answer.events
        finally:
            with self._lock:
                self._response = None
            answer.response.close()

    def stop(self) -> None:
        """Whoever reads meets an end. Harmless when it is over."""
        with self._lock:
            self._stopped = True
            if self._response is not None:
                _break_off(self._response)


def _break_off(response: Any) -> None:
    # Closing it would wait for whoever reads, so the connection below is ended. The SDK offers no way for that.
    with suppress(OSError, AttributeError):  # all of it has come, and there is no connection any more
        reader = response.raw._fp.fp
        if hasattr(reader, "channel"):  # of SSH
            reader.channel.close()
        else:
            reader.raw._sock.shutdown(socket.SHUT_RDWR)
