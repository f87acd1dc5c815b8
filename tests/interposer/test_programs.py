"""Every kind of program is a tenant without knowing it: its work is counted, its results are its own."""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from tests.interposer.conftest import COMPANY
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import RunPython
    from tests.interposer.conftest import Compile, Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

MAPPED = """
import pathlib, threading
maps = pathlib.Path('/proc/self/maps').read_text()
print('interposer', 'shim/libcuda.so.1' in maps)
print('driver', 'softgpu/libcuda.so.1' in maps)
print('threads', len(list(pathlib.Path('/proc/self/task').iterdir())))
"""


def test_a_program_without_cuda_loads_no_driver_and_starts_no_thread(
    tenant: Start, tenants_now: TenantsNow
) -> None:
    out = tenant("production", MAPPED).finish()
    assert out.splitlines() == ["interposer True", "driver False", "threads 1"]
    assert tenants_now() == ()


def test_shells_and_their_children_run_as_ever(tenant: Start) -> None:
    assert tenant("production", ["sh", "-c", "ls / | head -1; exit 0"]).finish().strip()


def test_every_launch_of_every_thread_is_counted(tenant: Start) -> None:
    one = tenant(
        "production",
        """
import threading
from soft import Gpu
gpu = Gpu(); kernel = gpu.kernel('empty')
def work():
    gpu.use(); stream = gpu.stream()
    for _ in range(100): gpu.launch(kernel, stream)
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
gpu.launch(kernel); gpu.launch(kernel, 2)
gpu.synchronize()
""",
    )
    one.finish()
    assert one.total("kernels") == 802
    assert one.total("escaped") == 0


def test_threads_come_and_go(tenant: Start) -> None:
    """More of them than have a number at a time, each with a default stream of its own."""
    one = tenant(
        "production",
        """
import threading
from soft import Gpu, check, driver
gpu = Gpu(); kernel = gpu.kernel('empty')
def launch(): gpu.use(); gpu.launch(kernel, driver.CUstream(driver.CU_STREAM_PER_THREAD))
for _ in range(1100): thread = threading.Thread(target=launch); thread.start(); thread.join()
gpu.synchronize()
""",
    )
    one.finish()
    assert (one.total("kernels"), one.total("escaped")) == (1100, 0)


@pytest.mark.parametrize(
    ("tenant_class", "gated"), [("production", False), ("standard", True), ("opportunistic", True)]
)
@pytest.mark.usefixtures("company")
def test_all_but_production_pass_gates(tenant: Start, tenant_class: str, gated: bool) -> None:
    one = tenant(
        tenant_class,
        "from soft import Gpu\ngpu = Gpu()\nfor _ in range(10): gpu.launch(gpu.kernel('empty'))\ngpu.synchronize()",
    )
    one.finish()
    assert (one.total("kernels"), one.total("gates") > 0) == (10, gated)


RESULTS = """
import ctypes, hashlib
from soft import Gpu, check, driver
gpu = Gpu(); n = 10000
a, b, c = (check(driver.cuMemAlloc(4 * n)) for _ in range(3))
def launch(name, values, types):
    gpu.launch(gpu.kernel(name), 0, (tuple(values), tuple(types)))
u64, f32 = ctypes.c_uint64, ctypes.c_float
launch('fill', (int(a), 1.25, n), (u64, f32, u64))
launch('scale', (int(b), int(a), 3.5, n), (u64, u64, f32, u64))
launch('add', (int(c), int(a), int(b), n), (u64, u64, u64, u64))
out = bytearray(4 * n)
check(driver.cuMemcpyDtoH(out, c, 4 * n))
print(hashlib.sha256(out).hexdigest())
"""


def test_results_are_those_of_a_run_alone(tenant: Start, run_python: RunPython) -> None:
    shared = [tenant(c, RESULTS) for c in ("production", "standard", "opportunistic")]
    outputs = {one.finish() for one in shared}
    alone = run_python(RESULTS, shared[0].env)
    assert alone.returncode == 0, alone.stderr
    assert outputs == {alone.stdout}


