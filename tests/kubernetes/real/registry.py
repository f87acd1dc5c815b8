"""A registry that has one image under every name and tag: whoever names an image in a manifest gets that one."""

from __future__ import annotations

import contextlib
import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def serving(archive: Path) -> Iterator[str]:
    """The address of a registry with the image of this OCI archive."""
    with tarfile.open(archive) as tar:
        content = {
            entry.name.rpartition("/")[2]: file.read()
            for entry in tar
            if (file := tar.extractfile(entry)) is not None
        }
    [manifest, *_] = json.loads(content["index.json"])["manifests"]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path, _, _ = self.path.partition("?")
            kind, _, word = path.rpartition("/")
            is_manifest = kind.endswith("/manifests")
            digest = manifest["digest"] if is_manifest else word
            body = b"{}" if path == "/v2/" else content.get(digest.removeprefix("sha256:"))
            self.send_response(404 if body is None else 200)
            media = manifest["mediaType"] if is_manifest else "application/octet-stream"
            self.send_header("Content-Type", media)
            self.send_header("Docker-Content-Digest", digest)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body or b"")

        do_HEAD = do_GET

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
