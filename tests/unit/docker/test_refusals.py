"""What the provider cannot do is refused before an engine is asked for anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from execworld.seams import ConfigurationError, Unsupported
from execworld.world import open_world

NOWHERE = "unix:///no/such.sock"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"container": "name", "memory_bytes": 1 << 30}, "memory_bytes"),
        ({"container": "name", "network": "none", "read_only": True}, "`network`, `read_only`"),
        ({"container": "name", "start_entrypoint": True}, "start_entrypoint"),
        ({"container": "name", "keep": True}, "keep"),
        ({"container": "name", "pull": "always"}, "pull"),
        ({"build": "/nowhere", "pull": "never"}, "pulls the base"),
    ],
    ids=str,
)
async def test_an_option_is_refused_rather_than_ignored(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        async with open_world("docker", host=NOWHERE, **options):
            pass


@pytest.mark.anyio
async def test_an_engine_behind_tls_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    with pytest.raises(Unsupported, match="TLS") as caught:
        async with open_world("docker://x", from_environment=True):
            pass
    assert "ssh://" in caught.value.hint
