"""The environment that commands get: an allow-list of what the machine has, then the caller's values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from execworld.seams.errors import CommandInvalid, ConfigurationError

_ALLOWED_NAMES: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM"),
        *("TMPDIR", "TMP", "TEMP"),
        *("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR"),
        *("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
    }
)
_ALLOWED_PREFIXES: Final = ("LC_",)
_CREDENTIAL_SHAPED: Final = re.compile(
    r"key|passw|passphrase|passcode|secret|token|credential|auth|private|signature|cookie|session|bearer",
    re.IGNORECASE,
)
_PROXY_NAME: Final = re.compile(r".*_proxy", re.IGNORECASE)

SCREENLESS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "TERM": "dumb",
        "NO_COLOR": "1",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "MANPAGER": "cat",
        "SYSTEMD_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
    }
)
"""What a shell command gets to know: there is no screen, nobody pages and nobody answers a prompt."""

SHELL_STARTUP_NAMES: Final = ("BASH_ENV", "ENV", "PROMPT_COMMAND", "SHELLOPTS", "BASHOPTS")
"""Variables by which a shell would run something of its own before the command."""


def base_environment(
    inherited: Iterable[tuple[bytes, bytes]], passed_through: Iterable[str] = ()
) -> Mapping[bytes, bytes]:
    """What commands start from.

    A name passes when it is on the allow-list and does not look like a credential, or when *passed_through* names it
    exactly. A proxy URL that carries a user name or password does not pass by itself.

    Raises:
        ConfigurationError: a name to pass through is no valid name.
    """
    named = frozenset(_checked_name(name, ConfigurationError) for name in passed_through)
    return MappingProxyType(
        {name: value for name, value in inherited if name in named or _passes_by_itself(name, value)}
    )


def command_environment(
    base: Mapping[bytes, bytes], overrides: Mapping[str, str | None] | None
) -> tuple[tuple[bytes, bytes], ...]:
    """*base* with *overrides* on top; None removes a name.

    Raises:
        CommandInvalid: a name is empty or holds ``=`` or NUL, or a value holds NUL.
    """
    if not overrides:
        return tuple(base.items())
    merged = dict(base)
    for name, value in overrides.items():
        encoded = _checked_name(name, CommandInvalid)
        if value is None:
            merged.pop(encoded, None)
        elif "\0" in value:
            raise CommandInvalid(f"the value of environment variable {name} holds a NUL byte")
        else:
            try:
                merged[encoded] = value.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError:
                # Without a cause: it would show the value, which may be a secret.
                message = (
                    f"the value of environment variable {name} holds a surrogate that stands for no byte"
                )
                raise CommandInvalid(message) from None
    return tuple(merged.items())


def _checked_name(name: str, error: type[CommandInvalid] | type[ConfigurationError]) -> bytes:
    if not name or "=" in name or "\0" in name:
        raise error(f"not a name for an environment variable: {name!r}")
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as unencodable:
        raise error(f"not a name for an environment variable: {name!r}") from unencodable


def _passes_by_itself(name: bytes, value: bytes) -> bool:
    text = name.decode("utf-8", "replace")
    if text not in _ALLOWED_NAMES and not text.startswith(_ALLOWED_PREFIXES):
        return False
    if _CREDENTIAL_SHAPED.search(text):
        return False
    return not (_PROXY_NAME.fullmatch(text) and b"@" in value)
