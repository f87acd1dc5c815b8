"""The ledger has what the GPU itself says: every way to take memory counts, and is given back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.waiting import wait_for

if TYPE_CHECKING:
    from cotenant import segment
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

MiB = 1 << 20

EVERY_WAY = """
import json
from soft import Gpu
from memory_ways import WAYS, counted, taken
gpu = Gpu()
for name, way in WAYS.items():
    for size in (1000, 3 << 20, 40 << 20):
        row = [name, size, counted(), taken()]
        give_back = way(size)
        row += [counted(), taken()]
        give_back()
        print(json.dumps([*row, counted(), taken()]))
"""


def test_every_way_to_take_memory_is_counted_and_given_back(tenant: Start) -> None:
    rows = [
        json.loads(line) for line in tenant("standard", EVERY_WAY, COTENANT_MEMORY="1G").finish().splitlines()
    ]
    assert len({row[0] for row in rows}) == 14
    for name, size, before, truly_before, during, truly_during, after, truly_after in rows:
        assert (before, truly_before) == (0, 0), name
        assert during == truly_during >= size, name
        assert (after, truly_after) == (0, 0), name


def test_without_a_limit_pools_are_counted_too(tenant: Start, tenants_now: TenantsNow) -> None:
    one = tenant(
        "standard",
        "from soft import Gpu, check, driver\n"
        "gpu = Gpu(); check(driver.cuMemAllocAsync(1000, 0)); check(driver.cuMemAlloc(3 << 20))\n"
        "print('here', flush=True); input()",
    )
    assert one.hear() == "here"
    wait_for(lambda: [use.memory_bytes for t in tenants_now() for use in t.uses] == [(32 + 4) * MiB])
    one.say("")
    one.finish()


FAILED_FREES = """
from soft import Gpu, check, driver
gpu = Gpu(); stream = gpu.stream()
pieces = [check(driver.cuMemAlloc(size)) for size in (40 << 20, 1000, 2000)]
layout = driver.CUDA_ARRAY3D_DESCRIPTOR(); layout.Width = layout.Height = 1024; layout.NumChannels = 1
layout.Format = driver.CUarray_format.CU_AD_FORMAT_FLOAT; array = check(driver.cuArray3DCreate(layout))
print('taken', flush=True); input()
def failing(free, what):
    check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    print(int(free(what)[0]) != 0, end=' '); driver.cuStreamEndCapture(stream)
for piece in pieces: failing(driver.cuMemFree, piece)
failing(driver.cuArrayDestroy, array); print(int(driver.cuMemFree(int(pieces[0]) + 512)[0]) != 0, flush=True); input()
for piece in pieces: check(driver.cuMemFree(piece))
check(driver.cuArrayDestroy(array)); print('freed', flush=True); input()
"""


@pytest.mark.parametrize("tenant_class", ["standard", "opportunistic"])
def test_a_free_that_failed_gives_nothing_back(
    tenant: Start, tenants_now: TenantsNow, tenant_class: str
) -> None:
    """During a capture most frees are refused: what they are of stays taken, and is free when it was freed."""
    one = tenant(tenant_class, FAILED_FREES, COTENANT_MEMORY="128M")

    def counted() -> int:
        return sum(use.memory_bytes for about in tenants_now() for use in about.uses)

    assert one.hear() == "taken"
    taken = counted()
    assert taken == (40 + 2 + 4) * MiB
    one.say("")
    assert one.hear().split() == ["True"] * 5
    assert counted() == taken
    one.say("")
    assert one.hear() == "freed"
    assert counted() == 0
    one.say("")
    one.finish()


PLAYER = """
import json, sys
from soft import Gpu
from memory_ways import WAYS, counted, taken
gpu = Gpu()
print('ready', flush=True)
for line in sys.stdin:
    held, seen = [], []
    for name, value in json.loads(line):
        if name == 'give':
            if held: held.pop(value % len(held))()
        else:
            held.append(WAYS[name](value))
        seen.append([counted(), taken()])
    for give_back in held: give_back()
    print(json.dumps([*seen, [counted(), taken()]]), flush=True)
