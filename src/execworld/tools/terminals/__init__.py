"""Programs on terminals that an agent can read and type to.

Importing this brings no terminal emulator; the first terminal that is opened does.
"""

from execworld.tools.terminals.persistent import PersistentResult, PersistentShell
from execworld.tools.terminals.readiness import Timing, WaitReason
from execworld.tools.terminals.service import TERMINALS, TerminalService, open_terminals
from execworld.tools.terminals.values import SendResult, TerminalInfo, TerminalStatus, Viewport

__all__ = [
    "TERMINALS",
    "PersistentResult",
    "PersistentShell",
    "SendResult",
    "TerminalInfo",
    "TerminalService",
    "TerminalStatus",
    "Timing",
    "Viewport",
    "WaitReason",
    "open_terminals",
]
