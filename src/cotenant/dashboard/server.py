"""The socket, and uvicorn on it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType

import uvicorn

from cotenant import listening
from cotenant.dashboard.access import Access
from cotenant.dashboard.app import Dashboard
from cotenant.dashboard.feed import Feed

EXAMPLE = f"--host {listening.LOOPBACK}"
WARNING = "what is sent, the token too, is not encrypted; `ssh -L` is the safer way"
IDLE_SECONDS = 10  # that a connection may be without a request
CLOSING_SECONDS = 2
MOST_CONNECTIONS = 256


def listen(host: str, port: int, is_public: bool) -> socket.socket:
    """Raises Problem."""
    family, where = listening.address(host, port, is_public, EXAMPLE, WARNING)
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
        made.listen(128)
    except OSError as error:
        made.close()
        raise listening.cannot_listen(f"{host}:{port}", error, EXAMPLE) from None
    return made


class Server(uvicorn.Server):
    """Ends the streams of frames when it ends: they would go on as long as somebody watches."""

    def __init__(
        self,
        path: Path,
        listener: socket.socket,
        interval_seconds: float,
        readonly: bool,
        names: Iterable[str] = (),
    ) -> None:
        self.listener = listener
        number, port = listener.getsockname()[:2]
        self.port = int(port)
        self.host = shown(number)
        self.feed = Feed(path, interval_seconds)
        self.access = Access(Dashboard(self.feed, readonly).app(), self.port, (self.host, *names))
        super().__init__(
            uvicorn.Config(
                self.access,
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                lifespan="on",
                timeout_keep_alive=IDLE_SECONDS,
                timeout_graceful_shutdown=CLOSING_SECONDS,
                limit_concurrency=MOST_CONNECTIONS,
            )
        )

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/?token={self.access.token}"

    def serve_forever(self, when_up: Callable[[], None] = lambda: None) -> None:
        """From `when_up` on a Ctrl-C ends it in order; before, one could be lost."""
        self._when_up = when_up
        self.run(sockets=[self.listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._when_up()

    def ask_to_end(self) -> None:
        """From any thread."""
        self.feed.end_soon()
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.feed.end_soon()
        super().handle_exit(sig, frame)


def shown(number: str) -> str:
    """As it stands in an address. One that stands for all of the machine's is no address to open."""
    if ipaddress.ip_address(number.partition("%")[0]).is_unspecified:
        return socket.gethostname()
    return f"[{number}]" if ":" in number else number
