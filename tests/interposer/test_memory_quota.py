"""A tenant's memory limit holds, for all its processes together, and is all that it sees of the GPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.waiting import wait_for

if TYPE_CHECKING:
    from cotenant import segment
    from tests.conftest import Run, RunPython
    from tests.interposer.conftest import Compile, Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

MiB = 1 << 20


def test_at_the_limit_it_is_the_drivers_own_error(tenant: Start) -> None:
    one = tenant(
        "standard",
        """
from soft import Gpu, driver
from memory_ways import WAYS
gpu = Gpu()
for name, way in WAYS.items():
    try: way(200 << 20); print(name, 'got it')
    except RuntimeError as error: print(name, error)
""",
        COTENANT_MEMORY="100M",
    )
    # A graph's memory is taken when it is launched: making its nodes is no allocation yet.
    not_yet = {"graph_node", "captured"}
    for line in one.finish().splitlines():
        name, said = line.split(" ", 1)
        if name not in not_yet:
            assert "CUDA_ERROR_OUT_OF_MEMORY" in said, name


def test_an_amount_that_no_number_holds_is_the_drivers_to_refuse(tenant: Start) -> None:
    source = """
from soft import Gpu, driver
gpu = Gpu()
for width, height in ((2**64 - 4, 3), (1 << 40, 1 << 40), (2**64 - 512, 1)):
    print(driver.cuMemAllocPitch(width, height, 4)[0].name)
"""
    told = tenant("standard", source, COTENANT_MEMORY="100M").finish()
    assert told == tenant("production", source).finish() and "CUDA_ERROR_INVALID_VALUE" in told


@pytest.mark.parametrize(("limit", "mebibytes"), [("100M", 100), ("25%", 256), ("0.5G", 512), ("2T", 1024)])
def test_the_limit_is_all_that_the_program_sees(tenant: Start, limit: str, mebibytes: int) -> None:
    one = tenant(
        "standard",
        """
import json, pynvml
from soft import Gpu, check, driver
check(driver.cuInit(0)); total = check(driver.cuDeviceTotalMem(0))
gpu = Gpu(); before = check(driver.cuMemGetInfo())
check(driver.cuMemAlloc(30 << 20)); check(driver.cuMemAllocAsync(1000, 0))
after = check(driver.cuMemGetInfo())
pynvml.nvmlInit(); device = pynvml.nvmlDeviceGetHandleByIndex(0)
nvml = [pynvml.nvmlDeviceGetMemoryInfo(device), pynvml.nvmlDeviceGetMemoryInfo(device, pynvml.nvmlMemory_v2)]
name = pynvml.nvmlDeviceGetName(device)
print(json.dumps([total, *before, *after, *([n.total, n.free, n.used] for n in nvml), name]))
""",
        COTENANT_MEMORY=limit,
    )
    total, free, total_here, free_after, total_after, plain, second, name = json.loads(one.finish())
    whole = mebibytes * MiB
    assert (total, free, total_here) == (whole, whole, whole)
    assert (free_after, total_after) == (whole - 62 * MiB, whole)
    assert plain == second == [whole, whole - 62 * MiB, 62 * MiB]
    assert name == "Cotenant Software GPU"


def test_without_a_limit_nothing_is_different(tenant: Start) -> None:
    one = tenant(
        "standard",
        "from soft import Gpu, check, driver\ngpu = Gpu(); check(driver.cuMemAlloc(30 << 20))\n"
        "print([x >> 20 for x in check(driver.cuMemGetInfo())])",
    )
    assert one.finish() == "[994, 1024]\n"


def test_what_is_free_can_be_taken_and_no_more(tenant: Start) -> None:
    one = tenant(
        "standard",
        """
from soft import Gpu, check, driver
gpu = Gpu(); pointers = [check(driver.cuMemAlloc(13 << 20)), check(driver.cuMemAlloc(100))]
free, _ = check(driver.cuMemGetInfo())
print(int(driver.cuMemAlloc(free + 1)[0])); pointers.append(check(driver.cuMemAlloc(free)))
print(check(driver.cuMemGetInfo())[0], int(driver.cuMemAlloc(100)[0]))
for pointer in pointers: check(driver.cuMemFree(pointer))
check(driver.cuMemAlloc(check(driver.cuMemGetInfo())[0]))
""",
        COTENANT_MEMORY="100M",
    )
    assert one.finish().splitlines() == ["2", "0 2"]


def test_at_the_limit_pools_give_back_what_they_keep_unused(tenant: Start) -> None:
    one = tenant(
        "standard",
        """
