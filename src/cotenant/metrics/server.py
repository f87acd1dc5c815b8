"""/metrics over HTTP. It shows names of users and programs: anything but loopback must be asked for."""

from __future__ import annotations

import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from cotenant import listening, units
from cotenant.errors import USAGE, Problem
from cotenant.terminal import printable

DEFAULT = f"{listening.LOOPBACK}:9835"
EXAMPLE = f"HOST:PORT, as {DEFAULT}"
CLIENT_SECONDS = 10  # that a client may take over its request


def address(text: str, is_public: bool) -> listening.Address:
    """Of "HOST:PORT", "[IPv6]:PORT" or "PORT". Raises Problem."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or listening.LOOPBACK
    number = units.whole(port)
    if number is None or number >= 1 << 16:
        raise Problem(f"'{text}' is no address to listen at", EXAMPLE, USAGE)
    warning = "everybody who reaches it sees users, programs and pods"
    return listening.address(host, number, is_public, EXAMPLE, warning)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, listen: str, is_public: bool, registry: CollectorRegistry) -> None:
        self.address_family, where = address(listen, is_public)
        self.registry = registry
        try:
            super().__init__(where[:2], Handler)
        except OSError as error:
            raise listening.cannot_listen(listen, error, DEFAULT) from None

    def server_bind(self) -> None:  # without HTTPServer's look-up of the machine's name
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is no news."""

    @property
    def url(self) -> str:
        host = f"[{self.server_name}]" if ":" in self.server_name else self.server_name
        return f"http://{host}:{self.server_port}/metrics"


class Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "cotenant"
    sys_version = ""
    timeout = CLIENT_SECONDS

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.answer(404, "text/plain; charset=utf-8", b"metrics are at /metrics\n")
            return
        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        try:
            body = encode(self.server.registry)
        except Problem as problem:
            said = f"{printable(problem.message)}\n{printable(problem.hint)}\n"
            self.answer(503, "text/plain; charset=utf-8", said.encode())
            return
        self.answer(200, content_type, body)

    def answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """A scrape every few seconds is no news."""
