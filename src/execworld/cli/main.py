"""Entry point. From its first statement on, a signal ends the program quietly and at once.

Whoever asked for that sees an end by signal, which a shell shows as 130 for Ctrl-C and 143 for TERM. Nothing is open
then that would have to be closed. What opens something takes the signals over before it does (see
`execworld.cli.supervision`).

Earlier than here the interpreter itself is in charge: while Python starts, and while the script that a package
installer wrote imports this module, Ctrl-C is still a ``KeyboardInterrupt`` with its traceback. TERM ends that, too.
"""

TYPE_CHECKING = False  # what `typing` calls so; importing it takes longer than all of this module
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal  # `signal` itself imports a lot in Python, and the first Ctrl-C may come meanwhile


def _die_of_interrupts() -> None:
    """Let Ctrl-C end the program, as TERM does.

    Python would raise KeyboardInterrupt instead, wherever it is: in the middle of an import, and in callbacks of the
    interpreter that cannot pass it on and print it. A signal that is ignored stays ignored (nohup).
    """
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


_die_of_interrupts()

import gc  # noqa: E402 - after the line above, because each import is a moment at which a signal may come
import sys  # noqa: E402 - as the line above

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
        from execworld.cli.program import run_program

        code = run_program(sys.argv[1:] if arguments is None else arguments)
        _die_of_interrupts()
    except KeyboardInterrupt:
        code = 130
    gc.freeze()
    sys.exit(code)
