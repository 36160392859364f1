"""A registry with one image, as far as an engine that pulls needs one."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import json
import tarfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG: Final = "application/vnd.docker.container.image.v1+json"
_LAYER: Final = "application/vnd.docker.image.rootfs.diff.tar.gzip"


@dataclass
class Registry:
    """What it has.

    Attributes:
        name: Of the image, as the engine is to be told.
        asked: Paths that were asked for.
        held: While not set, no layer is given out.
    """

    name: str = ""
    asked: list[str] = field(default_factory=list[str])
    held: threading.Event = field(default_factory=threading.Event)
    blobs: dict[str, bytes] = field(default_factory=dict[str, bytes])
    manifest: bytes = b""

    def publish(self, content: bytes, architecture: str) -> None:
        """Make the image one with a file of this *content*."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            entry = tarfile.TarInfo("content")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        plain = buffer.getvalue()
        config = json.dumps(
            {
                "architecture": architecture,
                "os": "linux",
                "config": {},
                "rootfs": {"type": "layers", "diff_ids": [_digest(plain)]},
            }
        ).encode()
        layer = gzip.compress(plain, compresslevel=1, mtime=0)
        self.blobs = {_digest(blob): blob for blob in (config, layer)}
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": {"mediaType": _CONFIG, "size": len(config), "digest": _digest(config)},
                "layers": [{"mediaType": _LAYER, "size": len(layer), "digest": _digest(layer)}],
            }
        ).encode()

    def find(self, path: str) -> tuple[str, bytes] | None:
        """Type and content of what is at *path*."""
        if path == "/v2/":
            return "application/json", b"{}"
        if "/manifests/" in path:
            return _MANIFEST, self.manifest
        digest = path.rpartition("/blobs/")[2]
        blob = self.blobs.get(digest)
        if blob is not None and blob.startswith(b"\x1f\x8b"):
            self.held.wait(60)
        return None if blob is None else ("application/octet-stream", blob)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@contextmanager
def serve_registry() -> Generator[Registry]:
    registry = Registry()
    registry.held.set()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            registry.asked.append(self.path)
            found = registry.find(self.path)
            kind, content = found or ("application/json", b"{}")
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            if "/manifests/" in self.path:
                self.send_header("Docker-Content-Digest", _digest(content))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.name = f"127.0.0.1:{server.server_address[1]}/execworld-test:1"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            registry.held.set()
            server.shutdown()
            thread.join()
