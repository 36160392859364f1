"""Which refusals of the kernel a policy explains, and what of the policy would have to change."""

from __future__ import annotations

import errno
from typing import Final

from execworld.machine.confining import Cell, PrivateDirectories
from execworld.seams.paths import encode_path, printable_path
from execworld.seams.policy import SandboxMode, SandboxPolicy
from execworld.seams.values import record

DENIALS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EXDEV})
"""How kernels say no on behalf of a policy; all of them mean other things as well."""


@record
class PolicyRules:
    """The part of a policy that is about paths, in canonical form.

    Attributes:
        writable: Directories that may be written; None for everything.
        readable: What may be read; None for everything.
        hidden: What may not be read, whatever else is said.
        kept: What may not be written, whatever else is said, because the host runs it.
    """

    mode: SandboxMode
    writable: tuple[bytes, ...] | None
    readable: tuple[bytes, ...] | None
    hidden: tuple[bytes, ...]
    kept: tuple[bytes, ...] = ()

    def may_write(self, path: bytes) -> bool:
        return self.writable is None or (
            _inside_any(self.writable, path) and not _inside_any(self.kept, path)
        )

    def may_read(self, path: bytes) -> bool:
        return not _inside_any(self.hidden, path) and (
            self.readable is None or _inside_any((*self.readable, *(self.writable or ())), path)
        )

    def explain_write(self, path: bytes) -> str:
        """What to change so that *path* may be written; empty when the policy does not forbid it."""
        if not self.may_write(path):
            kept = next((root for root in self.kept if is_inside(root, path)), None)
            if kept is not None:
                return (
                    f"{printable_path(kept)} belongs to the installation of execworld that runs this, and what could "
                    "change it would run unconfined the next time; use another environment"
                )
            if self.mode is SandboxMode.READ_ONLY:
                temp = f" but in {printable_path(self.writable[0])}" if self.writable else ""
                return f"the policy is read-only: nothing may be written under it{temp}"
            roots = ", ".join(printable_path(root) for root in self.writable or ())
            return f"the policy lets write below {roots} only; it would have to name another write root"
        return self.explain_read(path)

    def explain_read(self, path: bytes) -> str:
        """What to change so that *path* may be read; empty when the policy does not forbid it."""
        hidden = next((root for root in self.hidden if is_inside(root, path)), None)
        if hidden is not None:
            return f"the policy hides {printable_path(hidden)}"
        if not self.may_read(path):
            return "the policy has read roots, and this lies below none of them"
        return ""


def rules_of(
    policy: SandboxPolicy, directories: PrivateDirectories | None, cell: Cell | None = None
) -> PolicyRules:
    """The rules of a policy whose paths are canonical; without *directories* and *cell*, of the policy alone."""
    writable: tuple[bytes, ...] | None = None
    if policy.mode is SandboxMode.READ_ONLY:
        has_temp = directories is not None and cell is not None and "TMPDIR" in cell.environment
        writable = (directories.temp,) if directories is not None and has_temp else ()
    elif policy.mode is SandboxMode.WORKSPACE_WRITE:
        named = (*filter(None, [policy.workspace]), *policy.write_roots)
        own = () if directories is None else (directories.temp, directories.cache)
        writable = (*map(encode_path, named), *own)
    readable: tuple[bytes, ...] | None = None
    if policy.read_roots:
        readable = tuple(map(encode_path, (*policy.read_roots, *filter(None, [policy.workspace]))))
    kept = () if cell is None else cell.kept
    return PolicyRules(policy.mode, writable, readable, tuple(map(encode_path, policy.hidden)), kept)


def is_inside(parent: bytes, child: bytes) -> bool:
    """Whether *child* is *parent* or below it; both canonical."""
    return child == parent or child.startswith(parent.rstrip(b"/") + b"/")


def _inside_any(roots: tuple[bytes, ...], path: bytes) -> bool:
    return any(is_inside(root, path) for root in roots)
