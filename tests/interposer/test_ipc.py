"""Memory shared with cuIpcGetMemHandle: it works for memory that moves as for the driver's own."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from cotenant.segment import Where
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

MiB = 1 << 20
PROGRAM = [sys.executable, "-u", str(Path(__file__).parent / "programs" / "sharing.py")]
INVALID_VALUE, INVALID_CONTEXT, INVALID_HANDLE = "error 1", "error 201", "error 400"
MAP_FAILED = "error 205"
QUESTION = 0xC07E10A200000001  # native/tenant/memory/ipc_socket.cpp
OURS = "c07e9a475d1eb302"
MARK, EXPORTER, KEY = slice(0, 32), slice(32, 64), slice(64, 80)


class Sharer:
    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant
        assert tenant.hear() == "ready"

    def __call__(self, call: str, *words: object) -> str:
        self.tenant.say(" ".join([call, *map(str, words)]))
        return self.tenant.hear()

    @property
    def pid(self) -> int:
        assert self.tenant.process
        return self.tenant.process.pid

    def exported(self, text: str, size: int = 3 * MiB) -> tuple[str, str]:
        """Pointer and handle of a new allocation that begins with that text."""
        pointer = self("alloc", size)
        assert self("write", pointer, text) == "0"
        return pointer, self("get", pointer)

    def kill(self) -> None:
        assert self.tenant.process
        self.tenant.process.kill()
        self.tenant.process.wait()


@pytest.fixture
def sharer(tenant: Start) -> Callable[..., Sharer]:
    return lambda tenant_class="opportunistic", **extra: Sharer(tenant(tenant_class, PROGRAM, **extra))


def drivers_own(one: Sharer, other: Sharer) -> list[str]:
    """What a pair of processes sees, addresses left out."""
    said = []
    for size in (100, 5000, MiB, 3 * MiB):
        pointer, handle = one.exported("hello", size)
        assert one("get", int(pointer) + size // 2) == handle
        there = other("open", handle)
        said += [other("read", there, 5), other("range", int(there) + 7)]
        said += [other("write", there, "world"), one("read", pointer, 5)]
        assert other("open", handle) == there
        said += [other("close", there), other("read", there, 5), other("free", there), other("get", there)]
        said += [other("close", there), other("read", there, 5), other("close", there)]
        there = other("open", handle)
        said += [other("read", there, 5), other("open", handle, 4), one("open", handle)]
        said += [one("free", pointer), other("open", "00" * 64)]
        said += [other("read", there, 5), other("close", there)]
        said += [one("attribute", "IS_LEGACY_CUDA_IPC_CAPABLE", one("alloc", size))]
    said += [one("get", 12345), one("close", 12345), other("close", 0)]
    return said


def test_it_works_as_with_the_drivers_own_memory(sharer: Callable[..., Sharer]) -> None:
    own = drivers_own(sharer(COTENANT_OVERSUBSCRIBE="0"), sharer(COTENANT_OVERSUBSCRIBE="0"))
    moving = drivers_own(sharer(), sharer())
    assert moving == own
    assert own[:4] == ["hello", "7 100", "0", "world"]


@pytest.mark.parametrize("importer", ["production", "opportunistic"])
def test_both_see_what_the_other_writes(sharer: Callable[..., Sharer], importer: str) -> None:
    one, other = sharer(), sharer(importer)
    for size in (700, 5 * MiB):
        pointer, handle = one.exported("first", size)
        assert handle.startswith(OURS)
        there = other("open", handle)
        assert other("read", there, 5) == "first"
        assert other("write", int(there) + size - 4, "last") == "0"
        assert one("read", int(pointer) + size - 4, 4) == "last"


def test_where_it_could_not_be_lent_it_does_not_move_by_itself(
    sharer: Callable[..., Sharer], tenants_now: TenantsNow, native: Path, tmp_path: Path
) -> None:
    device = tmp_path / "device.gpu"
    device.write_text((native / "devices" / "small.gpu").read_text() + "\nattribute.103 = 0\n")
    one, other = (sharer(COTENANT_SOFTGPU=str(device)) for _ in range(2))
    _, handle = one.exported("hello")
    assert not handle.startswith(OURS)
    assert other("read", other("open", handle), 5) == "hello"
    assert sum(use.movable_bytes for t in tenants_now() for use in t.uses) == 0
    asked = sharer(COTENANT_SOFTGPU=str(device), COTENANT_OVERSUBSCRIBE="1")
    pointer, handle = asked.exported("moves")
    assert handle == INVALID_VALUE
    assert asked("attribute", "IS_LEGACY_CUDA_IPC_CAPABLE", pointer) == "0"
    assert sum(use.movable_bytes for t in tenants_now() for use in t.uses) == 4 * MiB


def test_an_importer_is_counted_nothing(sharer: Callable[..., Sharer], tenants_now: TenantsNow) -> None:
    one, other = sharer(), sharer("standard", COTENANT_MEMORY="8M")
    _, handle = one.exported("large", 20 * MiB)
    before = sum(use.memory_bytes for t in tenants_now() for use in t.uses)
    assert other("read", other("open", handle), 5) == "large"
    assert sum(use.memory_bytes for t in tenants_now() for use in t.uses) == before


def test_what_is_lent_stays_on_the_gpu_and_the_rest_leaves(
    sharer: Callable[..., Sharer], tenants_now: TenantsNow, cotenant: Run
) -> None:
    one, other = sharer(), sharer("production")
    stays, handle = one.exported("stays", 4 * MiB)
    leaves = one("alloc", 6 * MiB)
    one("write", leaves, "leaves")
    there = other("open", handle)
    done = cotenant("pause", str(one.pid), env=one.tenant.env)
    assert done.returncode == 0, done.stderr
    (about,) = [t for t in tenants_now() if t.pid == one.pid]
    assert (about.where, about.host_bytes) == (Where.evicted, 6 * MiB)
    assert sum(use.memory_bytes for use in about.uses) == 4 * MiB
    assert other("read", there, 5) == "stays"
    assert other("write", there, "taken") == "0"
    # Its own thread serves others while all of the program waits.
    assert other("close", there) == "0"
    there = other("open", handle)
    assert cotenant("resume", str(one.pid), env=one.tenant.env).returncode == 0
    assert (one("read", stays, 5), one("read", leaves, 6)) == ("taken", "leaves")


def test_what_a_network_card_gets_stays_too(
    sharer: Callable[..., Sharer], tenants_now: TenantsNow, cotenant: Run
) -> None:
    one = sharer()
    stays, leaves = one("alloc", 4 * MiB), one("alloc", 6 * MiB)
    assert one("registered_with_a_card", stays) == "0"
    assert cotenant("pause", str(one.pid), env=one.tenant.env).returncode == 0
    assert tenants_now()[0].host_bytes == 6 * MiB
    assert cotenant("resume", str(one.pid), env=one.tenant.env).returncode == 0
    assert one("free", leaves) == "0"


def test_freed_memory_stays_with_who_has_it_open_and_is_lent_to_nobody_else(
    sharer: Callable[..., Sharer],
) -> None:
    one, other = sharer(), sharer()
    for size in (900, 4 * MiB):
        keep = one("alloc", size)
        pointer, handle = one.exported("still", size)
        there = other("open", handle)
        assert one("free", pointer) == "0"
        again, fresh = one.exported("other", size)
        assert fresh != handle
        late = sharer()
        assert late("open", handle) == INVALID_VALUE
        assert late("read", late("open", fresh), 5) == "other"
        if size > MiB:
            assert other("read", there, 5) == "still"
        assert other("close", there) == "0"
        assert other("open", handle) == INVALID_VALUE
        assert (one("free", again), one("free", keep)) == ("0", "0")


def test_its_exporter_may_die_first(sharer: Callable[..., Sharer]) -> None:
    one, other, late = sharer(), sharer(), sharer()
    _, handle = one.exported("still", 4 * MiB)
    there = other("open", handle)
    one.kill()
    assert other("read", there, 5) == "still"
    assert other("write", there, "there") == "0"
    assert other("open", handle) == there
    assert late("open", handle) == INVALID_HANDLE
    assert (other("close", there), other("close", there)) == ("0", "0")
    assert other("open", handle) == INVALID_HANDLE


def test_its_importers_may_die_and_there_may_be_several(sharer: Callable[..., Sharer]) -> None:
    one, others = sharer(), [sharer() for _ in range(3)]
    one.exported("first")  # makes the exporter
    files = one("files")
    pointer, handle = one.exported("shared", 4 * MiB)
    files_while_exported = one("files")
    for other in others:
        other.tenant.say(f"open {handle}")
    there = [other.tenant.hear() for other in others]
    for other, place in zip(others, there, strict=True):
        assert other("read", place, 6) == "shared"
    others[0].kill()
    assert others[1]("write", there[1], "SHARED") == "0"
    assert (one("read", pointer, 6), others[2]("read", there[2], 6)) == ("SHARED", "SHARED")
    # Nothing of the transfers is left, and of the allocation nothing once it is freed.
    assert one("files") == files_while_exported
    assert one("free", pointer) == "0"
    assert one("files") == files


def with_part(handle: str, part: slice, text: str) -> str:
    return handle[: part.start] + text + handle[part.stop :]


def test_a_handle_that_was_made_up_opens_nothing(sharer: Callable[..., Sharer]) -> None:
    one, other = sharer(), sharer()
    pointer, handle = one.exported("secret")
    assert other("open", with_part(handle, KEY, "00" * 8)) == INVALID_VALUE
    assert other("open", with_part(handle, EXPORTER, "00" * 16)) == INVALID_HANDLE
    assert other("open", with_part(handle, MARK, "00" * 16)) == INVALID_VALUE  # the driver's word
    assert other("open", handle, 4) == INVALID_VALUE
    assert one("open", handle) == INVALID_CONTEXT
    there = other("open", handle)
    assert (other("close", int(there) + 1), other("close", there)) == ("1", "0")
    assert one("read", pointer, 6) == "secret"


def test_threads_that_open_it_at_once_get_one_address(sharer: Callable[..., Sharer]) -> None:
    one, other = sharer(), sharer()
    pointer, handle = one.exported("many")
    for _ in range(3):
        assert other("open_at_once", handle, 8) == "1"
        there = other("open", handle)
        assert other("read", there, 4) == "many"
        assert [other("close", there) for _ in range(10)] == ["0"] * 9 + ["1"]
    assert one("free", pointer) == "0"


def connect_to_exporter(handle: str) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.connect(b"\0cotenant-ipc-" + handle[EXPORTER].encode())
    return peer


def test_a_peer_that_says_nothing_or_nonsense_holds_nobody_up(sharer: Callable[..., Sharer]) -> None:
    one, other = sharer(), sharer()
    _, handle = one.exported("hello")
    with (
        connect_to_exporter(handle),
        connect_to_exporter(handle) as nonsense,
        connect_to_exporter(handle) as wrong,
    ):
        nonsense.send(b"give me everything")
        wrong.send(struct.pack("<QQ", 1, 2))
        assert other("read", other("open", handle), 5) == "hello"
        assert wrong.recv(100) == b""


@pytest.mark.parametrize(("offset", "more"), [(0, 1), (1 << 63, 0), (MiB, 0)])
def test_an_exporter_that_says_more_than_there_is_is_not_believed(
    sharer: Callable[..., Sharer], offset: int, more: int
) -> None:
    one, other = sharer(), sharer()
    _, handle = one.exported("hello")
    with connect_to_exporter(handle) as peer:
        peer.send(struct.pack("<Q", QUESTION) + bytes.fromhex(handle[KEY]))
        message, (file,), _, _ = socket.recv_fds(peer, 100, 1)
    whole = struct.unpack("<4Q", message)[1]
    made_up = os.urandom(16).hex()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(b"\0cotenant-ipc-" + made_up.encode())
        listening.listen()
        other.tenant.say(f"open {with_part(handle, EXPORTER, made_up)}")
        importer, _ = listening.accept()
        with importer:
            assert len(importer.recv(100)) == 16
            answer = struct.pack("<4Q", QUESTION, whole, offset, whole + more)
            socket.send_fds(importer, [answer], [file])
            assert other.tenant.hear() == MAP_FAILED
    os.close(file)


AS_NOBODY = """
import os, socket, struct, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
peer.connect(b"\\0cotenant-ipc-" + sys.argv[1].encode())
try:
    peer.send(struct.pack("<Q", 0xc07e10a200000001) + bytes.fromhex(sys.argv[2]))
    message, files, _, _ = socket.recv_fds(peer, 100, 1)
