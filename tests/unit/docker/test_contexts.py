"""Which engine: what is named, and never another one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from execworld.providers.docker.contexts import EngineAddress, TlsFiles, find_engine
from execworld.seams import ConfigurationError


def make_context(directory: Path, name: str, document: Any, *files: str) -> None:
    digest = hashlib.sha256(name.encode()).hexdigest()
    meta = directory / "contexts" / "meta" / digest
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(document if isinstance(document, str) else json.dumps(document))
    for file in files:
        path = directory / "contexts" / "tls" / digest / "docker" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def endpoint(host: object, **more: object) -> dict[str, object]:
    return {"Name": "x", "Metadata": {}, "Endpoints": {"docker": {"Host": host, **more}}}


def test_without_a_word_it_is_the_socket_of_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the environment says, and whatever context the docker command has chosen."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere.example:1")
    monkeypatch.setenv("DOCKER_CONTEXT", "elsewhere")
    (tmp_path / "config.json").write_text('{"currentContext": "elsewhere"}')
    assert find_engine(directory=tmp_path) == EngineAddress("unix:///var/run/docker.sock")


@pytest.mark.parametrize(
    "url", ["unix:///run/user/1000/docker.sock", "tcp://10.0.0.1:2375", "ssh://me@far:2222"]
)
def test_a_named_address_is_taken_as_it_is(url: str) -> None:
    found = find_engine(host=url, variables={"DOCKER_HOST": "unix:///else"})
    assert (found.url, found.scheme) == (url, url.split(":")[0])


@pytest.mark.parametrize(
    "url", ["/var/run/docker.sock", "unix://", "unix://run/x", "npipe:////./x", "ssh://a\nb"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        find_engine(host=url)


def test_a_password_is_not_shown() -> None:
    assert EngineAddress("ssh://me:secret@far:22").shown == "ssh://me:...@far:22"


def test_a_context_names_its_engine(tmp_path: Path) -> None:
    make_context(tmp_path, "far", endpoint("ssh://me@far"))
    assert find_engine(context="far", directory=tmp_path).url == "ssh://me@far"


def test_a_context_brings_its_certificates(tmp_path: Path) -> None:
    make_context(tmp_path, "far", endpoint("tcp://far:2376"), "ca.pem", "cert.pem", "key.pem")
    tls = find_engine(context="far", directory=tmp_path).tls
    assert tls is not None
    assert [Path(path).name for path in (tls.authority, tls.certificate, tls.key)] == [
        "ca.pem",
        "cert.pem",
        "key.pem",
    ]
    assert tls.verify


def test_a_context_may_leave_verification_out(tmp_path: Path) -> None:
    make_context(tmp_path, "far", endpoint("tcp://far:2376", SkipTLSVerify=True), "ca.pem")
    tls = find_engine(context="far", directory=tmp_path).tls
    assert tls is not None
    assert not tls.verify


def test_the_default_context_is_the_socket_of_this_host(tmp_path: Path) -> None:
    assert find_engine(context="default", directory=tmp_path).url == "unix:///var/run/docker.sock"


@pytest.mark.parametrize("document", ["{", "[]", "{}", endpoint(None), endpoint("gopher://far")])
def test_a_context_that_names_no_engine_is_an_error(tmp_path: Path, document: Any) -> None:
    make_context(tmp_path, "far", document)
    with pytest.raises(ConfigurationError, match="far"):
        find_engine(context="far", directory=tmp_path)


@pytest.mark.parametrize("name", ["missing", "../../etc", "."])
def test_a_context_that_does_not_exist_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="there is no context"):
        find_engine(context=name, directory=tmp_path)


def test_two_names_for_an_engine_are_an_error() -> None:
    with pytest.raises(ConfigurationError):
        find_engine(host="unix:///x", context="far")


def test_the_environment_names_it_when_it_is_asked(tmp_path: Path) -> None:
    make_context(tmp_path, "far", endpoint("ssh://me@far"))
    assert find_engine(variables={"DOCKER_HOST": "tcp://10.0.0.1:2375"}, directory=tmp_path).url == (
        "tcp://10.0.0.1:2375"
    )
    assert find_engine(variables={"DOCKER_CONTEXT": "far"}, directory=tmp_path).url == "ssh://me@far"
    assert find_engine(variables={}, directory=tmp_path).url == "unix:///var/run/docker.sock"
    (tmp_path / "ca.pem").touch()
    variables = {
        "DOCKER_HOST": "tcp://10.0.0.1:2376",
        "DOCKER_TLS_VERIFY": "1",
        "DOCKER_CERT_PATH": str(tmp_path),
    }
    assert find_engine(variables=variables).tls == TlsFiles(authority=str(tmp_path / "ca.pem"))
