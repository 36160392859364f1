"""The file system seam over any machine: all semantics of files, written once."""

from execworld.machine.fs.filesystem import MachineFileSystem

__all__ = ["MachineFileSystem"]
