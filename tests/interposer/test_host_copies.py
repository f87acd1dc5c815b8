"""Copies between host and GPU: a lower class makes way for the copies of a higher one, and copies the same bytes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from cotenant.tenants import wait_reasons
from tests.conftest import REAL_GPU, TREE
from tests.interposer.conftest import COMPANY
from tests.interposer.test_gates import ready, use
from tests.interposer.test_sharing import in_a_while, steer
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

pytestmark = pytest.mark.skipif(REAL_GPU, reason="a software GPU with a slow bus")

PRELUDE = """
import ctypes, itertools, select, sys, threading, time
from soft import Gpu, check, driver
MIB = 1 << 20
gpu = Gpu()
def told(): return select.select([sys.stdin], [], [], 0)[0]
def pinned(size): return int(check(driver.cuMemHostAlloc(size, 0)))
kept = []
def pageable(size):
    kept.append(ctypes.create_string_buffer(size)); return ctypes.addressof(kept[-1])
def address(kind, size): return pinned(size) if kind == "pinned" else pageable(size)
def gates():
    from cotenant import segment; from pathlib import Path; import os
    mine = [t for t in segment.read(Path(os.environ["COTENANT_SEGMENT"])).tenants if t.pid == os.getpid()]
    return mine[0].uses[0].figures["gates"] if mine and mine[0].uses else 0
"""

# For each line that it hears: copies 1 MiB both ways while all of it waits for a word in host memory, so that its
# neighbours have come to rest; says how many microseconds the GPU took for each copy.
PRODUCTION = """
stream = gpu.stream(); host, there = pinned(MIB), check(driver.cuMemAlloc(MIB))
word = check(driver.cuMemHostAlloc(64, driver.CU_MEMHOSTALLOC_DEVICEMAP)); value = ctypes.c_uint32.from_address(word)
events = [check(driver.cuEventCreate(0)) for _ in range(3)]
print("ready", flush=True)
for line in sys.stdin:
    value.value = 0
    check(driver.cuStreamWaitValue32(stream, word, 1, driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ))
    check(driver.cuEventRecord(events[0], stream)); check(driver.cuMemcpyHtoDAsync(there, host, MIB, stream))
    check(driver.cuEventRecord(events[1], stream)); check(driver.cuMemcpyDtoHAsync(host, there, MIB, stream))
    check(driver.cuEventRecord(events[2], stream)); time.sleep(0.01); value.value = 1
    check(driver.cuStreamSynchronize(stream))
    print(*(1000 * check(driver.cuEventElapsedTime(*pair)) for pair in itertools.pairwise(events)), flush=True)
