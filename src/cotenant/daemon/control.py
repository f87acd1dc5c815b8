"""The control socket of an administrator's daemon: who may steer which tenant is decided by the kernel's word on who
has connected (SO_PEERCRED, SO_PEERGROUPS).

    root, the daemon's own user, and members of the group --admins    every tenant, the policy, and the daemon itself
    everybody else                                                    their own tenants

The permissions of the segment's files say the same without a daemon, but know no administrators other than its owner:
commands use the socket only where a file may not be written. A message is one JSON object, as is its answer:

    {"do": "hello"}                                                   {"version", "pid", "segment"}
    {"do": "ask", "slot", "pid", "started", "wanted": {NAME: N}}      requests to a tenant: segment/requests.py
    {"do": "policy", "name"}                                          an installed policy; a file only from root
    {"do": "hand over"}                                               ends this daemon: another one takes its place

The answer has "error", and perhaps "hint", where it was refused. Whatever a message holds, the daemon goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import stat
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cotenant import __version__, segment
from cotenant.daemon import choice, files
from cotenant.errors import Problem, narrate
from cotenant.policies import registry

MOST_BYTES = 4096
LONGEST_WORDS = 300  # of an answer, which may take six bytes each
MOST_PEERS, MOST_PEERS_OF_ONE = 64, 8
PATIENCE_SECONDS = 5.0  # with a peer that says nothing, or does not hear
SO_PEERGROUPS = 59  # include/uapi/asm-generic/socket.h; Python has no name for it
CREDENTIALS = struct.Struct("=iII")
WANTED = {
    **dict.fromkeys(("tenant_class", "weight", "slowdown", "floor", "time_slice_us"), 2**32 - 2),
    "memory": 2**64 - 2,
    "sms": 1000,
    "pause": 1,
}


@dataclass(frozen=True)
class Peer:
    pid: int
    uid: int
    groups: frozenset[int]

    @staticmethod
    def of(connection: socket.socket) -> Peer:
        pid, uid, gid = CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        )
        groups = {gid}
        with contextlib.suppress(OSError):  # before Linux 4.13, or too many
            found = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 1024)
            groups.update(number for (number,) in struct.iter_unpack("=I", found))
        return Peer(pid, uid, frozenset(groups))


class Refused(Exception):
    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


@dataclass
class Desk:
    """What is done with a message; no sockets here."""

    path: Path
    admins: int | None = None  # a group
    own: frozenset[int] = field(default_factory=lambda: frozenset({0, os.geteuid()}))

    def answer(self, message: bytes, peer: Peer) -> bytes:
        try:
            said = self.obey(parsed(message), peer)
        except Refused as refused:
            said = {"error": refused.message, "hint": refused.hint}
        except Problem as problem:
            said = {"error": problem.message, "hint": problem.hint}
        except (OSError, ValueError, segment.BadSegment) as error:
            said = {"error": str(error), "hint": ""}
        return json.dumps({name: cut(value) for name, value in said.items()}).encode()

    def is_administrator(self, peer: Peer) -> bool:
        return peer.uid in self.own or (self.admins is not None and self.admins in peer.groups)

    def obey(self, message: dict[str, Any], peer: Peer) -> dict[str, Any]:
        what = message.get("do")
        if what == "hello":
            return {"version": __version__, "pid": os.getpid(), "segment": segment.VERSION}
        if what == "ask":
            return self.ask(message, peer)
        if what not in ("policy", "hand over"):
            raise Refused("unknown message")
        if not self.is_administrator(peer):
            raise Refused(f"user {peer.uid} is no administrator of {self.path}")
        if what == "policy":
            return self.choose(message.get("name"), peer)
        narrate(f"user {peer.uid} lets another daemon take over")
        # The main thread waits for it.
        os.kill(os.getpid(), signal.SIGTERM)
        return {}

    def choose(self, name: object, peer: Peer) -> dict[str, Any]:
        if not isinstance(name, str):
            raise Refused("a policy's name is a text")
        if registry.is_file(name) and peer.uid not in self.own:
            raise Refused("a policy file is code that the daemon would run: only root may name one")
        # A file is loaded by the main thread, which knows what to do with one that fails or hangs.
        told = name if registry.is_file(name) else choice.for_segment(name)
        if len(told.encode()) > segment.LONGEST_POLICY_NAME:
            raise Refused(f"a policy's name has {segment.LONGEST_POLICY_NAME} characters at most")
        segment.choose_policy(self.path, told)
        narrate(f"user {peer.uid} has chosen the policy {name}")
        return {}

    def ask(self, message: dict[str, Any], peer: Peer) -> dict[str, Any]:
        index, pid, started = (whole(message.get(name), 2**64 - 1) for name in ("slot", "pid", "started"))
        wanted = requests(message.get("wanted"))
        there = segment.open(self.path)
        if not isinstance(there, segment.FolderSegment):
            raise Refused("this segment is one user's: its file is written directly")
        found = there.slot_file(index)
        if found is None or (found.slot.pid, found.slot.started) != (pid, started):
            raise Refused("that tenant has ended")
        if found.uid != peer.uid and not self.is_administrator(peer):
            raise Refused(f"that tenant belongs to user {found.uid}", "ask an administrator")
        if not there.write(found, wanted):
            raise Refused("that tenant has ended")
        if wanted:
            narrate(f"user {peer.uid} asks tenant {found.pid} of user {found.uid}: {wanted}")
        return {}


def cut(value: object) -> object:
    """So that an answer that quotes a long message is one message, too."""
    return value[:LONGEST_WORDS] if isinstance(value, str) else value


def parsed(message: bytes) -> dict[str, Any]:
    try:
        found = json.loads(message)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused("a message is a JSON object")
    return found


def whole(found: object, most: int) -> int:
    if type(found) is not int or not 0 <= found <= most:
        raise Refused("a number is missing or out of range")
    return found


def requests(found: object) -> dict[str, int]:
    if not isinstance(found, dict) or not found.keys() <= WANTED.keys():
        raise Refused(f"a request has {', '.join(WANTED)}")
    return {name: whole(value, WANTED[name]) for name, value in found.items()}


def file_for(path: Path) -> Path:
    return files.beside(path, ".socket")


@contextlib.contextmanager
def in_its_folder(file: Path) -> Iterator[str]:
    """A short name for it: a socket's has 107 characters at most, and a folder that is open is no link."""
    folder = os.open(file.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{file.name}"
    finally:
        os.close(folder)


class Control:
    """The socket, served by a thread of its own. Only the daemon that holds the lock makes one."""

    def __init__(self, path: Path, admins: int | None = None) -> None:
        """Raises OSError, or a Problem where somebody has planted the file."""
        self.desk = Desk(path, admins)
        self.file = file_for(path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.bind(segment.open(path).is_shared)
        except BaseException:
            self.listener.close()
            raise
        self.deadlines: dict[socket.socket, tuple[float, int]] = {}  # and the peer's user
        self.waker, self.woken = socket.socketpair()
        self.thread = threading.Thread(target=self.work, name="control", daemon=True)

    def bind(self, is_shared: bool) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.file.unlink()  # of a daemon that was killed
        with in_its_folder(self.file) as name:
            self.listener.bind(name)
        self.bound = self.file.lstat()
        # Who is not let through by the folder's mode comes no further; the rest is decided message by message.
        os.chmod(self.file, 0o666 if is_shared else 0o600)
        self.listener.listen(MOST_PEERS)
        self.listener.setblocking(False)

    def start(self) -> None:
        self.thread.start()

    def end(self) -> None:
        self.waker.close()
        if self.thread.is_alive():
            self.thread.join(PATIENCE_SECONDS)
        self.listener.close()
        with contextlib.suppress(OSError):
            if os.path.samestat(self.bound, self.file.lstat()):  # not that of another daemon
                self.file.unlink()

    def work(self) -> None:
        # Signals are for the daemon's main thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.listener, selectors.EVENT_READ)
            waiting.register(self.woken, selectors.EVENT_READ)
            while True:
                for key, _ in waiting.select(self.close_the_late(waiting)):
                    if key.fileobj is self.woken:
                        return self.close_all(waiting)
                    if key.fileobj is self.listener:
                        self.accept(waiting)
                    else:
                        assert isinstance(key.fileobj, socket.socket)
                        self.serve(waiting, key.fileobj, key.data)

    def close_the_late(self, waiting: selectors.BaseSelector) -> float | None:
        """Gives how long until the next one is late; None: nobody is there."""
        now = time.monotonic()
        for connection in [one for one, (deadline, _) in self.deadlines.items() if deadline <= now]:
            self.drop(waiting, connection)
        return min((deadline - now for deadline, _ in self.deadlines.values()), default=None)

    def accept(self, waiting: selectors.BaseSelector) -> None:
        try:
            connection, _ = self.listener.accept()
        except OSError:
            time.sleep(0.05)  # no descriptor is left: not again at once
            return
        try:
            peer = Peer.of(connection)
        except (OSError, struct.error):
            connection.close()
            return
        of_one = sum(uid == peer.uid for _, uid in self.deadlines.values())
        if len(self.deadlines) >= MOST_PEERS or (
            peer.uid not in self.desk.own and of_one >= MOST_PEERS_OF_ONE
        ):
            connection.close()
            return
        connection.setblocking(False)
        self.deadlines[connection] = (time.monotonic() + PATIENCE_SECONDS, peer.uid)
        waiting.register(connection, selectors.EVENT_READ, peer)

    def serve(self, waiting: selectors.BaseSelector, connection: socket.socket, peer: Peer) -> None:
        try:
            message = connection.recv(MOST_BYTES + 1)
            if not message:
                return self.drop(waiting, connection)
            said = (
                self.desk.answer(message, peer)
                if len(message) <= MOST_BYTES
                else json.dumps({"error": f"a message has {MOST_BYTES} bytes at most", "hint": ""}).encode()
            )
            connection.send(said, socket.MSG_NOSIGNAL)
            self.deadlines[connection] = (time.monotonic() + PATIENCE_SECONDS, peer.uid)
        except OSError:
            self.drop(waiting, connection)

    def drop(self, waiting: selectors.BaseSelector, connection: socket.socket) -> None:
        waiting.unregister(connection)
        del self.deadlines[connection]
        connection.close()

    def close_all(self, waiting: selectors.BaseSelector) -> None:
        for connection in list(self.deadlines):
            self.drop(waiting, connection)


def is_there(path: Path) -> bool:
    return stat.S_ISSOCK(mode_of(file_for(path)))


def mode_of(file: Path) -> int:
    try:
        return file.lstat().st_mode
    except OSError:
        return 0


def send(path: Path, message: dict[str, Any]) -> dict[str, Any]:
    """What the daemon of this segment answers. Raises a Problem where it refuses, and where none listens."""
    file = file_for(path)
    try:
        with in_its_folder(file) as name, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(PATIENCE_SECONDS)
            connection.connect(name)
            if Peer.of(connection).uid not in files.trusted(path):
                raise Problem(f"{file} belongs to another user", "have it removed")
            connection.send(json.dumps(message).encode(), socket.MSG_NOSIGNAL)
            said = json.loads(connection.recv(MOST_BYTES))
    except (OSError, ValueError) as error:
        raise Problem(f"the daemon of {path} does not answer: {error}", "is it running?") from None
    if not isinstance(said, dict):
        raise Problem(f"the daemon of {path} gave no answer", "is it another version?")
    if "error" in said:
        raise Problem(str(said["error"]), str(said.get("hint", "")))
    return said
