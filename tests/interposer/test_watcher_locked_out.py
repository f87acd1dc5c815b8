"""A watcher that cannot ask the streams, as the driver keeps a thread that holds their lock, takes none for empty."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REAL_GPU

if TYPE_CHECKING:
    from tests.conftest import RunPython
    from tests.interposer.conftest import Tenant

pytestmark = pytest.mark.skipif(REAL_GPU, reason="a driver of the test's own")

# Registering memory takes until the test says so: gates are mapped with the lock held.
SLOW_DRIVER = """
#include <unistd.h>
int waits, began[2], goes_on[2];
int cuMemHostRegister_v2(void* at, unsigned long bytes, unsigned flags) {
    static int (*real)(void*, unsigned long, unsigned);
    char byte = 0;
    if (!real) *(void**)&real = dlsym(RTLD_NEXT, "cuMemHostRegister_v2");
    if (waits && (write(began[1], &byte, 1) != 1 || read(goes_on[0], &byte, 1) != 1)) return 999;
    return real(at, bytes, flags);
}
"""
WORKS = """
import ctypes, os, threading, time
from pathlib import Path
from cuda.bindings import driver
from cotenant import segment
from soft import Gpu, check
own = ctypes.CDLL(os.environ['COTENANT_DRIVER'])
began, goes_on = os.pipe(), os.pipe()
for name, pipe in (('began', began), ('goes_on', goes_on)): (ctypes.c_int * 2).in_dll(own, name)[:] = pipe
waits = ctypes.c_int.in_dll(own, 'waits')
gpu = Gpu(); stream = gpu.stream(); empty = gpu.kernel('empty')
word = check(driver.cuMemHostAlloc(64, driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP))
value = ctypes.c_uint32.from_address(word); value.value = 0
gpu.launch(empty, stream)
def here():
    tenants = segment.read(Path(os.environ['COTENANT_SEGMENT'])).tenants
    return next(one for one in tenants if one.pid == os.getpid())
# As long as the word is 0 there is work on the GPU.
check(driver.cuStreamWaitValue32(stream, word, 1, driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ))
gpu.launch(empty, stream)
def in_another_context():
    check(driver.cuCtxCreate(None, 0, gpu.device))
    module = check(driver.cuModuleLoadData(b'softgpu 1\\nkernel one time=1us\\n'))
    gpu.launch(check(driver.cuModuleGetFunction(module, b'one')), gpu.stream()); gpu.synchronize()
waits.value = 1
thread = threading.Thread(target=in_another_context); thread.start(); os.read(began[0], 1)
beats, idle = set(), 0
while len(beats) < 40 and not idle:
    now = here(); beats.add(now.heartbeat_ns); idle += not now.uses[0].busy; time.sleep(0.0005)
waits.value = 0; os.write(goes_on[1], b'x'); value.value = 1; thread.join(); gpu.use(); gpu.synchronize()
print('idle' if idle else 'at work')
"""


def test_work_on_the_gpu_stays_work(
    company: Tenant, preloaded: dict[str, str], run_python: RunPython, driver_with: Callable[[str], Path]
) -> None:
    told = {"COTENANT_DRIVER": str(driver_with(SLOW_DRIVER)), "COTENANT_CLASS": "opportunistic"}
    done = run_python(WORKS, preloaded | told)
    assert done.stdout.splitlines() == ["at work"], done.stderr
    company.say("")
