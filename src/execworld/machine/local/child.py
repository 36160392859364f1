"""Last steps of a child before execve(2) that ``subprocess`` cannot do: controlling terminal, limits, ids.

Run as a script by ``processes.py`` with ``python -I -S -E`` and two descriptor numbers: one to read the specification
from, one to report a failure on. The second is close-on-exec, so its silent end means that the program is running.
Arguments and environment come over the pipe because this interpreter must not act on them. Imports only builtin and
extension modules, to start fast.
"""

import errno
import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal  # the extension module alone: `signal` imports enum, which costs milliseconds

_SETUP, _DIRECTORY, _EXEC = 0, 1, 2


def _main(spec_fd: int, status_fd: int) -> None:
    stage = _SETUP
    try:
        with os.fdopen(spec_fd, "rb") as stream:
            spec = marshal.loads(stream.read())  # noqa: S302 - written by our parent, over a pipe of its own
        os.set_inheritable(status_fd, False)
        _reset_signals()
        if spec["terminal"]:
            import fcntl
            import termios

            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        for number, soft, hard in spec["limits"]:
            import resource

            resource.setrlimit(number, (soft, hard))
        if spec["umask"] is not None:
            os.umask(spec["umask"])
        if spec["groups"] is not None:
            os.setgroups(spec["groups"])
        if spec["gid"] is not None:
            os.setgid(spec["gid"])
        if spec["uid"] is not None:
            os.setuid(spec["uid"])
        stage = _DIRECTORY
        os.chdir(spec["cwd"])
        stage = _EXEC
        os.execve(spec["path"], spec["argv"], spec["environment"])
    except OSError as error:
        os.write(status_fd, bytes((stage,)) + (error.errno or errno.EIO).to_bytes(4, "little"))
    except ValueError:
        os.write(status_fd, bytes((stage,)) + errno.EINVAL.to_bytes(4, "little"))
    os._exit(127)


def _reset_signals() -> None:
    """Nothing ignored, nothing blocked. This interpreter itself ignores SIGPIPE from its start on."""
    for number in _signal.valid_signals():
        if number not in (_signal.SIGKILL, _signal.SIGSTOP):
            _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]))