"""

# Copies 16 MiB again and again, in the way it is told.
FLOOD = """
kind, way = sys.argv[1:]; SIZE = 16 * MIB
stream = gpu.stream(); host, there = address(kind, SIZE), int(check(driver.cuMemAlloc(SIZE)))
ways = {
    "to": lambda: driver.cuMemcpyHtoD(there, host, SIZE), "from": lambda: driver.cuMemcpyDtoH(host, there, SIZE),
    "to, in order": lambda: driver.cuMemcpyHtoDAsync(there, host, SIZE, stream),
    "from, in order": lambda: driver.cuMemcpyDtoHAsync(host, there, SIZE, stream),
    "by address": lambda: driver.cuMemcpy(there, host, SIZE),
    "by address, in order": lambda: driver.cuMemcpyAsync(host, there, SIZE, stream),
}
print("ready", flush=True)
while not told(): check(ways[way]()); check(driver.cuStreamSynchronize(stream))
"""


@pytest.fixture
def slow_bus(tmp_path: Path) -> str:
    """1 MiB takes 4 ms."""
    device = (TREE / "native" / "softgpu" / "devices" / "small.gpu").read_text()
    path = tmp_path / "slow.gpu"
    path.write_text(device.replace("bus_gbps = 10", "bus_gbps = 0.25"))
    return str(path)


ALONE_US = (1 << 20) / 250


def times(production: Tenant) -> list[float]:
    production.say("copy")
    return [float(word) for word in production.hear().split()]


def copies(tenants_now: TenantsNow) -> int:
    """That the job of the lower class has launched."""
    below = [one for one in tenants_now() if one.tenant_class == segment.wire.Class.opportunistic]
    return sum(use.figures["copies"] for one in below for use in one.uses)


def has_copied(tenants_now: TenantsNow, before: int) -> bool:
    return copies(tenants_now) > before


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        ("pinned", "to, in order"),
        ("pinned", "from, in order"),
        ("pinned", "from"),
        ("pinned", "by address, in order"),
        ("pageable", "to, in order"),
        ("pageable", "from"),
        ("pageable", "by address"),
    ],
)
def test_production_copies_as_alone_beside_a_job_that_copies_without_pause(
    tenant: Start, tenants_now: TenantsNow, slow_bus: str, kind: str, way: str
) -> None:
    """A whole copy of 16 MiB would share the bus with it: production's would take twice as long one way."""
    settings = {"COTENANT_SOFTGPU": slow_bus}
    production = tenant("production", PRELUDE + PRODUCTION, **settings)
    assert production.hear() == "ready"
    assert times(production) == pytest.approx([ALONE_US] * 2, rel=0.01)
    flood = ready(
        tenant("opportunistic", [sys.executable, "-u", "-c", PRELUDE + FLOOD, kind, way], **settings)
    )
    rounds: list[list[float]] = []
    for _ in range(6):
        before = copies(tenants_now)
        wait_for(partial(has_copied, tenants_now, before))  # it is amid a new one
        rounds.append(times(production))
    flood.say("stop")
    flood.finish()
    # From the first ones it has learned that production uses the bus; on a busy machine it may forget that in between.
    assert any(seen == pytest.approx([ALONE_US] * 2, rel=0.2) for seen in rounds[1:]), rounds


# Copies a few bytes every now and then until it hears something: it uses the bus.
USES_BUS = """
host, there = pinned(64), check(driver.cuMemAlloc(64)); print("ready", flush=True)
while not told(): check(driver.cuMemcpyHtoD(there, host, 64)); time.sleep(0.05)
"""

# Up and down again, in every way, of sizes around those of pieces; then copies that the driver refuses: beyond the
# memory on the GPU, with a size so large that the sum of it and an address wraps around, and from host memory of which
# only the beginning is pinned.
SAME_BYTES = """
import random
chance, most = random.Random(1), 3 * MIB + 13; stream = gpu.stream()
there = int(check(driver.cuMemAlloc(most))); legacy, own = driver.CUstream(driver.CU_STREAM_LEGACY), gpu.stream()
up = {
    "now": lambda a, n: driver.cuMemcpyHtoD(there, a, n),
    "in order": lambda a, n: driver.cuMemcpyHtoDAsync(there, a, n, own),
    "by address": lambda a, n: driver.cuMemcpyAsync(there, a, n, legacy),
}
down = {
    "now": lambda a, n: driver.cuMemcpyDtoH(a, there, n),
    "in order": lambda a, n: driver.cuMemcpyDtoHAsync(a, there, n, own),
    "by address": lambda a, n: driver.cuMemcpy(a, there, n),
}
out, back = address(sys.argv[1], most), address(sys.argv[1], most)
def once(send, fetch, size):
    wanted = chance.randbytes(size); ctypes.memmove(out, wanted, size); ctypes.memset(back, 0, size)
    check(send(out, size)); check(driver.cuCtxSynchronize()); check(fetch(back, size)); check(driver.cuCtxSynchronize())
    return ctypes.string_at(back, size) == wanted
# Until the copies are split: each piece has a gate of its own.
while True:
    before = gates(); once(up["now"], down["now"], most)
    if gates() - before > 10: break
print(all(once(u, d, size) for u in up.values() for d in down.values() for size in (1, MIB // 8, MIB // 8 + 1, most)))
before = ctypes.string_at(back, most); ctypes.memset(out, 1, most)
refused = [call(out, most + 2 * MIB)[0].name for call in (*up.values(), *down.values())]
check(driver.cuMemcpyDtoH(back, there, most)); print(ctypes.string_at(back, most) == before, *set(refused))
wrapping = (there + MIB, out + MIB, 2**64 - MIB)
refused = [driver.cuMemcpyHtoD(*wrapping)[0].name, driver.cuMemcpyHtoDAsync(*wrapping, own)[0].name]
check(driver.cuMemcpyDtoH(back, there, most)); print(ctypes.string_at(back, most) == before, *set(refused))
partly = -(-pageable(most + 4096) // 4096) * 4096; check(driver.cuMemHostRegister(partly, MIB, 0))
refused = up["by address"](partly, most)[0].name
check(driver.cuMemcpyDtoH(back, there, most)); print(ctypes.string_at(back, most) == before, refused)
"""


