"""Runs the probes that its input names, each in a child with an alarm."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
import traceback
from typing import Any

from . import CONTROLS, PROBES
from .table import Probe, Targets, Void

ALARM_S = 6
_STARTED = time.monotonic()


def report(name: str, **values: Any) -> None:
    """One line, in one write, so that lines of children do not mix."""
    seconds = round(time.monotonic() - _STARTED, 3)
    os.write(1, (json.dumps({"probe": name, "at": seconds, **values}) + "\n").encode())


def main() -> None:
    order: dict[str, Any] = json.load(sys.stdin)
    table = {**PROBES, **CONTROLS}
    for name, values in order.items():
        _run(table[name], Targets(**values))


def _run(probe: Probe, targets: Targets) -> None:
    child = os.fork()
    if child == 0:
        try:
            _attempt(probe, targets)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGALRM:
        report(probe.name, outcome="void", reason=f"no answer within {ALARM_S} s")
    elif code != 0:
        report(probe.name, outcome="denied", error=f"ended by {code}")


def _attempt(probe: Probe, targets: Targets) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(ALARM_S)
    try:
        said = probe.attempt(targets)
    except Void as reason:
        report(probe.name, outcome="void", reason=str(reason))
    except OSError as error:
        report(probe.name, outcome="denied", error=errno.errorcode.get(error.errno or 0, str(error)))
    except Exception:  # noqa: BLE001 - whatever went wrong in the probe is the suite's to see
        report(probe.name, outcome="broken", error=traceback.format_exc()[-2000:])
    else:
        report(probe.name, outcome="effect", said=said)
