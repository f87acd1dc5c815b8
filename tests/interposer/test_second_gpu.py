"""What holds on one GPU holds on a second one by itself: its gates, its gates for copies, and the graphs that stand."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from tests.conftest import REAL_GPU
from tests.interposer.conftest import COMPANY
from tests.interposer.test_gates import OBEDIENT, order, ready, rested, wait_until_idle
from tests.interposer.test_host_copies import beside, slot_of
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]

pytestmark = pytest.mark.skipif(REAL_GPU, reason="two software GPUs")


@pytest.fixture
def start(tenant: Start) -> Start:
    """`start("production", source)`: a tenant on the second of two GPUs, which the segment knows as its second."""
    two = {"COTENANT_SOFTGPU": "small,small"}
    assert tenant("production", COMPANY, **two).hear() == "here"

    def start(tenant_class: str, source: str | list[str], gpu: int = 1) -> Tenant:
        words = [source] if isinstance(source, str) else source
        there = [word.replace("Gpu()", f"Gpu({gpu})") for word in words]
        return tenant(tenant_class, there[0] if isinstance(source, str) else there, **two)

    return start


def test_its_gates_are_its_own(start: Start) -> None:
    high, low = rested(start("production", OBEDIENT)), rested(start("opportunistic", OBEDIENT))
    elsewhere = rested(start("opportunistic", OBEDIENT, gpu=0))
    order(high, "begin")
    order(low, "queue 5")
    for _ in range(20):
        assert order(elsewhere, "work 1") == "did work"
        wait_until_idle(elsewhere)
        assert order(low, "done?") == "False"
    order(elsewhere, "begin")
    order(high, "end")
    wait_for(lambda: order(low, "done?") == "True")


def test_its_gates_for_copies_are_its_own(start: Start) -> None:
    production, below = beside(start, 1 << 20)
    assert [gate == segment.GATE_OPEN for gate in slot_of(below).copy_gates[:2]] == [True, False]
    assert below.process and below.process.stdout
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        assert not select.select([below.process.stdout], [], [], 0.01)[0], "it has copied"
    production.say("go on")
    assert production.hear() == "copied"
    assert below.hear().startswith("copied")
    assert below.hear() == "ran"


# Launches a graph on the first GPU that can be stopped inside, then, when it is told to, a kernel on the second.
ON_BOTH = """
import ctypes, sys
from soft import Gpu, check, driver
first, second = Gpu(0), Gpu(1); there = second.stream(); spin = second.kernel('spin')
first.use(); here = first.stream(); kernel = first.kernel('long')
for _ in range(6): first.launch(kernel, here)
check(driver.cuStreamSynchronize(here))
check(driver.cuStreamBeginCapture(here, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
for _ in range(150): first.launch(kernel, here)
check(driver.cuGraphLaunch(check(driver.cuGraphInstantiate(check(driver.cuStreamEndCapture(here)), 0)), here))
print('ready', flush=True)
for line in sys.stdin:
    second.use()
    if line.strip() == 'queue':
        second.launch(spin, there, ((1_500_000,), (ctypes.c_uint64,))); print('queued', flush=True)
    else: print(driver.cuStreamQuery(there)[0] == driver.CUresult.CUDA_SUCCESS, flush=True)
"""


@pytest.mark.timeout(120)
def test_a_graph_that_stands_on_one_hides_nothing_on_the_other(start: Start) -> None:
    here, there = rested(start("production", OBEDIENT, gpu=0)), rested(start("production", OBEDIENT))
    low = ready(start("opportunistic", ON_BOTH))
    order(here, "begin")
    wait_for(lambda: not slot_of(low).gpus[0].on)
    before = slot_of(low).gpus[1].used_ns
    assert order(low, "queue") == "queued"
    wait_for(lambda: slot_of(low).gpus[1].used_ns > before + 50_000_000)  # it runs, and is not about to
    order(there, "begin")
    # Its kernel is on the GPU until it has ended, though its gate is shut: who comes next has to know.
    looks = set[int]()
    while len(looks) < 100:
        slot = slot_of(low)
        looks.add(slot.heartbeat_ns)
        if not slot.gpus[1].on:
            assert order(low, "done?") == "True"
            break
    for one in (here, there):
        order(one, "end")
