"""`WardenMachine`: the waist's operations executed by a warden at the far end of a byte stream.

`src/warden/protocol.md` says what travels; section numbers in this package refer to it.
"""

from execworld.machine.warden.cells import open_cell_machine
from execworld.machine.warden.facts import LinkSettings, WardenFacts
from execworld.machine.warden.local import LocalWardenTransport, start_local_warden
from execworld.machine.warden.locating import locate_warden
from execworld.machine.warden.machine import WardenMachine
from execworld.machine.warden.opening import open_warden_machine
from execworld.machine.warden.transport import (
    DirectTransport,
    FarSideGone,
    LinkEnd,
    Transport,
    TransportBroken,
)

__all__ = [
    "DirectTransport",
    "FarSideGone",
    "LinkEnd",
    "LinkSettings",
    "LocalWardenTransport",
    "Transport",
    "TransportBroken",
    "WardenFacts",
    "WardenMachine",
    "locate_warden",
    "open_cell_machine",
    "open_warden_machine",
    "start_local_warden",
]