def test_a_child_forked_before_cuda_is_a_tenant_of_its_own(tenant: Start, tenants_now: TenantsNow) -> None:
    one = tenant(
        "production",
        """
import os
from soft import Gpu
ready, go = os.pipe()
child = os.fork()
gpu = Gpu(); gpu.launch(gpu.kernel('empty')); gpu.synchronize()
if child:
    print(os.getpid(), child); input(); os.write(go, b'x'); os.waitpid(child, 0)
else:
    os.read(ready, 1)
""",
    )
    pids = {int(pid) for pid in one.hear().split()}
    wait_for(lambda: {t.pid for t in tenants_now()} == pids)
    one.say("")
    one.finish()
    assert sorted(line["kernels"] for line in one.figures()) == [1, 1]


def test_a_child_forked_after_cuda_fails_as_ever_and_harms_nobody(tenant: Start) -> None:
    one = tenant(
        "production",
        """
import os
from soft import Gpu, driver
gpu = Gpu(); kernel = gpu.kernel('empty'); stream = gpu.stream(); gpu.launch(kernel, stream); gpu.synchronize()
child = os.fork()
if child == 0:
    code, = driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0)
    os._exit(int(code))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
gpu.launch(kernel); gpu.synchronize()
""",
    )
    assert one.finish() == "3\n"  # CUDA_ERROR_NOT_INITIALIZED
    assert [line["kernels"] for line in one.figures()] == [2]


def test_a_program_that_execs_another_leaves_its_place_to_it(tenant: Start, tenants_now: TenantsNow) -> None:
    second = "from soft import Gpu; gpu = Gpu(); gpu.launch(gpu.kernel('empty')); gpu.synchronize()"
    second += "; print('on'); input()"
    one = tenant(
        "production",
        f"""
import os, sys
from soft import Gpu
gpu = Gpu(); gpu.launch(gpu.kernel('empty')); gpu.synchronize()
os.execv(sys.executable, [sys.executable, '-u', '-c', {second!r}])
""",
    )
    assert one.hear() == "on"
    assert [t.pid for t in tenants_now()] == [one.process.pid if one.process else 0]
    one.say("")
    one.finish()


def test_several_contexts_and_several_gpus(tenant: Start, tenants_now: TenantsNow) -> None:
    assert tenant("production", COMPANY, COTENANT_SOFTGPU="small,small").hear() == "here"
    one = tenant(
        "opportunistic",
        """
from soft import Gpu, MODULE, check, driver
first, second = Gpu(0), Gpu(1)
for gpu, count in ((first, 3), (second, 5)):
    gpu.use()
    for _ in range(count): gpu.launch(gpu.kernel('empty'))
    gpu.synchronize()
own = check(driver.cuCtxCreate(None, 0, first.device))
module = check(driver.cuModuleLoadData(MODULE))
kernel = check(driver.cuModuleGetFunction(module, b'empty'))
for _ in range(7): first.launch(kernel)
first.synchronize()
check(driver.cuCtxDestroy(own))
first.use(); first.launch(first.kernel('empty')); first.synchronize()
print('done'); input()
""",
        COTENANT_SOFTGPU="small,small",
    )
    assert one.hear() == "done"
    (seen,) = [seen for seen in tenants_now() if one.process and seen.pid == one.process.pid]
    assert sorted(use.figures["kernels"] for use in seen.uses) == [5, 11]
    assert all(use.figures["gates"] > 0 and use.figures["escaped"] == 0 for use in seen.uses)
    assert len({use.uuid for use in seen.uses}) == 2
    one.say("")
    one.finish()


@pytest.mark.parametrize("flags", [0, 1, 2], ids=["default", "legacy-stream", "per-thread-stream"])
@pytest.mark.parametrize("deepbind", [False, True], ids=["plain", "deepbind"])
@pytest.mark.usefixtures("company")
def test_a_library_with_its_own_static_runtime(
    tenant: Start, compiled: Compile, flags: int, deepbind: bool
) -> None:
    library, program = compiled("runtime_library", "-shared"), compiled("open_library")
    command = [str(program), str(library), "libcuda.so.1", "25", str(flags)]
    one = tenant("opportunistic", command + (["deepbind"] if deepbind else []))
    one.finish()
    assert (one.total("kernels"), one.total("gates") > 0, one.total("escaped")) == (25, True, 0)


