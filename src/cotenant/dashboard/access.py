"""Who may ask the dashboard anything.

The command prints an address with a random token, and whoever opens it gets a cookie. Every request must have the
cookie (or the token, at `/`), and beside it:

    Host      an IP address or a name of this machine's own: a page elsewhere whose name was made to mean 127.0.0.1 (DNS
              rebinding) has that name
    Origin    the dashboard itself, where it is given; it must be given with what changes anything (CSRF)

SameSite=Strict is not enough: a page that another user serves on this machine, at another port, is of the same site.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Iterable
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE_METHODS = ("GET", "HEAD")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
HOW_TO_GET_IN = (
    "This page needs its token: open the address that `cotenant dashboard` printed when it started.\n"
)


class Access:
    """Around all of the application: nothing inside is asked without the token."""

    def __init__(self, app: ASGIApp, port: int, names: Iterable[str] = ()) -> None:
        self.app = app
        self.token = secrets.token_urlsafe(32)
        self.session = secrets.token_urlsafe(32)
        # Cookies do not know ports: those of two dashboards on one machine have different names.
        self.cookie = f"cotenant-{port}"
        self.names = {name.lower() for name in ("localhost", *names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return

        is_new = False

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if is_new:
                    headers.append("Set-Cookie", self.set_cookie())
            await send(message)

        refusal = self.refusal(scope)
        if refusal is None:
            is_new = self.has_token(scope)
            await self.app(scope, receive, send_guarded)
        else:
            await refusal(scope, receive, send_guarded)

    def refusal(self, scope: Scope) -> Response | None:
        if scope["type"] != "http":
            return PlainTextResponse("HTTP only\n", 400)
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not (is_address(name := name_of(hosts[0])) or name in self.names):
            return PlainTextResponse("Ask for this page by the address that it was started with.\n", 421)
        origins = headers.getlist("origin")
        is_safe = scope["method"] in SAFE_METHODS
        if any(origin != f"http://{hosts[0]}" for origin in origins) or (not is_safe and not origins):
            return PlainTextResponse("Only the dashboard's own page may ask that.\n", 403)
        if not self.has_session(headers) and not self.has_token(scope):
            return PlainTextResponse(HOW_TO_GET_IN, 401)
        return None

    def has_token(self, scope: Scope) -> bool:
        """Only the page itself takes it."""
        if scope["path"] != "/" or scope["method"] not in SAFE_METHODS:
            return False
        try:
            given = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=8).get("token", [])
        except ValueError:
            return False
        return len(given) == 1 and same(given[0], self.token)

    def has_session(self, headers: Headers) -> bool:
        for line in headers.getlist("cookie"):
            for part in line.split(";"):
                name, _, value = part.strip().partition("=")
                if name == self.cookie and same(value, self.session):
                    return True
        return False

    def set_cookie(self) -> str:
        return f"{self.cookie}={self.session}; HttpOnly; SameSite=Strict; Path=/"


def same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(errors="surrogatepass"), secret.encode())


def name_of(host: str) -> str:
    """Without the port: behind `ssh -L` that is another."""
    name, separator, port = host.lower().rpartition(":")
    return name if separator and port.isdigit() and not host.endswith("]") else host.lower()


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name[1:-1] if name[:1] + name[-1:] == "[]" else name)
    except ValueError:
        return False
    return True
