"""What a world needs of whoever can confine: a cell for a policy, whose paths were resolved in the world before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import field, replace
from types import MappingProxyType
from typing import Protocol

from execworld.machine.base import Machine
from execworld.machine.batch import Batch, BatchFailed
from execworld.machine.operations import Check, RealPath, Stat
from execworld.machine.values import CheckStatus, KindMask
from execworld.seams.enforcement import Dimension, Enforcement
from execworld.seams.errors import SandboxReason, SandboxUnavailable
from execworld.seams.paths import decode_path, encode_path, printable_path
from execworld.seams.policy import SandboxPolicy
from execworld.seams.values import record


@record
class PrivateDirectories:
    """Directories that a world made for its cells, each owned by its user and closed to others.

    Attributes:
        temp: For temporary files, shared by all views that may write.
        cache: For caches of tools, likewise.
        scratch: For the targets of probes. No cell may write there.
    """

    temp: bytes
    cache: bytes
    scratch: bytes


@record
class Cell:
    """A second machine in the same place, under a policy.

    Attributes:
        enforcement: What was proven to hold in it.
        environment: What programs are to find set, over what they would inherit.
        not_shared: What it does not share with its world, as in `WorldFacts`.
        explain: Tells how it was made, for people; *describe* the same for programs, as plain JSON values.
        kept: What may not be written although it lies below a root that may: what the host itself runs.
    """

    machine: Machine
    enforcement: Enforcement
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType(dict[str, str]()))
    not_shared: tuple[str, ...] = ()
    explain: Callable[[], str] = lambda: ""
    describe: Callable[[], Mapping[str, object]] = dict
    kept: tuple[bytes, ...] = ()


class Confiner(Protocol):
    """Makes cells for policies."""

    @property
    def enforceable(self) -> frozenset[Dimension]:
        """What could be enforced if a policy asked for it."""
        ...

    def open_cell(
        self, machine: Machine, policy: SandboxPolicy, directories: PrivateDirectories
    ) -> AbstractAsyncContextManager[Cell]:
        """A cell on *machine* for *policy*, whose paths are canonical. Leaving the context ends it.

        Raises:
            SandboxUnavailable: a required dimension cannot be enforced, or was not proven to be. Nothing ran.
        """
        ...


async def resolve_policy(machine: Machine, policy: SandboxPolicy, world: str) -> SandboxPolicy:
    """*policy* with the canonical form of its paths in the world, which must all exist.

    Raises:
        SandboxUnavailable: a path does not exist, or a root is no directory.
    """
    roots = (*filter(None, [policy.workspace]), *policy.read_roots, *policy.write_roots)
    real: dict[str, str] = {}
    for path in (*roots, *policy.hidden):
        if path not in real:
            kinds = KindMask.DIRECTORY if path in roots else KindMask.DIRECTORY | KindMask.FILE
            real[path] = await _canonical(machine, path, kinds, world)
    return replace(
        policy,
        workspace=None if policy.workspace is None else real[policy.workspace],
        read_roots=_replaced(policy.read_roots, real),
        write_roots=_replaced(policy.write_roots, real),
        hidden=_replaced(policy.hidden, real),
    )


def _replaced(paths: tuple[str, ...], real: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(real[path] for path in paths)


async def _canonical(machine: Machine, path: str, kinds: KindMask, world: str) -> str:
    batch = Batch()
    resolved = batch.add(RealPath(encode_path(path)))
    stat = batch.add(Stat(resolved.path, follow=False))
    batch.add(Check(stat.index, kinds))
    try:
        return decode_path((await machine.run(batch))[resolved])
    except BatchFailed as failure:
        wanted = "no directory" if kinds == KindMask.DIRECTORY else "neither a file nor a directory"
        is_other = failure.error.status == CheckStatus.KIND
        raise SandboxUnavailable(
            f"the policy names {printable_path(path)}, which {f'is {wanted}' if is_other else 'cannot be reached'}",
            reason=SandboxReason.ROOT_UNUSABLE,
            op="sandbox.confine",
            world=world,
            hint="make it, or leave it out of the policy",
        ) from failure
