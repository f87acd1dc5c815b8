"""What a recording says of the second of something: a handle or an address that has been another's before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cotenant.traces import Kind, read

if TYPE_CHECKING:
    from cotenant.traces import Shape
    from tests.conftest import RunPython

# Gives every kernel and every graph the handle of the first, as a driver may once what had it is gone.
ONE_HANDLE = """
static void *functions[9], *execs[9];
static int function_count, exec_count;
#define REAL(name) int (*real)() = dlsym(RTLD_NEXT, name)
int cuModuleGetFunction(void** out, void* module, const char* name) {
    REAL("cuModuleGetFunction");
    int result = real(&functions[function_count++], module, name);
    *out = functions[0];
    return result;
}
int cuFuncGetName(const char** name, void* function) {
    REAL("cuFuncGetName");
    return real(name, function == functions[0] ? functions[function_count - 1] : function);
}
int cuGraphInstantiateWithFlags(void** out, void* graph, unsigned long long flags) {
    REAL("cuGraphInstantiateWithFlags");
    int result = real(&execs[exec_count++], graph, flags);
    *out = execs[0];
    return result;
}
"""
HANDLES_AGAIN = """
import ctypes
from soft import Gpu, MODULE, check, driver
gpu = Gpu(); library = ctypes.CDLL('libcuda.so.1'); pointer = ctypes.c_void_p
made = pointer(); stream = pointer(int(gpu.stream())); module = pointer(int(gpu.module))
def launch(name):
    assert library.cuModuleGetFunction(ctypes.byref(made), module, name) == 0
    assert library.cuLaunchKernel(made, 1, 1, 1, 1, 1, 1, 0, stream, None, None) == 0
    assert library.cuStreamSynchronize(stream) == 0
launch(b'empty'); launch(b'empty')
module = pointer(); text = ctypes.create_string_buffer(MODULE)
assert library.cuModuleLoadData(ctypes.byref(module), text) == 0
other = pointer(); assert library.cuModuleLoadData(ctypes.byref(other), text) == 0
assert library.cuModuleUnload(other) == 0
launch(b'long')
for nodes in (3, 5):
    graph = check(driver.cuGraphCreate(0))
    for _ in range(nodes): check(driver.cuGraphAddEmptyNode(graph, None, 0))
    assert library.cuGraphInstantiateWithFlags(ctypes.byref(made), pointer(int(graph)), ctypes.c_uint64(0)) == 0
    assert library.cuGraphLaunch(made, stream) == 0
gpu.synchronize()
"""


def test_a_handle_that_is_given_again_is_another_kernel_or_graph(
    preloaded: dict[str, str], run_python: RunPython, driver_with: Callable[[str], Path], tmp_path: Path
) -> None:
    told = {"COTENANT_DRIVER": str(driver_with(ONE_HANDLE)), "COTENANT_RECORD": str(tmp_path / "job.trace")}
    done = run_python(HANDLES_AGAIN, preloaded | told)
    assert done.returncode == 0, done.stderr
    trace = read(tmp_path / "job.trace")

    def launched(kind: Kind) -> list[Shape]:
        return [trace.shapes[shape] for shape in trace.operations.shape[trace.operations.kind == kind]]

    assert [shape.name for shape in launched(Kind.kernel)] == ["empty", "empty", "long"]
    assert [shape.nodes for shape in launched(Kind.graph)] == [3, 5]


FREED_LATER = """
from soft import Gpu, check, driver
gpu = Gpu(); stream = gpu.stream(); memory = check(driver.cuMemAlloc(5000))
check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
print(int(driver.cuMemFree(memory)[0])); driver.cuStreamEndCapture(stream)
check(driver.cuMemFree(memory)); memory = check(driver.cuMemAlloc(7000)); check(driver.cuMemFree(memory))
"""


def test_memory_that_could_not_be_freed_has_its_size_still(
    preloaded: dict[str, str], run_python: RunPython, native: Path, tmp_path: Path
) -> None:
    driver = str(native / "softgpu" / "libcuda.so.1")
    told = {"COTENANT_DRIVER": driver, "COTENANT_RECORD": str(tmp_path / "job.trace")}
    done = run_python(FREED_LATER, preloaded | told)
    assert done.stdout.strip() == "900", done.stderr
    operations = read(tmp_path / "job.trace").operations
    assert operations.bytes[operations.kind == Kind.free].tolist() == [5000, 7000]


COUNTS_EVENTS = """
int made;
int cuEventCreate(void** out, unsigned flags) {
    int (*real)(void**, unsigned) = dlsym(RTLD_NEXT, "cuEventCreate");
    ++made;
    return real(out, flags);
}
"""
OTHER_GPU_COMES_AND_GOES = """
import ctypes, os
from soft import Gpu, check, driver
gpu = Gpu(); kernel = gpu.kernel('empty')
for number in range(1, 31):
    for _ in range(300): check(driver.cuLaunchKernel(kernel, number, 1, 1, 1, 1, 1, 0, 0, 0, 0))
    gpu.synchronize()
    check(driver.cuDevicePrimaryCtxRetain(1)); check(driver.cuDevicePrimaryCtxRelease(1))
print(ctypes.c_int.in_dll(ctypes.CDLL(os.environ['COTENANT_DRIVER']), 'made').value)
"""


def test_events_of_one_gpu_stay_when_the_context_of_another_ends(
    preloaded: dict[str, str], run_python: RunPython, driver_with: Callable[[str], Path], tmp_path: Path
) -> None:
    told = {
        "COTENANT_DRIVER": str(driver_with(COUNTS_EVENTS)),
        "COTENANT_RECORD": str(tmp_path / "job.trace"),
    }
    done = run_python(OTHER_GPU_COMES_AND_GOES, preloaded | told | {"COTENANT_SOFTGPU": "small,small"})
    # A pair for each of 256 operations that are timed at once, and a few for other purposes.
    assert int(done.stdout) < 600, done.stderr