"""
# What releases memory only when something else happens would differ for reasons that are not the ledger's.
AT_ONCE = (
    "plain",
    "rows",
    "managed",
    "physical",
    "mapped",
    "retained",
    "array",
    "box",
    "in_order",
    "from_own_pool",
)
SIZES = st.one_of(
    st.integers(1, 4096),
    st.integers(1, 3 * MiB),
    st.sampled_from([MiB, MiB + 1, 2 * MiB - 1, 2 * MiB, 2 * MiB + 1]),
)
STEPS = st.one_of(st.tuples(st.sampled_from(AT_ONCE), SIZES), st.tuples(st.just("give"), st.integers(0, 100)))


@pytest.fixture
def player(tenant: Start) -> Iterator[Tenant]:
    one = tenant("standard", PLAYER, COTENANT_MEMORY="1G")
    assert one.hear() == "ready"
    yield one


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=25))
def test_whatever_is_taken_and_given_the_ledger_is_what_the_gpu_says(
    player: Tenant, steps: list[tuple[str, int]]
) -> None:
    player.say(json.dumps(steps))
    seen = json.loads(player.hear())
    assert [counted for counted, _ in seen] == [taken for _, taken in seen]
    assert seen[-1] == [0, 0]


def test_an_array_of_one_row_counts_as_the_tiles_that_it_lies_in(tenant: Start) -> None:
    """As NVIDIA's driver stores it, eight rows high; the software GPU has no tiles."""
    one = tenant(
        "standard",
        """
from soft import Gpu, check, driver
from memory_ways import counted
gpu = Gpu(); wanted = driver.CUDA_ARRAY_DESCRIPTOR(); wanted.Width, wanted.Height = 1 << 16, 1
wanted.Format, wanted.NumChannels = driver.CUarray_format.CU_AD_FORMAT_FLOAT, 4; before = counted()
array = check(driver.cuArrayCreate(wanted)); print(counted() - before >> 20)
check(driver.cuArrayDestroy(array)); print(counted() - before)
""",
    )
    assert one.finish().split() == ["8", "0"]


def test_small_arrays_share_the_drivers_pages(tenant: Start) -> None:
    one = tenant(
        "standard",
        """
from soft import Gpu, check, driver
from memory_ways import counted
gpu = Gpu(); wanted = driver.CUDA_ARRAY_DESCRIPTOR(); wanted.Width, wanted.Height = 1024, 160
wanted.Format, wanted.NumChannels = driver.CUarray_format.CU_AD_FORMAT_FLOAT, 1; before = counted()
arrays = []
for _ in range(7): arrays.append(check(driver.cuArrayCreate(wanted))); print(counted() - before >> 20)
while arrays: check(driver.cuArrayDestroy(arrays.pop())); print(counted() - before >> 20)
""",
    )
    # 640 KiB each, in pages of 2 MiB.
    assert [int(word) for word in one.finish().split()] == [2, 2, 2, 4, 4, 4, 6, 4, 4, 4, 2, 2, 2, 0]


def test_pointers_that_are_nobodys_change_nothing(tenant: Start) -> None:
    one = tenant(
        "standard",
        """
from soft import Gpu, check, driver
from memory_ways import counted, plain
gpu = Gpu(); keep = plain(5 << 20); before = counted()
print([int(driver.cuMemFree(p)[0]) for p in (12345, 7 << 40)])
print([int(driver.cuMemFreeAsync(p, 0)[0]) for p in (12345, 7 << 40)])
print(int(driver.cuMemRelease(4711)[0]), int(driver.cuArrayDestroy(4711)[0]), int(driver.cuMemFree(0)[0]))
pointer = check(driver.cuMemAlloc(9 << 20)); check(driver.cuMemFree(pointer))
print(int(driver.cuMemFree(pointer)[0]), counted() - before)
""",
        COTENANT_MEMORY="1G",
    )
    assert one.finish().splitlines() == ["[1, 1]", "[1, 1]", "1 400 0", "1 0"]


