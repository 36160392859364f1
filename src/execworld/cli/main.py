"""Entry point."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

_GENERATION_SIZES: Final = (100_000, 50, 50)
_INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and exit.

    Collecting garbage while modules are imported, and once more when all of it is thrown away at the end, finds nothing
    and takes a fifth of a short run.
    """
    gc.set_threshold(*_GENERATION_SIZES)
    try:
        from execworld.cli.program import run_program

        code = run_program(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        code = _INTERRUPTED  # before anything was begun: later it is a signal that is waited for
    gc.freeze()
    sys.exit(code)