except OSError:
    message, files = b"", []
print(len(message), len(files))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to be another user")
def test_another_user_gets_nothing_with_the_right_key(sharer: Callable[..., Sharer]) -> None:
    one = sharer()
    _, handle = one.exported("mine")
    asked = [handle[EXPORTER], handle[KEY]]
    as_us = AS_NOBODY.replace("os.setgroups([]); os.setgid(65534); os.setuid(65534)", "")
    said = [
        subprocess.run(
            [sys.executable, "-c", program, *asked], capture_output=True, text=True, check=True
        ).stdout
        for program in (as_us, AS_NOBODY)
    ]
    assert said == ["32 1\n", "0 0\n"]


BEFORE_CUDA = """
import os, sys
reading, writing = os.pipe()
if os.fork():
    sys.stdin = os.fdopen(reading)
    os.close(writing)
    from sharing import Sharing
    one = Sharing()
    print(one.read(one.open(input()), "6"), flush=True)
else:
    os.close(reading)
    from sharing import Sharing
    one = Sharing()
    pointer = str(one.alloc("4000000"))
    one.write(pointer, "forked")
    os.write(writing, one.get(pointer).encode() + b"\\n")
    os.read(0, 1)
    os._exit(0)
"""


def test_a_child_forked_before_cuda_is_a_process_of_its_own(tenant: Start) -> None:
    one = tenant("opportunistic", BEFORE_CUDA)
    assert one.hear() == "forked"
    assert one.finish() == ""