from soft import Gpu, check, driver
from memory_ways import kept_in_pool, counted
gpu = Gpu(); kept_in_pool(60 << 20); print(counted() >> 20)
check(driver.cuMemAlloc(90 << 20)); print(counted() >> 20)
""",
        COTENANT_MEMORY="100M",
    )
    assert one.finish().splitlines() == ["60", "90"]


def test_a_full_tenant_still_allocates_from_what_its_pool_holds(tenant: Start) -> None:
    one = tenant(
        "standard",
        """
from soft import Gpu, check, driver
gpu = Gpu(); first = check(driver.cuMemAllocAsync(1 << 20, 0)); check(driver.cuMemAlloc(68 << 20))
print([int(driver.cuMemAllocAsync(10 << 20, 0)[0]) for _ in range(4)])
""",
        COTENANT_MEMORY="100M",
    )
    assert one.finish() == "[0, 0, 0, 2]\n"


# The software GPU has no memory of graphs apart from its pool.
GRAPH_MEMORY = (
    "int cuDeviceGetGraphMemAttribute(int gpu, int which, unsigned long long* out) { return *out = 0; }"
)


def test_what_a_graph_will_take_is_free_when_its_executable_has_ended(
    preloaded: dict[str, str], run_python: RunPython, driver_with: Callable[[str], Path]
) -> None:
    source = """
from soft import Gpu, check, driver
gpu = Gpu(); stream = gpu.stream(); take = lambda: int(driver.cuMemAlloc(150 << 20)[0])
check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
check(driver.cuMemFreeAsync(check(driver.cuMemAllocAsync(60 << 20, stream)), stream))
graph = check(driver.cuStreamEndCapture(stream)); executable = check(driver.cuGraphInstantiate(graph, 0))
check(driver.cuGraphDestroy(graph))
print(take()); check(driver.cuGraphExecDestroy(executable)); print(take())
"""
    told = {"COTENANT_DRIVER": str(driver_with(GRAPH_MEMORY)), "COTENANT_MEMORY": "200M"}
    done = run_python(source, preloaded | told)
    assert done.stdout.split() == ["2", "0"], done.stderr


def test_what_a_graph_will_take_is_free_when_its_context_has_ended(
    preloaded: dict[str, str], run_python: RunPython, driver_with: Callable[[str], Path]
) -> None:
    source = """
from soft import Gpu, check, driver
gpu = Gpu(); stream = gpu.stream(); take = lambda: int(driver.cuMemAlloc(150 << 20)[0])
check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
check(driver.cuMemFreeAsync(check(driver.cuMemAllocAsync(60 << 20, stream)), stream))
executable = check(driver.cuGraphInstantiate(check(driver.cuStreamEndCapture(stream)), 0)); print(take())
check(driver.cuDevicePrimaryCtxReset(0)); gpu = Gpu(); print(take())
"""
    told = {"COTENANT_DRIVER": str(driver_with(GRAPH_MEMORY)), "COTENANT_MEMORY": "200M"}
    done = run_python(source, preloaded | told)
    assert done.stdout.split() == ["2", "0"], done.stderr


# As soon as the last has released a primary context, another thread retains it again.
RETAINED_AGAIN = """
static unsigned long long lives = 1;
int cuCtxGetId(void* context, unsigned long long* out) { *out = lives; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) {
    int (*real)(int) = dlsym(RTLD_NEXT, "cuDevicePrimaryCtxRelease_v2");
    int (*retain)(void**, int) = dlsym(RTLD_NEXT, "cuDevicePrimaryCtxRetain");
    int (*state)(int, unsigned*, int*) = dlsym(RTLD_NEXT, "cuDevicePrimaryCtxGetState");
    unsigned flags; int active, result = real(device); void* context;
    state(device, &flags, &active);
    return active || result ? result : (++lives, retain(&context, device));
}
"""


def test_memory_goes_with_a_primary_context_that_another_thread_retains_at_once(
    preloaded: dict[str, str], run_python: RunPython, driver_with: Callable[[str], Path]
) -> None:
    source = """
import ctypes
from soft import Gpu, driver
library = ctypes.CDLL('libcuda.so.1')  # the bindings would find the software GPU's own
for life in range(3):
    gpu = Gpu(); print(*(int(driver.cuMemAlloc(150 << 20)[0]) for _ in range(2)))
    for _ in range(1 + (life > 0)): assert library.cuDevicePrimaryCtxRelease_v2(0) == 0
