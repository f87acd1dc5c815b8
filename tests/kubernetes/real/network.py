"""What pods with a network of their own need: an address each, and a way to the API server by its service's address.

There is no kube-proxy. Each pod has a pair of virtual Ethernet devices with a route to this machine, which has the
service's address itself; the API server finds other services by their endpoints.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

# Addresses that are nobody's: for benchmarks of networks (RFC 2544).
NUMBER = os.getpid() % 250
SERVICES, API_SERVER = f"198.18.{NUMBER}.0/24", f"198.18.{NUMBER}.1"
PODS = f"198.19.{NUMBER}"

# As the Container Network Interface wants it: a command, and a configuration on stdin.
PLUGIN = """\
#!{python} -SE
import json, os, subprocess, sys

def ip(*words, inside=False):
    into = ["nsenter", "--net=" + os.environ["CNI_NETNS"]] if inside else []
    subprocess.run([*into, "ip", *words], check=True, stdout=subprocess.DEVNULL)

config = json.load(sys.stdin)
command, container = os.environ["CNI_COMMAND"], os.environ.get("CNI_CONTAINERID", "")
version = config["cniVersion"]
device = "ct" + container[:12]
if command == "VERSION":
    print(json.dumps({{"cniVersion": version, "supportedVersions": ["0.3.1", "0.4.0"]}}))
elif command == "ADD" and config["type"] == "loopback":
    ip("link", "set", "lo", "up", inside=True)
    found = [{{"name": "lo", "sandbox": os.environ["CNI_NETNS"]}}]
    address = {{"version": "4", "address": "127.0.0.1/8", "interface": 0}}
    print(json.dumps({{"cniVersion": version, "interfaces": found, "ips": [address]}}))
elif command == "ADD":
    for number in range(1, 255):
        try:
            os.close(os.open("{folder}/%d" % number, os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            continue
    open("{folder}/of-" + container, "w").write(str(number))
    own = "{pods}.%d" % number
    ip("link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", os.environ["CNI_NETNS"])
    ip("link", "set", device, "up")
    ip("route", "add", own + "/32", "dev", device)
    ip("addr", "add", own + "/32", "dev", "eth0", inside=True)
    ip("link", "set", "eth0", "up", inside=True)
    ip("route", "add", "{gateway}/32", "dev", "eth0", inside=True)
    ip("route", "add", "default", "via", "{gateway}", inside=True)
    found = [{{"name": "eth0", "sandbox": os.environ["CNI_NETNS"]}}]
    address = {{"version": "4", "address": own + "/32", "gateway": "{gateway}", "interface": 0}}
    print(json.dumps({{"cniVersion": version, "interfaces": found, "ips": [address]}}))
elif command == "DEL" and config["type"] != "loopback":
    subprocess.run(["ip", "link", "del", device], stderr=subprocess.DEVNULL)
    try:
        number = open("{folder}/of-" + container).read()
        os.unlink("{folder}/of-" + container)
        os.unlink("{folder}/" + number)
    except FileNotFoundError:
        pass
"""


def write_plugin(programs: Path, addresses: Path) -> None:
    addresses.mkdir()
    for name in ("loopback", "pods"):
        file = programs / name
        file.write_text(PLUGIN.format(python=sys.executable, folder=addresses, pods=PODS, gateway=API_SERVER))
        file.chmod(0o755)


@contextlib.contextmanager
def to_api_server(port: int) -> Iterator[None]:
    """The address of the service `kubernetes` leads to the API server."""
    if not shutil.which("ip"):
        pytest.skip("there is no ip: install iproute2")
    done = subprocess.run(
        ["ip", "addr", "add", f"{API_SERVER}/32", "dev", "lo"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"this machine takes no addresses: {done.stderr.strip()}")
    try:
        with socket.create_server((API_SERVER, 443)) as server:
            threading.Thread(target=relay, args=(server, port), daemon=True).start()
            yield
            server.shutdown(socket.SHUT_RDWR)
    finally:
        subprocess.run(["ip", "addr", "del", f"{API_SERVER}/32", "dev", "lo"], check=False)


def relay(server: socket.socket, port: int) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        upstream = socket.create_connection(("127.0.0.1", port))
        for one, other in ((client, upstream), (upstream, client)):
            threading.Thread(target=pass_on, args=(one, other), daemon=True).start()


def pass_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while content := one.recv(1 << 16):
            other.sendall(content)
    for end in (one, other):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
