"""The directory that work happens in: it exists, and what is written there belongs to whom it should."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any, Final

from execworld.machine.base import Machine
from execworld.machine.batch import Batch, BatchFailed
from execworld.machine.operations import Stat
from execworld.providers.docker.engine import Engine, archive_of
from execworld.providers.docker.failures import EngineRefused
from execworld.seams.errors import SandboxReason, SandboxUnavailable
from execworld.seams.paths import encode_path, printable_path
from execworld.seams.policy import SandboxPolicy

_ROOTLESS: Final = "name=rootless"


def calling_user(info: Mapping[str, Any]) -> str:
    """The user of the container whose files belong, on the host, to the user of this process.

    Under a rootless engine, as its *info* tells, that is root, who has no
    more rights there than the user of the engine.
    """
    options = info.get("SecurityOptions") or ()
    return "0:0" if any(_ROOTLESS in option for option in options) else f"{os.getuid()}:{os.getgid()}"


async def ensure_workspace(engine: Engine, container: str, machine: Machine, policy: SandboxPolicy) -> None:
    """Make the workspace of *policy* where the image has none, for the user of the container. Nothing runs yet.

    Raises:
        SandboxUnavailable: it cannot be made there.
    """
    path = policy.workspace
    if path is None or await _exists(machine, path):
        return
    facts = machine.facts
    refusal = ""
    try:
        await engine.put(
            container, archive_of((path, None, 0o755, facts.uid, facts.gid)), what="making the workspace"
        )
    except EngineRefused as refused:
        refusal = f": {refused.explanation}"
    # The engine says that it is done even where a mount covers the place.
    if not await _exists(machine, path):
        raise SandboxUnavailable(
            f"the workspace {printable_path(path)} is not there and cannot be made{refusal}",
            reason=SandboxReason.ROOT_UNUSABLE,
            op="world.open",
            hint="mount a volume or a tmpfs there, or name a directory of the image",
        )


async def _exists(machine: Machine, path: str) -> bool:
    batch = Batch()
    batch.add(Stat(encode_path(path)))
    try:
        await machine.run(batch)
    except BatchFailed as failure:
        # Anything else is for whoever resolves the policy to say.
        return failure.error.status != errno.ENOENT
    return True