"""
    told = {"COTENANT_DRIVER": str(driver_with(RETAINED_AGAIN)), "COTENANT_MEMORY": "200M"}
    done = run_python(source, preloaded | told)
    assert done.stdout.splitlines() == ["0 2"] * 3, done.stderr


# Four processes of eight threads; each looks, whenever it got memory, what all of them have.
HAMMER = """
import os, random, subprocess, sys, threading
from soft import Gpu, driver
from memory_ways import taken
LIMIT = 100 << 20
def work(number):
    chance = random.Random(f'{os.getpid()} {number}'); gpu.use(); held = []; most = got = refused = 0
    for _ in range(40):
        if held and chance.random() < 0.5: driver.cuMemFree(held.pop())
        result, pointer = driver.cuMemAlloc(chance.choice((1000, 1 << 20, 5 << 20, 20 << 20)))
        if result == 0: held.append(pointer); got += 1
        else: assert int(result) == 2, result; refused += 1
        if chance.random() < 0.2: most = max(most, taken(everybody=True))
    for pointer in held: driver.cuMemFree(pointer)
    figures.append((most, got, refused))
if len(sys.argv) == 1:
    others = [subprocess.Popen([sys.executable, '-c', os.environ['HAMMER'], 'child']) for _ in range(3)]
gpu = Gpu(); figures = []
threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
assert len(figures) == 8 and max(f[0] for f in figures) <= LIMIT, figures
assert sum(f[1] for f in figures) > 8, figures
if len(sys.argv) == 1:
    assert all(other.wait() == 0 for other in others)
    print(sum(f[2] for f in figures) > 0, driver.cuMemAlloc(LIMIT)[0] == 0)
"""


def test_the_limit_holds_for_many_threads_of_many_processes(tenant: Start) -> None:
    one = tenant("standard", HAMMER, COTENANT_MEMORY="100M", HAMMER=HAMMER)
    assert one.finish() == "True True\n"


FAMILY = """
import os, subprocess, sys
from soft import Gpu, driver
if len(sys.argv) == 1:
    command = [sys.executable, '-u', '-c', os.environ['FAMILY'], 'child']
    child = subprocess.Popen(command, stdin=-1, stdout=-1, text=True)
    child.stdout.readline()
gpu = Gpu(); print('ready', driver.cuMemAlloc(70 << 20)[0] == 0, flush=True)
for line in sys.stdin:
    if line == 'child\\n': print(child.pid, flush=True)
    elif line == 'reap\\n': print(child.wait(), flush=True)
    else: print(int(driver.cuMemAlloc(int(line) << 20)[0]), flush=True)
"""


def test_what_a_killed_process_had_is_free_again(tenant: Start, tenants_now: TenantsNow) -> None:
    one = tenant("standard", FAMILY, COTENANT_MEMORY="100M", FAMILY=FAMILY)
    assert one.hear() == "ready False"
    one.say("child")
    os.kill(int(one.hear()), signal.SIGKILL)
    one.say("reap")
    assert one.hear() == str(-signal.SIGKILL)
    wait_for(lambda: len(tenants_now()) == 1)
    one.say("70")
    assert one.hear() == "0"


def test_a_limit_is_changed_while_the_tenant_runs(
    tenant: Start, tenants_now: TenantsNow, cotenant: Run
) -> None:
    one = tenant("standard", FAMILY, COTENANT_MEMORY="100M", FAMILY=FAMILY)
    assert one.hear() == "ready False"
    pids = sorted(t.pid for t in tenants_now())
    assert len(pids) == 2

    def change(pid: int, limit: str) -> str:
        done = cotenant("ctl", str(pid), "--memory", limit, env=one.env)
        assert done.returncode == 0, done.stderr
        wait_for(lambda: all(t.asked == () for t in tenants_now()))
        return done.stderr

    # By the PID of one process the job is meant, and all its processes.
    assert change(pids[0], "200M") == f"python-code ({pids[0]}, {pids[1]}): memory up to 200M\n"
    assert len({t.memory_limit for t in tenants_now()}) == 1
    one.say("100")
    assert one.hear() == "0"
    # Below what it has: nothing is taken away, and nothing more is given.
    change(pids[1], "10%")
    one.say("1")
    assert one.hear() == "2"
    change(pids[0], "none")
    one.say("400")
    assert one.hear() == "0"


def test_a_process_that_comes_later_has_the_limit_of_now(
    tenant: Start, tenants_now: TenantsNow, cotenant: Run
) -> None:
    later = (
        "from soft import Gpu, driver\ngpu = Gpu()\n"
        "print([int(driver.cuMemAlloc(size << 20)[0]) for size in (60, 60)])"
    )
    one = tenant(
        "standard",
        """
