"""Tells systemd that the daemon serves its segment (`Type=notify`, sd_notify(3)): `systemctl start` waits for it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import MutableMapping


def tell(environment: MutableMapping[str, str]) -> None:
    """Once: what the daemon starts has nothing to tell. Nobody waits where systemd did not start the daemon."""
    address = environment.pop("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    # An abstract address begins with a zero byte, which a variable cannot hold.
    at = "\0" + address[1:] if address.startswith("@") else address
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
        there.sendto(b"READY=1", at)
