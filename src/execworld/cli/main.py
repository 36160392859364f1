"""Entry point. Imports nothing that takes time, so that a signal finds its place from the first moment on."""

import gc
import sys

TYPE_CHECKING = False  # what `typing` calls so; importing it takes longer than all of this module
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn


def main(arguments: "Sequence[str] | None" = None) -> "NoReturn":
    """Run the program and exit.

    Collecting garbage while modules are imported, and once more when all of it is thrown away at the end, finds nothing
    and takes a fifth of a short run.
    """
    gc.set_threshold(100_000, 50, 50)
    try:
        _die_of_interrupts()
        from execworld.cli.program import run_program

        code = run_program(sys.argv[1:] if arguments is None else arguments)
        _die_of_interrupts()
    except KeyboardInterrupt:
        code = 130
    gc.freeze()
    sys.exit(code)


def _die_of_interrupts() -> None:
    """Let Ctrl-C end the program at once, as TERM does, while nothing is open that would have to be closed.

    Python would raise KeyboardInterrupt instead, wherever it is: in the middle of an import, and in callbacks of the
    interpreter that cannot pass it on and print it. Whatever opens something takes the signals over before that (see
    `execworld.cli.supervision`). One that is ignored stays ignored (nohup).
    """
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