import os, subprocess, sys
from soft import Gpu, driver
gpu = Gpu(); print(int(driver.cuMemAlloc(1 << 20)[0]), flush=True); input()
subprocess.run([sys.executable, '-c', os.environ['LATER']], check=True)
""",
        COTENANT_MEMORY="50M",
        LATER=later,
    )
    assert one.hear() == "0"
    (running,) = tenants_now()
    done = cotenant("ctl", str(running.pid), "--memory", "100M", env=one.env)
    assert done.returncode == 0, done.stderr
    one.say("")
    assert one.finish().strip() == "[0, 2]"


def test_a_child_forked_before_cuda_shares_the_limit_and_one_after_leaves_it_alone(tenant: Start) -> None:
    one = tenant(
        "standard",
        """
import os
from soft import Gpu, check, driver
ready, go = os.pipe()
early = os.fork()
if early == 0:
    os.read(ready, 1); gpu = Gpu(); os._exit(int(driver.cuMemAlloc(60 << 20)[0]))
gpu = Gpu(); pointer = check(driver.cuMemAlloc(60 << 20)); os.write(go, b'x')
print(os.waitstatus_to_exitcode(os.waitpid(early, 0)[1]))
late = os.fork()
if late == 0: os._exit(int(driver.cuMemFree(pointer)[0]))
print(os.waitstatus_to_exitcode(os.waitpid(late, 0)[1]), check(driver.cuMemGetInfo())[0] >> 20)
""",
        COTENANT_MEMORY="100M",
    )
    assert one.finish().splitlines() == ["2", "3 40"]


def test_two_runs_have_a_limit_each(tenant: Start) -> None:
    hold = "from soft import Gpu, driver\ngpu = Gpu(); print(int(driver.cuMemAlloc(80 << 20)[0]), flush=True); input()"
    both = [tenant("standard", hold, COTENANT_MEMORY="100M") for _ in range(2)]
    assert [one.hear() for one in both] == ["0", "0"]


def test_nvml_in_a_child_without_cuda_knows_the_limit_and_the_use(tenant: Start) -> None:
    one = tenant(
        "standard",
        """
import subprocess, sys
from soft import Gpu, check, driver
gpu = Gpu(); check(driver.cuMemAlloc(30 << 20))
program = '''import pynvml
pynvml.nvmlInit(); info = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
print([info.total >> 20, info.free >> 20, info.used >> 20])'''
subprocess.run([sys.executable, '-c', program], check=True)
""",
        COTENANT_MEMORY="100M",
    )
    assert one.finish() == "[100, 70, 30]\n"


def test_a_program_that_is_linked_with_nvml_is_told_the_limit(
    tenant: Start, compiled: Compile, native: Path
) -> None:
    folder = native / "softgpu"
    monitor = compiled(
        "nvml_monitor", "-Wl,--no-as-needed", f"-L{folder}", "-l:libnvidia-ml.so.1", f"-Wl,-rpath,{folder}"
    )
    assert tenant("standard", [str(monitor)], COTENANT_MEMORY="100M").finish() == "100 100 0\n"
    assert tenant("standard", [str(monitor)]).finish() == "1024 1024 0\n"


# The software GPU's contexts take no memory, this one's do. NVML lies beside the driver.
NVML = """
#include <unistd.h>
struct process { unsigned pid; unsigned long long bytes; unsigned instances[2]; };
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) { *device = 0; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, struct process* found) {
    *count = 1;
    *found = (struct process){getpid(), 100ull << 20};
    return 0;
}
"""


def test_what_a_context_takes_counts_before_the_first_allocation(
    preloaded: dict[str, str], run_python: RunPython, driver_with: Callable[[str], Path]
) -> None:
    driver = driver_with("")
    name, text = "libnvidia-ml.so.1", driver.parent / "nvml.c"
    text.write_text(NVML)
    link = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", str(text), "-o", str(driver.parent / name)]
    subprocess.run(link, check=True)
    source = """
from soft import Gpu, check, driver
gpu = Gpu()
print(int(driver.cuMemAlloc(450 << 20)[0]), *(figure >> 20 for figure in check(driver.cuMemGetInfo())))
"""
    done = run_python(source, preloaded | {"COTENANT_DRIVER": str(driver), "COTENANT_MEMORY": "500M"})
    assert done.stdout == "2 400 500\n", done.stderr