@pytest.mark.parametrize("name", ["libcuda.so.1", "libcuda.so", "libcuda.so.580.1"])
def test_a_program_that_opens_the_driver_by_path(
    tenant: Start, compiled: Compile, native: Path, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "driver" / name
    path.parent.mkdir()
    path.symlink_to(native / "softgpu" / "libcuda.so.1")
    library, program = compiled("runtime_library", "-shared"), compiled("open_library")
    one = tenant("opportunistic", [str(program), str(library), str(path), "25", "0"])
    one.finish()
    assert one.total("kernels") == 25


def test_a_library_whose_name_only_begins_like_the_drivers_is_opened_itself(
    tenant: Start, compiled: Compile, tmp_path: Path
) -> None:
    other = tmp_path / "libcuda.sorted"
    other.symlink_to(compiled("runtime_library", "-shared"))
    source = f"""
import ctypes
for name in ({str(other)!r}, "libcuda.so.1"): print(hasattr(ctypes.CDLL(name), "cuInit"))
"""
    assert tenant("standard", source).finish().split() == ["False", "True"]


def test_a_library_is_still_found_next_to_the_one_that_asks_for_it(tenant: Start, compiled: Compile) -> None:
    # dlopen looks into the RUNPATH of its caller: the interposer on the way must not become the caller.
    inner = compiled("runtime_library", "-shared")
    program = compiled("open_library", f"-Wl,-rpath,{inner.parent}")
    one = tenant("standard", [str(program), inner.name, "libcuda.so.1", "5", "0"])
    one.finish()
    assert one.total("kernels") == 5


@pytest.mark.usefixtures("company")
def test_beside_a_memory_allocator_in_the_preload(tenant: Start, compiled: Compile) -> None:
    allocator = compiled("counting_allocator", "-shared")
    one = tenant(
        "opportunistic",
        "from soft import Gpu\ngpu = Gpu()\nfor _ in range(10): gpu.launch(gpu.kernel('empty'))\ngpu.synchronize()",
        LD_PRELOAD=str(allocator),
    )
    assert one.process
    _, errors = one.process.communicate(timeout=60)
    assert one.process.returncode == 0, errors
    assert "allocations served" in errors
    assert (one.total("kernels"), one.total("gates") > 0) == (10, True)


def test_a_production_launch_makes_no_system_call(
    compiled: Compile, native: Path, plain_env: dict[str, str], tmp_path: Path
) -> None:
    driver, program = compiled("null_driver", "-shared"), compiled("launch_in_a_cell")
    path = Path(plain_env["COTENANT_SEGMENT"])
    segment.ensure(path)
    env = plain_env | {
        "LD_PRELOAD": str(native / "shim" / "libcuda.so.1"),
        "COTENANT_DRIVER": str(driver),
        "COTENANT_CLASS": "production",
    }
    with subprocess.Popen([str(program)], env=env, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        said, _, _ = select.select([child.stdout], [], [], 60)
        line = child.stdout.readline() if said else "killed by the kernel"
        tenants = segment.read(path).tenants
        child.kill()  # the watcher thread lives on after the launching one has ended
    if child.returncode == 77:
        pytest.skip("the kernel offers no seccomp")
    assert line == "launched\n"
    assert [use.figures["kernels"] for t in tenants for use in t.uses] == [100003]


def test_nothing_is_printed_and_nothing_is_left(tenant: Start, tenants_now: TenantsNow) -> None:
    one = tenant(
        "opportunistic",
        "from soft import Gpu; gpu = Gpu(); gpu.launch(gpu.kernel('empty')); gpu.synchronize()",
    )
    assert one.finish() == ""
    assert tenants_now() == ()


def test_sixty_four_tenants_at_once(
    compiled: Compile, softgpu_env: dict[str, str], native: Path, tmp_path: Path
) -> None:
    path, report = Path(softgpu_env["COTENANT_SEGMENT"]), tmp_path / "report"
    segment.ensure(path)
    env = softgpu_env | {
        "LD_PRELOAD": str(native / "shim" / "libcuda.so.1"),
        "COTENANT_DRIVER": str(native / "softgpu" / "libcuda.so.1"),
        "COTENANT_REPORT": str(report),
    }
    library, program = compiled("runtime_library", "-shared"), compiled("open_library")
    command = [str(program), str(library), "libcuda.so.1", "50", "0"]
    classes = ("production", "standard", "opportunistic", "opportunistic") * 16
    children = [subprocess.Popen(command, env=env | {"COTENANT_CLASS": c}) for c in classes]
    assert [child.wait(timeout=120) for child in children] == [0] * 64
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    assert [(line["kernels"], line["escaped"]) for line in lines] == [(50, 0)] * 64
    left = segment.read(path)
    assert (left.tenants, left.lost) == ((), 0)
