"""Which engine: an address that was named, a context of the docker command, or the socket of this host."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from execworld.seams.errors import ConfigurationError

DEFAULT_ADDRESS: Final = "unix:///var/run/docker.sock"
_SCHEMES: Final = ("unix", "tcp", "ssh")
_DEFAULT_CONTEXT: Final = "default"
_CONTEXTS_HINT: Final = "`docker context ls` lists those that there are"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the certificates for an engine on TCP lie.

    Attributes:
        authority: That must have signed the certificate of the engine; empty for those that the system trusts.
        certificate: Of this side, with *key*; both empty for none.
        verify: Whether the engine has to prove who it is.
    """

    authority: str = ""
    certificate: str = ""
    key: str = ""
    verify: bool = True


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Where an engine listens.

    Attributes:
        url: ``unix:///path``, ``tcp://host:port`` or ``ssh://user@host:port``.
        tls: How a TCP address is secured; None for not at all.
        source: What named it, for messages.
    """

    url: str
    tls: TlsFiles | None = None
    source: str = "the default"

    @property
    def scheme(self) -> str:
        return self.url.partition("://")[0]

    @property
    def shown(self) -> str:
        """The address without a password."""
        parts = urlsplit(self.url)
        if parts.password is None:
            return self.url
        return self.url.replace(f":{parts.password}@", ":...@", 1)


def find_engine(
    *,
    host: str = "",
    context: str = "",
    variables: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> EngineAddress:
    """The engine that the options name.

    Args:
        host: An address, which is then the answer.
        context: Name of a context of the docker command.
        variables: What stands for it in the environment; None when that is not to be asked.
        directory: Where the docker command keeps its contexts.

    Raises:
        ConfigurationError: an address has no form that is known, or there is no such context.
    """
    if host and context:
        raise ConfigurationError("`host` and `context` both name an engine", hint="give one of the two")
    given = variables or {}
    if host:
        return _checked(EngineAddress(host, source="the option `host`"))
    where = directory or Path(given.get("DOCKER_CONFIG") or Path.home() / ".docker")
    if context:
        return _of_context(context, where, f"context `{context}`")
    if named := given.get("DOCKER_HOST"):
        return _checked(EngineAddress(named, _tls_of_variables(given, where), "DOCKER_HOST"))
    if named := given.get("DOCKER_CONTEXT"):
        return _of_context(named, where, f"DOCKER_CONTEXT={named}")
    return EngineAddress(DEFAULT_ADDRESS)


def engine_variables() -> Mapping[str, str]:
    """What the environment of this process says of engines. An empty value counts as none."""
    names = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")
    return {name: value for name in names if (value := os.environ.get(name))}


def _checked(address: EngineAddress) -> EngineAddress:
    scheme, separator, rest = address.url.partition("://")
    if not separator or scheme not in _SCHEMES or not rest or not address.url.isprintable():
        raise ConfigurationError(
            f"{address.source} names no address of an engine",
            hint="write it as unix:///path, tcp://host:port or ssh://user@host:port",
        )
    if scheme == "unix" and not rest.startswith("/"):
        raise ConfigurationError(f"{address.source}: the path of the socket is not absolute: {address.url}")
    return address


def _tls_of_variables(given: Mapping[str, str], directory: Path) -> TlsFiles | None:
    verify = "DOCKER_TLS_VERIFY" in given
    place = given.get("DOCKER_CERT_PATH")
    if not verify and place is None:
        return None
    return _tls_in(Path(place) if place else directory, verify=verify)


def _of_context(name: str, directory: Path, source: str) -> EngineAddress:
    if name == _DEFAULT_CONTEXT:
        return EngineAddress(DEFAULT_ADDRESS, source=source)
    # The docker command keeps each context below the digest of its name.
    digest = hashlib.sha256(name.encode()).hexdigest()
    path = directory / "contexts" / "meta" / digest / "meta.json"
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigurationError(f"there is no {source}", hint=_CONTEXTS_HINT) from error
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{source} cannot be read: {path}: {error}", hint=_CONTEXTS_HINT) from error
    endpoint = _mapping(_mapping(_mapping(document).get("Endpoints")).get("docker"))
    url = endpoint.get("Host")
    if not isinstance(url, str):
        raise ConfigurationError(f"{source} names no engine", hint=_CONTEXTS_HINT)
    tls_directory = directory / "contexts" / "tls" / digest / "docker"
    tls = _tls_in(tls_directory, verify=endpoint.get("SkipTLSVerify") is not True)
    return _checked(EngineAddress(url, tls if tls_directory.is_dir() else None, source))


def _tls_in(directory: Path, *, verify: bool) -> TlsFiles:
    def path(name: str) -> str:
        return str(directory / name) if (directory / name).is_file() else ""

    return TlsFiles(path("ca.pem"), path("cert.pem"), path("key.pem"), verify)


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}