@pytest.mark.parametrize("kind", ["pinned", "pageable"])
def test_a_split_copy_copies_the_same_bytes_or_none(tenant: Start, kind: str) -> None:
    production = tenant("production", PRELUDE + USES_BUS)
    assert production.hear() == "ready"
    below = tenant("opportunistic", [sys.executable, "-u", "-c", PRELUDE + SAME_BYTES, kind])
    said = below.finish(120).split()
    production.say("stop")
    assert said == ["True", *["True", "CUDA_ERROR_INVALID_VALUE"] * 3]


# One thread fills memory with one value after another, from the host; another looks at all of it in stream order.
WHOLE = """
SIZE = 4 * MIB; there, seen = (int(check(driver.cuMemAlloc(SIZE))) for _ in range(2))
import contextlib, cotenant
filling = looking = gpu.stream()
if sys.argv[1] == "legacy": filling, looking = driver.CUstream(driver.CU_STREAM_LEGACY), check(driver.cuStreamCreate(0))
sources = [pinned(SIZE) for _ in range(2)]; [ctypes.memset(at, 1 + i, SIZE) for i, at in enumerate(sources)]
back = pinned(SIZE); counts, stop = [0], False
def fill():
    gpu.use()
    with cotenant.tenant("opportunistic") if sys.argv[1] == "two lanes'" else contextlib.nullcontext(): fill_on()
def fill_on():
    while not stop: check(driver.cuMemcpyHtoDAsync(there, sources[counts[0] % 2], SIZE, filling)); counts[0] += 1
check(driver.cuMemcpyHtoD(there, sources[0], SIZE)); thread = threading.Thread(target=fill); thread.start()
torn = looks = 0
while looks < 40 or counts[0] < 40:
    check(driver.cuMemcpyDtoDAsync(seen, there, SIZE, looking)); check(driver.cuStreamSynchronize(looking)); looks += 1
    check(driver.cuMemcpyDtoHAsync(back, seen, SIZE, looking)); check(driver.cuStreamSynchronize(looking))
    torn += len(set(ctypes.string_at(back, SIZE)[::4096])) > 1
stop = True; thread.join(); gpu.synchronize(); print(torn)
"""


@pytest.mark.parametrize("streams", ["the same", "two lanes'", "legacy"])
def test_no_other_thread_sees_half_a_copy(tenant: Start, streams: str) -> None:
    production = tenant("production", PRELUDE + USES_BUS)
    assert production.hear() == "ready"
    below = tenant("opportunistic", [sys.executable, "-u", "-c", PRELUDE + WHOLE, streams])
    assert below.finish(120).split() == ["0"]
    production.say("stop")


# A copy of 16 MiB is launched as one operation where nobody else copies.
LONE = """
host, there = pinned(16 * MIB), check(driver.cuMemAlloc(16 * MIB)); stream = gpu.stream()
for _ in range(20):
    check(driver.cuMemcpyHtoDAsync(there, host, 16 * MIB, stream)); check(driver.cuStreamSynchronize(stream))
"""


@pytest.mark.parametrize("beside", [None, "opportunistic", "production"])
def test_a_copy_stays_whole_where_no_higher_class_copies(tenant: Start, beside: str | None) -> None:
    if beside:
        idle = tenant(beside, COMPANY)
        assert idle.hear() == "here"
    below = tenant("opportunistic", PRELUDE + LONE)
    below.finish(60)
    assert below.total("gates") <= 2 * below.total("copies") == 40


