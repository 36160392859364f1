"""Execution worlds for scripts and notebooks: the same seams, each call blocking until it is done."""

from execworld.sync.filesystem import SyncFileSystem
from execworld.sync.process import SyncProcess, SyncReceiveStream, SyncSendStream
from execworld.sync.shell import SyncShell
from execworld.sync.subprocess import SyncOutputCallback, SyncSubprocess
from execworld.sync.terminal import SyncTerminal
from execworld.sync.world import SyncSandbox, SyncWorld, open_world

__all__ = [
    "SyncFileSystem",
    "SyncOutputCallback",
    "SyncProcess",
    "SyncReceiveStream",
    "SyncSandbox",
    "SyncSendStream",
    "SyncShell",
    "SyncSubprocess",
    "SyncTerminal",
    "SyncWorld",
    "open_world",
]