def test_a_stopped_exporter_holds_its_importer_up_for_a_moment_only(sharer: Callable[..., Sharer]) -> None:
    one, other = sharer(), sharer()
    _, handle = one.exported("later")
    os.kill(one.pid, signal.SIGSTOP)
    other.tenant.say(f"open {handle}")
    os.kill(one.pid, signal.SIGCONT)
    assert other("read", other.tenant.hear(), 5) == "later"


def files_of(pid: int) -> list[str]:
    return [os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir()]


def test_a_forked_child_exports_nothing_and_keeps_nothing(sharer: Callable[..., Sharer]) -> None:
    one, other = sharer(), sharer()
    pointer, handle = one.exported("parent")
    child = int(one("fork"))
    socket_of_parent = f"@cotenant-ipc-{handle[EXPORTER]}"
    assert other("read", other("open", handle), 6) == "parent"
    sockets = {
        f"socket:[{line.split()[6]}]"
        for line in Path("/proc/net/unix").read_text().splitlines()
        if socket_of_parent in line
    }
    assert sockets

    def memory_of(pid: int) -> int:
        return sum("memfd:softgpu" in file for file in files_of(pid))

    # The parent has answered; the child may have its part of the fork still to do.
    wait_for(lambda: not sockets & set(files_of(child)))
    # One descriptor is the software GPU's own.
    wait_for(lambda: (memory_of(one.pid), memory_of(child)) == (2, 1))
    assert one("free", pointer) == "0"
    late = sharer()
    assert late("open", handle) == INVALID_VALUE
    one.kill()
    # The child is alive: it has the parent's pipe, and nothing of its socket.
    assert late("open", handle) == INVALID_HANDLE


def test_what_a_context_has_opened_goes_with_it(sharer: Callable[..., Sharer]) -> None:
    one, other = sharer(), sharer()
    _, handle = one.exported("before")
    there = other("open", handle)
    assert other("read", there, 6) == "before"
    assert other("reset") == "reset"
    assert other("read", there, 6) == INVALID_VALUE
    assert other("read", other("open", handle), 6) == "before"
    assert one("reset") == "reset"
    assert sharer()("open", handle) == INVALID_VALUE
    wait_for(lambda: one("used") == "0")