def test_a_context_takes_its_memory_with_it(tenant: Start) -> None:
    one = tenant(
        "standard",
        """
from soft import Gpu, check, driver
from memory_ways import array, counted, in_order, mapped, plain, taken
gpu = Gpu(); stays = mapped(4 << 20); in_order(6 << 20)
for _ in range(2): plain(1000)
plain(7 << 20); array(9 << 20)
print(counted() == taken(), counted() > 20 << 20)
other = check(driver.cuCtxCreate(None, 0, gpu.device)); plain(1000); plain(30 << 20)
print(counted() == taken())
check(driver.cuCtxDestroy(other)); gpu.use()
print(counted() == taken())
check(driver.cuDevicePrimaryCtxReset(gpu.device))
context = check(driver.cuDevicePrimaryCtxRetain(gpu.device)); check(driver.cuCtxSetCurrent(context))
print(counted() == taken() == 4 << 20)
stays(); print(counted(), taken())
""",
        COTENANT_MEMORY="1G",
    )
    assert one.finish().splitlines() == ["True True", "True", "True", "True", "0 0"]


def test_a_destroyed_pool_leaves_what_was_allocated_from_it(tenant: Start) -> None:
    one = tenant(
        "standard",
        """
from soft import Gpu, check, driver
from memory_ways import counted, pool_properties, taken
gpu = Gpu(); pool = check(driver.cuMemPoolCreate(pool_properties()))
pointers = [check(driver.cuMemAllocFromPoolAsync(8 << 20, pool, 0)) for _ in range(2)]
check(driver.cuMemPoolDestroy(pool))
print(counted() >> 20)
for pointer in pointers: check(driver.cuMemFreeAsync(pointer, 0))
check(driver.cuCtxSynchronize())
print(counted(), taken())
""",
        COTENANT_MEMORY="1G",
    )
    assert one.finish().splitlines() == ["16", "0 0"]


def test_what_a_capture_allocates_from_a_pool_is_nothing_of_the_pools(tenant: Start) -> None:
    """Nor is it left behind when the pool is destroyed."""
    one = tenant(
        "standard",
        """
from soft import Gpu, check, driver
from memory_ways import counted, pool_properties, taken
gpu = Gpu(); stream = gpu.stream(); mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
for _ in range(3):
    pool = check(driver.cuMemPoolCreate(pool_properties()))
    check(driver.cuStreamBeginCapture(stream, mode))
    check(driver.cuMemFreeAsync(check(driver.cuMemAllocFromPoolAsync(8 << 20, pool, stream)), stream))
    check(driver.cuGraphDestroy(check(driver.cuStreamEndCapture(stream)))); check(driver.cuMemPoolDestroy(pool))
print(counted(), taken())
""",
        COTENANT_MEMORY="1G",
    )
    assert one.finish().splitlines() == ["0 0"]


def test_a_pool_that_cannot_be_destroyed_counts_as_before(tenant: Start) -> None:
    """A device's own pool, beside one of the program's."""
    one = tenant(
        "standard",
        """
from soft import Gpu, check, driver
from memory_ways import counted, pool_properties, taken
gpu = Gpu(); check(driver.cuMemPoolCreate(pool_properties()))
pool = check(driver.cuDeviceGetDefaultMemPool(gpu.device))
def allocate(): check(driver.cuMemAllocAsync(40 << 20, 0)); return counted() == taken() > 0
print(allocate(), driver.cuMemPoolDestroy(pool)[0].name, counted() == taken(), allocate())
""",
        COTENANT_MEMORY="1G",
    )
    assert one.finish().split() == ["True", "CUDA_ERROR_INVALID_VALUE", "True", "True"]


