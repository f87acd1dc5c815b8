"""Ports for programs that cannot choose one themselves and say which."""

from __future__ import annotations

import random
import socket
from pathlib import Path

LOWEST, HIGHEST = 10_000, 32_768
_given: set[int] = set()


def free_port() -> int:
    """None that the kernel gives to a connection meanwhile: those are of another range."""
    while True:
        port = random.randrange(LOWEST, min(HIGHEST, first_of_connections()))
        if port not in _given and is_free(port):
            _given.add(port)
            return port


def first_of_connections() -> int:
    file = Path("/proc/sys/net/ipv4/ip_local_port_range")
    try:
        first = int(file.read_text().split()[0])
    except OSError:
        return HIGHEST
    return first if first > LOWEST + 1000 else HIGHEST


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
