"""What the engine, its SDK and the way to it can fail with, as coded errors with a hint."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from typing import Final, cast

from execworld.providers.docker.contexts import EngineAddress
from execworld.seams.errors import CleanupIncomplete, WorldUnavailable

_SHOWN_CHARACTERS: Final = 500
_NAME_ENGINE: Final = "start the engine, or name another one by the option `host` or `context`"


class EngineUnreachable(WorldUnavailable):
    """The engine did not answer. Whether it did what was asked is not known."""


class EngineRefused(WorldUnavailable):
    """The engine answered that it will not, or could not.

    Attributes:
        status: Of its reply over HTTP.
        explanation: What it said, bounded.
    """

    def __init__(self, message: str, *, status: int, explanation: str, hint: str = "") -> None:
        super().__init__(message, op="world.open", hint=hint)
        self.status = status
        self.explanation = explanation

    @property
    def is_missing(self) -> bool:
        return self.status == 404


# What the engine says, in its versions, and what the reader can do about it.
_HINTS: Final = (
    (
        r"no space left on device|disk quota exceeded",
        "its disk is full: `docker system df` shows what takes it",
    ),
    (r"no such image|unable to find image", "pull or build the image, or let the option `pull` do it"),
    (
        r"pull access denied|requested access to the resource is denied|unauthorized|authentication required",
        "the registry wants a login (`docker login`), or there is no such image",
    ),
    (
        r"manifest (?:for \S+ )?(?:unknown|not found)|not found: manifest",
        "the registry has no such tag",
    ),
    (
        r"no matching manifest|does not match the specified platform|exec format error|image operating system",
        "the image is for another platform; the option `platform` chooses one of those that it has",
    ),
    (
        r"lookup \S+.*(?:no such host|server misbehaving)|dial tcp|tls: |i/o timeout|connection refused",
        "the engine cannot reach the registry; `docker load` brings an image, and `pull` set to never uses that",
    ),
    (
        r"unable to find user|no matching entries in passwd|unable to find group",
        "the image has no such user; a number is taken as it is",
    ),
    (r"unknown or invalid runtime|unknown runtime|runtime .* not found", "`docker info` lists the runtimes"),
    (r"port is already allocated|address already in use", "choose another port of the host"),
    (r"network \S+ not found|could not find network", "`docker network ls` lists the networks"),
    (
        r"bind source path does not exist|bind mount.*(?:no such file|not exist)",
        "the source of a bind mount is a path of the engine's host",
    ),
    (r"unknown capability", "capabilities(7) lists them; ALL stands for all"),
    (r"seccomp", "the option `seccomp` set to `engine` takes the engine's own profile"),
    (
        r"client version .* is too (?:old|new)",
        "this engine needs another version of the Python package `docker`",
    ),
    (r"is paused", "`docker unpause` lets it go on"),
    (r"is not running", "`docker start` starts it"),
)


def coded(error: Exception, what: str, address: EngineAddress) -> WorldUnavailable | None:
    """*error* as a coded one; None when it comes neither from the SDK nor from the way to the engine.

    Args:
        what: What was being done, as in "making the container".
        address: Of the engine.
    """
    from docker.errors import APIError, DockerException
    from paramiko import SSHException
    from requests import RequestException

    if isinstance(error, APIError):
        return _refused(error.status_code or 0, str(error.explanation or error), what)
    if not isinstance(error, DockerException | RequestException | SSHException | OSError | EOFError):
        return None
    return _unreachable(error, what, address)


def refused(status: int, explanation: str, what: str) -> EngineRefused:
    """The engine said no to *what*."""
    return _refused(status, explanation, what)


def _refused(status: int, explanation: str, what: str) -> EngineRefused:
    said = shortened(explanation)
    return EngineRefused(
        f"the engine refused {what}: {said}", status=status, explanation=said, hint=_hint_for(said)
    )


def _unreachable(error: Exception, what: str, address: EngineAddress) -> EngineUnreachable:
    reason, hint = _reason(error, address)
    return EngineUnreachable(
        f"the engine at {address.shown} ({address.source}) did not answer while {what}: {reason}",
        op="world.open",
        hint=hint,
    )


def _reason(error: Exception, address: EngineAddress) -> tuple[str, str]:
    from paramiko import AuthenticationException, BadHostKeyException, SSHException
    from requests import Timeout

    for cause in _causes(error):
        nothing_to_show = isinstance(cause, SSHException) and "No authentication methods" in str(cause)
        if nothing_to_show or isinstance(cause, AuthenticationException):
            return (
                "the SSH server refused to let this user in",
                "an SSH agent or a key file must hold the key",
            )
        if isinstance(cause, BadHostKeyException):
            return "the SSH server has another key than it is known by", "find out why before you go on"
        if isinstance(cause, SSHException) and "known_hosts" in str(cause):
            return "the SSH server is not known", "connect to it once with `ssh`, and check its key"
    for cause in _causes(error):
        if isinstance(cause, Timeout | TimeoutError):
            return (
                "it said nothing in time",
                "it is stuck or overloaded; the option `engine_timeout_s` waits longer",
            )
        number = getattr(cause, "errno", None)
        if number in (errno.EACCES, errno.EPERM):
            return (
                f"this user may not use {address.shown}",
                "join the group that owns the socket, or run a rootless engine and name its socket",
            )
        if number == errno.ENOENT and address.scheme == "unix":
            return "there is no such socket", _NAME_ENGINE
        if number == errno.ECONNREFUSED:
            return "nobody listens there", _NAME_ENGINE
        if number in (errno.EHOSTUNREACH, errno.ENETUNREACH) or type(cause).__name__ == "gaierror":
            return "the host cannot be reached", _NAME_ENGINE
    said = shortened(str(error))
    return said or type(error).__name__, _hint_for(said) or _NAME_ENGINE


def _causes(error: BaseException) -> Iterator[BaseException]:
    """*error*, and all that it came from: as its cause, its context, or wrapped in its arguments."""
    seen: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        inner = (found.__cause__, found.__context__, getattr(found, "reason", None), *found.args)
        waiting += [item for item in inner if isinstance(item, BaseException)]


def _hint_for(said: str) -> str:
    for pattern, hint in _HINTS:
        if re.search(pattern, said, re.IGNORECASE):
            return hint
    return ""


def shortened(text: str) -> str:
    """One line of bounded length that a terminal shows as it is."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}..."


def as_incomplete(error: BaseException) -> CleanupIncomplete | None:
    """*error*, or what is alone in the groups that task groups made around it."""
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        if len(group.exceptions) != 1:
            return None
        error = group.exceptions[0]
    return error if isinstance(error, CleanupIncomplete) else None
