"""The outside of a view in a process of its own, in the container of the view or on its host.

    python3 -S -E -s -m NAME_OF_THIS.stage < REQUESTS > ANSWERS

One line of JSON each. Needs nothing beside the standard library, so that it runs wherever there is a Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from .outside import Outside, chosen, unlimited_core

_TIMEOUT_S = 60


def main() -> None:
    # Who leads a session already can take no terminal, as the host of a view may.
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        sys.exit(os.waitstatus_to_exitcode(status) != 0)
    unlimited_core()
    request = _request()
    assert request is not None
    base, names = Path(request["base"]), request["names"]
    base.mkdir()
    outside = Outside(base, request["python"], Path(request["program"]), chosen(names))
    outside.prepare(request["setuid_program"])
    try:
        _answer(
            order=outside.order(names),
            command=outside.command,
            allowed_port=outside.servers["allowed"],
            write_roots=outside.write_roots,
            readable=outside.readable,
        )
        while (request := _request()) is not None:
            if "visit" in request:
                outside.visit(*request["visit"])
                _answer()
            elif "run" in request:
                _answer(text=_run(outside, request["run"]))
            else:
                _answer(results=outside.results(names, request["text"]))
    finally:
        outside.close()


def _request() -> dict[str, Any] | None:
    line = sys.stdin.buffer.readline()
    return dict(json.loads(line)) if line else None


def _answer(**values: Any) -> None:
    sys.stdout.buffer.write(json.dumps(values).encode() + b"\n")
    sys.stdout.buffer.flush()


def _run(outside: Outside, names: list[str]) -> str:
    """Run probes as a child that inherits what its maker has open."""
    return subprocess.run(
        outside.command,
        input=json.dumps(outside.order(names)).encode(),
        stdout=subprocess.PIPE,
        pass_fds=outside.inherited,
        timeout=_TIMEOUT_S,
        check=False,
    ).stdout.decode("utf-8", "replace")


if __name__ == "__main__":
    main()