def test_memory_counts_on_the_gpu_where_it_is_whichever_is_current(
    tenant: Start, tenants_now: TenantsNow
) -> None:
    """The second GPU's, with the first one current; the host's counts nowhere."""
    one = tenant(
        "standard",
        """
from soft import Gpu, check, driver
from memory_ways import location, physical_properties, pool_properties
def wait(): print('next', flush=True); input()
a, b = Gpu(0), Gpu(1); b.use(); theirs = b.stream(); a.use()
check(driver.cuMemAlloc(2 << 20)); properties = physical_properties(), pool_properties()
def places(kind, number):
    for one in properties: place = location(kind); place.id = number; one.location = place
places('DEVICE', 1); handle = check(driver.cuMemCreate(6 << 20, properties[0], 0)); wait()
pool = check(driver.cuMemPoolCreate(properties[1]))
pooled = check(driver.cuMemAllocFromPoolAsync(40 << 20, pool, 0)); wait()
check(driver.cuMemAllocAsync(8 << 20, theirs)); wait()
for place in ('HOST', 'HOST_NUMA'):
    places(place, 0); print(driver.cuMemCreate(6 << 20, properties[0], 0)[0].value, end=' ')
wait(); check(driver.cuMemRelease(handle)); check(driver.cuMemFreeAsync(pooled, 0)); check(driver.cuCtxSynchronize())
check(driver.cuMemPoolDestroy(pool)); wait()
""",
        COTENANT_SOFTGPU="small,small",
        COTENANT_MEMORY="200M",
    )

    def counted() -> list[int]:
        one.hear()
        found = [use.memory_bytes // MiB for t in tenants_now() for use in t.uses]
        one.say("")
        return found

    assert [counted() for _ in range(5)] == [[2, 6], [2, 46], [2, 78], [2, 78], [2, 32]]
    one.finish()


def test_what_is_not_given_back_by_a_failed_end_of_its_context_stays_counted(tenant: Start) -> None:
    """A primary context is not destroyed; and what a pool has let go of counts no more, though nobody asks."""
    one = tenant(
        "standard",
        """
from soft import Gpu, check, driver
from memory_ways import counted, kept_in_pool, plain, taken
gpu = Gpu(); stream = gpu.stream(); give_back = plain(30 << 20); trim = kept_in_pool(40 << 20)
print(driver.cuCtxDestroy(gpu.context)[0].name, counted(False) == taken(), taken() >> 20)
gpu.use(); gpu.launch(gpu.kernel('empty'), stream); check(driver.cuStreamSynchronize(stream))
trim(); print(counted(False) == taken() == 30 << 20)
give_back(); print(counted(False), taken())
""",
        COTENANT_MEMORY="1G",
    )
    assert one.finish().splitlines() == ["CUDA_ERROR_INVALID_CONTEXT True 70", "True", "0 0"]
    assert one.total("kernels") == 1


def test_each_gpu_has_its_own_account(tenant: Start, tenants_now: TenantsNow) -> None:
    one = tenant(
        "standard",
        """
from soft import Gpu, check, driver
a, b = Gpu(0), Gpu(1)
a.use(); check(driver.cuMemAlloc(60 << 20)); print(int(driver.cuMemAlloc(60 << 20)[0]))
b.use(); check(driver.cuMemAlloc(80 << 20)); print(int(driver.cuMemAlloc(30 << 20)[0]))
print([x >> 20 for x in check(driver.cuMemGetInfo())]); input()
""",
        COTENANT_SOFTGPU="small,small",
        COTENANT_MEMORY="100M",
    )
    assert [one.hear() for _ in range(3)] == ["2", "2", "[20, 100]"]
    assert [use.memory_bytes // MiB for t in tenants_now() for use in t.uses] == [60, 80]
    assert [use.refused for t in tenants_now() for use in t.uses] == [1, 1]
    one.say("")
    one.finish()
