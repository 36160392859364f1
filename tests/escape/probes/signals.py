"""Signals to, and limits and priorities of, processes outside."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import time

from .calls import syscall
from .table import Judge, Targets, Void, probe

_SCOPE = "Landlock from ABI 6; pid namespace"
_LIMIT = "seccomp; pid namespace"
_PLACE = "pid namespace"
F_SETSIG = 10
LEAST_PRIORITY = 19


@probe(33, "ipc.signal", Judge.VICTIM, _SCOPE, sleeper=True)
def kill(t: Targets) -> None:
    """Send a signal."""
    os.kill(t.sleeper, signal.SIGTERM)


@probe(33, "ipc.signal", Judge.VICTIM, _SCOPE, sleeper=True)
def stop(t: Targets) -> None:
    """Stop a process."""
    os.kill(t.sleeper, signal.SIGSTOP)


@probe(33, "ipc.signal", Judge.VICTIM, _SCOPE, sleeper=True)
def kill_group(t: Targets) -> None:
    """Send a signal to a process group."""
    os.killpg(t.sleeper, signal.SIGTERM)


@probe(33, "ipc.signal", Judge.VICTIM, _SCOPE, sleeper=True)
def kill_thread(t: Targets) -> None:
    """Send a signal to a thread (tgkill)."""
    syscall("tgkill", t.sleeper, t.sleeper, signal.SIGTERM)


@probe(33, "ipc.signal", Judge.VICTIM, _SCOPE, sleeper=True)
def queue_signal(t: Targets) -> None:
    """Send a signal with a value (rt_sigqueueinfo)."""
    info = (ctypes.c_int * 32)(int(signal.SIGTERM), 0, -1)
    syscall("rt_sigqueueinfo", t.sleeper, signal.SIGTERM, info)


@probe(33, "ipc.signal", Judge.VICTIM, _SCOPE, sleeper=True)
def signal_by_pidfd(t: Targets) -> None:
    """Send a signal by a process descriptor."""
    signal.pidfd_send_signal(os.pidfd_open(t.sleeper), signal.SIGTERM)


@probe(33, "ipc.signal", Judge.VICTIM, _SCOPE, sleeper=True)
def signal_by_owner(t: Targets) -> None:
    """Have the kernel send a signal, as the owner of a pipe that becomes readable."""
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETOWN, t.sleeper)
    fcntl.fcntl(reading, F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(reading, fcntl.F_SETFL, fcntl.fcntl(reading, fcntl.F_GETFL) | os.O_ASYNC)
    os.write(writing, b"x")


@probe(34, None, Judge.SAID, allowed="the commands of one view may signal each other")
def signal_sibling(t: Targets) -> None:
    """Signal another process of the view."""
    child = os.fork()
    if child == 0:
        time.sleep(5)
        os._exit(0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@probe(36, "ipc.signal", Judge.VICTIM, _LIMIT, sleeper=True)
def limit_cpu_of_victim(t: Targets) -> None:
    """Set the limit of processor time to nothing, which kills, with prlimit64(2)."""
    syscall("prlimit64", t.sleeper, 0, (ctypes.c_uint64 * 2)(0, 0), None)


@probe(36, "ipc.signal", Judge.VICTIM, _LIMIT, sleeper=True)
def limit_files_of_victim(t: Targets) -> None:
    """Set the limit of open files."""
    syscall("prlimit64", t.sleeper, 7, (ctypes.c_uint64 * 2)(3, 3), None)


@probe(37, "proc.visibility", Judge.VICTIM, _PLACE, sleeper=True)
def set_priority_of_victim(t: Targets) -> None:
    """Set the priority."""
    if os.getpriority(os.PRIO_PROCESS, t.sleeper) == LEAST_PRIORITY:
        raise Void("it has the least already")
    os.setpriority(os.PRIO_PROCESS, t.sleeper, LEAST_PRIORITY)


@probe(37, "proc.visibility", Judge.VICTIM, _PLACE, sleeper=True)
def set_scheduler_of_victim(t: Targets) -> None:
    """Set the scheduling policy to idle."""
    os.sched_setscheduler(t.sleeper, os.SCHED_IDLE, os.sched_param(0))


@probe(37, "proc.visibility", Judge.VICTIM, _PLACE, sleeper=True)
def set_affinity_of_victim(t: Targets) -> None:
    """Bind to one processor."""
    os.sched_setaffinity(t.sleeper, {min(os.sched_getaffinity(0))})
