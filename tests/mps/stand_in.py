#!/usr/bin/env python3
"""A stand-in for nvidia-cuda-mps-control and its server, for clients on the software GPU.

As NVIDIA's: `-d` starts a daemon, `-f` one in the foreground; without either, commands come on stdin. Its files are in
CUDA_MPS_PIPE_DIRECTORY and CUDA_MPS_LOG_DIRECTORY. The first client brings up the server, a process of its own. What
clients of the software GPU say to it is in native/softgpu/mps_client.h.

MPS_STAND_IN injects a fault: `refuse` (-d fails), `hang` (-d never comes back), `deaf` (the daemon answers no command),
`no-server` (no client gets a server).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path

PIPE = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps")
LOG = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY") or "/var/log/nvidia-mps")
FAULT = os.environ.get("MPS_STAND_IN", "")


def log(line: str) -> None:
    with contextlib.suppress(OSError), (LOG / "control.log").open("a") as file:
        file.write(f"[{time.strftime('%F %T')} Control {os.getpid():5}] {line}\n")


def be_called(name: str) -> None:
    ctypes.CDLL(None).prctl(15, name.encode()[:15], 0, 0, 0)


def listen(path: Path) -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    # A socket's address holds 107 characters; from inside the folder a name is enough.
    os.chdir(path.parent)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path.name)
    listener.listen(64)
    return listener


def line_from(connection: socket.socket) -> str:
    said = b""
    connection.settimeout(5)
    with contextlib.suppress(OSError):
        while not said.endswith(b"\n"):
            got = connection.recv(1)
            if not got:
                break
            said += got
    return said.decode(errors="replace").strip()


class Server:
    """The process that clients stay connected to; it ends with its daemon."""

    def __init__(self, listener: socket.socket, commands: socket.socket) -> None:
        self.selector = selectors.DefaultSelector()
        self.clients: dict[socket.socket, int] = {}
        self.listener, self.commands = listener, commands
        for one in (listener, commands):
            self.selector.register(one, selectors.EVENT_READ)

    def serve(self) -> None:
        while True:
            for key, _ in self.selector.select():
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                if ready is self.listener:
                    self.admit(ready.accept()[0])
                elif ready is self.commands:
                    command = self.commands.recv(200).decode()
                    if not command:
                        return
                    self.obey(command)
                else:
                    self.forget(ready)

    def admit(self, connection: socket.socket) -> None:
        words = line_from(connection).split()
        if len(words) != 2:
            connection.close()
            return
        self.clients[connection] = int(words[1])
        self.selector.register(connection, selectors.EVENT_READ)
        connection.sendall(b"ok\n")

    def forget(self, connection: socket.socket) -> None:
        self.selector.unregister(connection)
        del self.clients[connection]
        connection.close()

    def obey(self, command: str) -> None:
        if command.startswith("terminate "):
            for connection in [one for one, pid in self.clients.items() if str(pid) == command.split()[1]]:
                self.forget(connection)
        self.commands.sendall(" ".join(map(str, self.clients.values())).encode() + b"\n")


class Control:
    def __init__(self) -> None:
        self.listener = listen(PIPE / "softgpu")
        self.servers: dict[int, socket.socket] = {}
        self.ends = False

    def serve(self) -> None:
        (PIPE / "control").touch()
        (PIPE / "nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
        log("Start")
        while not self.ends:
            connection = self.listener.accept()[0]
            said = line_from(connection)
            with contextlib.suppress(OSError):
                if said.startswith("client "):
                    connection.sendall(self.place_for_client().encode())
                else:
                    connection.sendall(self.answer(said).encode())
            connection.close()
        for pid, commands in self.servers.items():
            commands.close()
            os.waitpid(pid, 0)
        for name in ("control", "softgpu", "nvidia-cuda-mps-control.pid"):
            (PIPE / name).unlink(missing_ok=True)
        log("Exit")

    def reap(self) -> None:
        for pid in list(self.servers):
            if os.waitpid(pid, os.WNOHANG)[0]:
                log(f"Server {pid} exited")
                self.servers.pop(pid).close()

    def place_for_client(self) -> str:
        if FAULT == "no-server":
            return "no server can be started\n"
        self.reap()
        if not self.servers:
            self.start_server()
        pid = next(iter(self.servers))
        return f"server {pid} server-{pid}\n"

    def start_server(self) -> None:
        ours, its = socket.socketpair()
        ready, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                ours.close()
                self.listener.close()
                os.close(ready)
                for other in self.servers.values():
                    other.close()
                be_called("nvidia-cuda-mps-server")
                listener = listen(PIPE / f"server-{os.getpid()}")
                os.write(tell, b"!")
                os.close(tell)
                Server(listener, its).serve()
            os._exit(0)
        its.close()
        os.close(tell)
        os.read(ready, 1)
        os.close(ready)
        log(f"Starting new server {pid} for user {os.getuid()}")
        self.servers[pid] = ours

    def answer(self, command: str) -> str:
        while FAULT == "deaf":
            time.sleep(60)
        log(f"Cmd:{command}")
        self.reap()
        words = command.split()
        match words:
            case ["quit", *_]:
                self.ends = True
                return ""
            case ["get_server_list"]:
                return "".join(f"{pid}\n" for pid in self.servers)
            case ["start_server", "-uid", _]:
                if not self.servers:
                    self.start_server()
                return ""
            case ["get_server_status", pid] if int(pid) in self.servers:
                return "ACTIVE\n"
            case ["get_client_list", pid] if int(pid) in self.servers:
                return "".join(f"{one}\n" for one in self.tell(int(pid), "list").split())
            case ["terminate_client", pid, client] if int(pid) in self.servers:
                self.tell(int(pid), f"terminate {client}")
                return ""
            case ["get_default_active_thread_percentage"]:
                return "100.0\n"
        return f"Invalid command: {command}\n"

    def tell(self, pid: int, command: str) -> str:
        self.servers[pid].sendall(command.encode())
        return self.servers[pid].recv(4000).decode()


def daemonize() -> None:
    """The one that was called returns when the daemon is ready."""
    ready, tell = os.pipe()
    if os.fork():
        os.close(tell)
        sys.exit(0 if os.read(ready, 1) else 1)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.close(ready)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    be_called("nvidia-cuda-mps-control")
    control = Control()
    os.write(tell, b"!")
    os.close(tell)
    control.serve()


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    if "-d" in sys.argv or "-f" in sys.argv:
        if FAULT == "refuse":
            print("An instance of this daemon is already running")
            sys.exit(1)
        while FAULT == "hang":
            time.sleep(60)
        if "-d" in sys.argv:
            daemonize()
        else:
            be_called("nvidia-cuda-mps-control")
            Control().serve()
        return
    for command in sys.stdin:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.chdir(PIPE)
            connection.connect("softgpu")
            connection.sendall(command.encode())
            sys.stdout.write(connection.makefile().read())
        except OSError:
            print("Cannot find MPS control daemon process")
            sys.exit(1)


if __name__ == "__main__":
    main()