# Copies, and when it is told to, and nobody else is there any more, launches a kernel behind that; says how many gates
# came before each.
COPIES_AMID_COMPANY = """
stream, other = gpu.stream(), gpu.stream(); host, there = pinned(4 * MIB), check(driver.cuMemAlloc(4 * MIB))
def gates_of(launch): before = gates(); launch(); gpu.synchronize(); return gates() - before
print(gates_of(lambda: check(driver.cuMemcpyHtoDAsync(there, host, 4 * MIB, stream))), flush=True); sys.stdin.readline()
empty = gpu.kernel("empty")
def launch(blocks, into): check(driver.cuLaunchKernel(empty, blocks, 1, 1, 1, 1, 1, 0, into, 0, 0))
# Amid company every kernel that was never timed has a gate.
next(blocks for blocks in itertools.count(1) if not gates_of(lambda: launch(blocks, other)))
print(gates_of(lambda: launch(1, stream)))
"""


def test_a_kernel_behind_copies_has_a_gate_though_nobody_else_is_there(
    tenant: Start, company: Tenant
) -> None:
    """Before it are gates for copies, which say nothing of kernels: somebody may come."""
    one = tenant("opportunistic", PRELUDE + COPIES_AMID_COMPANY)
    assert one.hear() == "1"
    company.say("")
    company.finish()
    one.say("")
    assert one.finish() == "1\n"


# A kernel of so long that nobody waits for its end.
ENDLESS = """
length = ctypes.c_uint64(60_000_000); parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
stream = gpu.stream(); gpu.launch(gpu.kernel("spin"), stream, ctypes.addressof(parameters))
print("ready", flush=True); sys.stdin.readline()
"""

# When it is told to, copies to the GPU and back, then launches a kernel behind that; says when the copies have ended
# and whether the kernel has, then when that has.
COPIES_AND_RUNS = """
stream = gpu.stream(); host, there = pinned(4 * MIB), check(driver.cuMemAlloc(4 * MIB))
copied, ran = (check(driver.cuEventCreate(0)) for _ in range(2)); print("ready", flush=True); sys.stdin.readline()
check(driver.cuMemcpyHtoDAsync(there, host, 4 * MIB, stream))
check(driver.cuMemcpyDtoHAsync(host, there, 4 * MIB, stream)); check(driver.cuEventRecord(copied, stream))
if sys.argv[1:] != ["no kernel"]: gpu.launch(gpu.kernel("empty"), stream)
check(driver.cuEventRecord(ran, stream)); print("launched", flush=True)
check(driver.cuEventSynchronize(copied)); print("copied", driver.cuEventQuery(ran)[0].name, flush=True)
check(driver.cuEventSynchronize(ran)); print("ran", flush=True); sys.stdin.readline()
"""


def test_copies_end_beside_the_kernel_of_an_equal_that_keeps_its_turn(
    tenant: Start, tenants_now: TenantsNow
) -> None:
    """They neither want the turn nor are they charged as GPU time."""
    runs = ready(tenant("opportunistic", PRELUDE + ENDLESS))
    wait_for(lambda: use(tenants_now(), runs).holds_turn)
    copier = ready(
        tenant("opportunistic", [sys.executable, "-u", "-c", PRELUDE + COPIES_AND_RUNS, "no kernel"])
    )
    copier.say("go")
    assert [copier.hear() for _ in range(2)][1].startswith("copied")
    assert copier.hear() == "ran"
    assert use(tenants_now(), runs).holds_turn
    assert use(tenants_now(), copier).used_ns == 0


