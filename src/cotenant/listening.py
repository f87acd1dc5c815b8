"""Where a command's own server listens. What it serves shows names of users and programs: anything but loopback must be
asked for."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Any

from cotenant.errors import USAGE, Problem

LOOPBACK = "127.0.0.1"

Address = tuple[socket.AddressFamily, tuple[Any, ...]]


def address(host: str, port: int, is_public: bool, example: str, warning: str) -> Address:
    """As the socket module has it. `warning`: what --public gives to everybody who reaches it. Raises Problem."""
    try:
        family, _, _, _, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise Problem(f"no address is known for '{host}'", example, USAGE) from None
    if not is_public and not is_loopback(str(found[0])):
        hint = f"--public allows it: {warning}; or {example}"
        raise Problem(f"{host} is not a loopback address", hint, USAGE)
    return family, found


def is_loopback(number: str) -> bool:
    return ipaddress.ip_address(number.partition("%")[0]).is_loopback


def cannot_listen(where: str, error: OSError, example: str) -> Problem:
    return Problem(f"cannot listen at {where}: {error.strerror}", remedy(error, example))


def remedy(error: OSError, example: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program listens there: choose another port, or 0 for any free one"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "ports below 1024 are root's: choose a higher one"
    return f"choose an address of this machine, as {example}"