# When it is told to: a kernel and a copy of so many bytes, both behind a word in host memory; sets that when it is told
# again.
WAITS_THEN_COPIES = """
size = int(sys.argv[1]); stream, other = gpu.stream(), gpu.stream()
host, there = pinned(max(size, 1)), check(driver.cuMemAlloc(max(size, 1)))
word = check(driver.cuMemHostAlloc(64, driver.CU_MEMHOSTALLOC_DEVICEMAP)); value = ctypes.c_uint32.from_address(word)
gpu.launch(gpu.kernel("empty"), stream); gpu.synchronize(); print("ready", flush=True); sys.stdin.readline()
for one in (stream, other):
    check(driver.cuStreamWaitValue32(one, word, 1, driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ))
gpu.launch(gpu.kernel("empty"), other)
if size: check(driver.cuMemcpyHtoDAsync(there, host, size, stream))
print("queued", flush=True); sys.stdin.readline(); value.value = 1
check(driver.cuStreamSynchronize(stream)); print("copied", flush=True); sys.stdin.readline()
"""


def beside(tenant: Start, size: int) -> tuple[Tenant, Tenant]:
    """A production job that has queued a kernel and a copy, and a job that is about to copy."""
    production = ready(
        tenant("production", [sys.executable, "-u", "-c", PRELUDE + WAITS_THEN_COPIES, str(size)])
    )
    below = ready(tenant("opportunistic", PRELUDE + COPIES_AND_RUNS))
    production.say("queue")
    assert production.hear() == "queued"
    below.say("go")
    assert below.hear() == "launched"
    return production, below


def slot_of(one: Tenant) -> segment.Slot:
    assert one.process
    bytes_now = Path(one.env["COTENANT_SEGMENT"]).read_bytes()
    for at in range(segment.PLACE, segment.SEGMENT_BYTES, segment.PLACE):
        slot = segment.Slot.from_buffer_copy(bytes_now, at)
        if segment.is_live(slot) and slot.pid == one.process.pid:
            return slot
    pytest.fail("no such tenant")


def may_copy(one: Tenant) -> bool:
    return bool(slot_of(one).copy_gates[0] == segment.GATE_OPEN)


def reasons_now(one: Tenant) -> list[str]:
    assert one.process
    seen = segment.read(Path(one.env["COTENANT_SEGMENT"]))
    (tenant,) = (other for other in seen.tenants if other.pid == one.process.pid)
    return list(wait_reasons.reasons(seen, tenant, tenant.uses[0], segment.now_ns()))


@pytest.mark.parametrize("size", [0, 4096])
def test_copies_go_on_beside_a_higher_class_that_does_not_use_the_bus(tenant: Start, size: int) -> None:
    """Kernels wait for it, whether it copies a little or nothing."""
    production, below = beside(tenant, size)
    assert below.hear() == "copied CUDA_ERROR_NOT_READY"
    production.say("go on")
    assert below.hear() == "ran"


def test_a_copy_of_a_higher_class_holds_copies_back_until_it_has_ended(
    tenant: Start, tenants_now: TenantsNow
) -> None:
    """And the one that waits is told so."""
    production, below = beside(tenant, 1 << 20)
    assert not may_copy(below)
    wait_for(lambda: use(tenants_now(), below).only_copies)
    assert production.process and below.process
    (why,) = reasons_now(below)
    assert re.fullmatch(
        rf"production .* \({production.process.pid}\) copies between host and GPU, and long copies of .* "
        rf"\({below.process.pid}\) wait for that",
        why,
    )
    production.say("go on")
    assert production.hear() == "copied"
    assert below.hear().startswith("copied")
    assert below.hear() == "ran"
    assert may_copy(below)


# When it is told to, copies 1 MiB, and puts a kernel into the same stream behind that, which outlasts the test.
COPIES_THEN_RUNS = ENDLESS.replace(
    "stream = gpu.stream(); gpu.launch",
    """host, there = pinned(MIB), check(driver.cuMemAlloc(MIB)); gpu.launch(gpu.kernel("empty")); gpu.synchronize()
print("here", flush=True); sys.stdin.readline()
if sys.argv[1] == "async": stream = gpu.stream(); check(driver.cuMemcpyHtoDAsync(there, host, MIB, stream))
else: stream = 0; check(driver.cuMemcpyHtoD(there, host, MIB))
gpu.launch""",
)


@pytest.mark.parametrize("call", ["async", "sync"])
def test_kernels_behind_a_copy_of_a_higher_class_hold_no_copies_back(
    tenant: Start, tenants_now: TenantsNow, call: str
) -> None:
    production = tenant("production", [sys.executable, "-u", "-c", PRELUDE + COPIES_THEN_RUNS, call])
    assert production.hear() == "here"
    below = ready(tenant("opportunistic", PRELUDE + "gpu.launch(gpu.kernel('empty'));" + COPIES_AND_RUNS))

    looks: set[int] = set()

    def has_looked() -> bool:
        """Production's watcher, who else is there: between the second heartbeat and the third."""
        assert production.process
        looks.update(t.heartbeat_ns for t in tenants_now() if t.pid == production.process.pid)
        return len(looks) > 2

    wait_for(has_looked)
    production.say("go")
    assert production.hear() == "ready"
    below.say("go")
    assert [below.hear() for _ in range(2)] == ["launched", "copied CUDA_ERROR_NOT_READY"]
    assert use(tenants_now(), production).busy


# One thread copies 64 MiB in pieces into a stream that waits for a word in host memory; when it is amid that, another
# launches into the same stream. Then all of it may go.
INTO_THE_SAME_STREAM = """
SIZE = 64 * MIB; stream = gpu.stream(); host, there = pinned(SIZE), int(check(driver.cuMemAlloc(SIZE)))
ctypes.memset(host, 5, SIZE)
word = check(driver.cuMemHostAlloc(64, driver.CU_MEMHOSTALLOC_DEVICEMAP)); value = ctypes.c_uint32.from_address(word)
while True:  # until copies are split
    before = gates(); check(driver.cuMemcpyHtoD(there, host, 4 * MIB))
    if gates() - before > 5: break
check(driver.cuMemsetD8(there, 0, SIZE)); gpu.synchronize()
check(driver.cuStreamWaitValue32(stream, word, 1, driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ))
def copy(): gpu.use(); check(driver.cuMemcpyHtoDAsync(there, host, SIZE, stream))
before = gates(); thread = threading.Thread(target=copy); thread.start()
while gates() == before: time.sleep(0.001)
gpu.launch(gpu.kernel("empty"), stream); thread.join(); print(gates() - before, flush=True)
value.value = 1; check(driver.cuStreamSynchronize(stream)); check(driver.cuMemcpyDtoH(host, there, SIZE))
print(set(ctypes.string_at(host, SIZE)) == {5})
"""


def test_a_call_into_the_same_stream_waits_for_no_more_than_a_piece(tenant: Start, slow_bus: str) -> None:
    """The rest of the copy is one piece then, though the stream stands still."""
    settings = {"COTENANT_SOFTGPU": slow_bus}
    production = ready(tenant("production", PRELUDE + USES_BUS, **settings))
    below = tenant("opportunistic", PRELUDE + INTO_THE_SAME_STREAM, **settings)
    gates, same = below.finish(120).split()
    assert int(gates) < 256 and same == "True"
    production.say("stop")


# For each line that it hears: how many gates a copy of 16 MiB has.
GATES_OF_A_COPY = """
SIZE = 16 * MIB; host, there = pinned(SIZE), int(check(driver.cuMemAlloc(SIZE))); print("ready", flush=True)
for line in sys.stdin:
    before = gates(); check(driver.cuMemcpyHtoD(there, host, SIZE)); print(gates() - before, flush=True)
"""


def test_pieces_are_longer_beside_short_copies_of_a_higher_class_that_tolerates_overlap(
    tenant: Start,
) -> None:
    production = ready(tenant("production", PRELUDE + USES_BUS))
    below = ready(tenant("opportunistic", PRELUDE + GATES_OF_A_COPY))

    def gates() -> int:
        below.say("copy")
        return int(below.hear())

    wait_for(lambda: gates() > 100)
    steer(production, "tolerant_until_ns", in_a_while())
    wait_for(lambda: 1 < gates() < 50)
    steer(production, "tolerant_until_ns", 0)
    wait_for(lambda: gates() > 100)
    production.say("stop")
