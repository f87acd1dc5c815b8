"""What the driver tells about addresses, functions, devices and contexts, and what arrays take."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import REAL_GPU, RunPython
from tests.softgpu.calls import code, value

MIB = 1 << 20
INVALID_VALUE, OUT_OF_MEMORY, INVALID_DEVICE, INVALID_CONTEXT, INVALID_HANDLE = 1, 2, 101, 201, 400
NOT_FOUND = 500


@pytest.fixture
def told(cuda: Any, context: Any) -> Callable[[str, int], int]:
    names = cuda.CUpointer_attribute
    return lambda name, at: int(
        value(cuda.cuPointerGetAttribute(getattr(names, f"CU_POINTER_ATTRIBUTE_{name}"), at))
    )


@pytest.mark.skipif(REAL_GPU, reason="asks about addresses that nobody has")
def test_an_address_tells_where_its_allocation_begins_and_how_long_it_is(
    cuda: Any, context: Any, told: Callable[[str, int], int]
) -> None:
    base = int(value(cuda.cuMemAlloc(3 * MIB)))
    inside = base + MIB
    assert told("RANGE_START_ADDR", inside) == told("MAPPING_BASE_ADDR", inside) == base
    assert told("RANGE_SIZE", inside) == told("MAPPING_SIZE", inside) == 3 * MIB
    assert told("IS_LEGACY_CUDA_IPC_CAPABLE", inside) == 1 and told("ALLOWED_HANDLE_TYPES", inside) == 0
    assert [int(one) for one in value(cuda.cuMemGetAddressRange(inside))] == [base, 3 * MIB]
    assert code(cuda.cuMemGetAddressRange(base + 3 * MIB)) == NOT_FOUND
    host = int(value(cuda.cuMemHostAlloc(4096, 0)))
    assert told("IS_LEGACY_CUDA_IPC_CAPABLE", host) == 0
    names = cuda.CUpointer_attribute
    every = (names.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, names.CU_POINTER_ATTRIBUTE_RANGE_SIZE)
    stranger = ctypes.create_string_buffer(64)
    assert [int(one) for one in value(cuda.cuPointerGetAttributes(2, every, ctypes.addressof(stranger)))] == [
        -2,
        0,
    ]
    sync = names.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
    assert code(cuda.cuPointerSetAttribute(True, sync, inside)) == 0
    assert code(cuda.cuPointerSetAttribute(True, sync, ctypes.addressof(stranger))) == INVALID_VALUE
    value(cuda.cuMemFreeHost(host))
    value(cuda.cuMemFree(base))


def test_reserved_addresses_tell_their_range_and_no_more_until_memory_is_mapped(
    cuda: Any, context: Any, told: Callable[[str, int], int]
) -> None:
    properties = cuda.CUmemAllocationProp()
    properties.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    descriptor = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    properties.requestedHandleTypes = descriptor
    base = int(value(cuda.cuMemAddressReserve(8 * MIB, 0, 0, 0)))
    assert told("RANGE_START_ADDR", base + MIB) == base and told("RANGE_SIZE", base + MIB) == 8 * MIB
    kind = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    assert code(cuda.cuPointerGetAttribute(kind, base)) == INVALID_VALUE
    memory = value(cuda.cuMemCreate(2 * MIB, properties, 0))
    value(cuda.cuMemMap(base + 4 * MIB, 2 * MIB, 0, memory, 0))
    there = base + 5 * MIB
    assert told("RANGE_START_ADDR", there) == base and told("RANGE_SIZE", there) == 8 * MIB
    assert told("MAPPING_BASE_ADDR", there) == base + 4 * MIB and told("MAPPING_SIZE", there) == 2 * MIB
    assert told("ALLOWED_HANDLE_TYPES", there) == int(descriptor)
    assert told("IS_LEGACY_CUDA_IPC_CAPABLE", there) == 0
    value(cuda.cuMemUnmap(base + 4 * MIB, 2 * MIB))
    value(cuda.cuMemRelease(memory))
    value(cuda.cuMemAddressFree(base, 8 * MIB))


@pytest.mark.skipif(REAL_GPU, reason="how much an array takes is the software GPU's own")
@pytest.mark.parametrize(
    ("format_name", "channels", "shape", "mebibytes"),
    [
        ("UNSIGNED_INT8", 1, (MIB, 3, 0), 4),
        ("HALF", 2, (MIB, 1, 0), 4),
        ("FLOAT", 4, (MIB, 0, 0), 16),
        ("SIGNED_INT32", 1, (1024, 1024, 3), 12),
    ],
)
def test_an_array_takes_the_memory_that_its_elements_need(
    cuda: Any, context: Any, format_name: str, channels: int, shape: tuple[int, int, int], mebibytes: int
) -> None:
    wanted = cuda.CUDA_ARRAY3D_DESCRIPTOR()
    wanted.Format, wanted.NumChannels = getattr(cuda.CUarray_format, f"CU_AD_FORMAT_{format_name}"), channels
    wanted.Width, wanted.Height, wanted.Depth = shape
    free = value(cuda.cuMemGetInfo())[0]
    array = value(cuda.cuArray3DCreate(wanted))
    assert free - value(cuda.cuMemGetInfo())[0] == mebibytes * MIB
    value(cuda.cuArrayDestroy(array))
    assert value(cuda.cuMemGetInfo())[0] == free
    assert code(cuda.cuArrayDestroy(array)) == INVALID_HANDLE


@pytest.mark.skipif(REAL_GPU, reason="a real driver has more formats")
def test_arrays_that_cannot_be_are_refused(cuda: Any, context: Any) -> None:
    def refused(channels: int, width: int, height: int, depth: int = 0) -> int:
        wanted = cuda.CUDA_ARRAY3D_DESCRIPTOR()
        wanted.Format, wanted.NumChannels = cuda.CUarray_format.CU_AD_FORMAT_FLOAT, channels
        wanted.Width, wanted.Height, wanted.Depth = width, height, depth
        return code(cuda.cuArray3DCreate(wanted))

    free = value(cuda.cuMemGetInfo())[0]
    assert [refused(3, 8, 8), refused(1, 0, 8), refused(1, 8, 0, 8)] == [INVALID_VALUE] * 3
    assert [refused(1, 1 << 40, 1 << 40), refused(1, free, 1)] == [OUT_OF_MEMORY] * 2
    flat = cuda.CUDA_ARRAY_DESCRIPTOR()
    flat.Format, flat.NumChannels = cuda.CUarray_format.CU_AD_FORMAT_SIGNED_INT16, 1
    flat.Width, flat.Height = MIB, 2
    made = value(cuda.cuCtxCreate(None, 0, 0))
    array = value(cuda.cuArrayCreate(flat))
    assert free - value(cuda.cuMemGetInfo())[0] == 4 * MIB
    value(cuda.cuCtxDestroy(made))
    assert value(cuda.cuMemGetInfo())[0] == free, "its array goes with a context"
    assert code(cuda.cuArrayDestroy(array)) == INVALID_HANDLE


@pytest.mark.skipif(REAL_GPU, reason="the software GPU's own kernels")
def test_a_function_tells_what_it_needs(cuda: Any, context: Any, kernels: Callable[[str], Any]) -> None:
    function, names = kernels("burn"), cuda.CUfunction_attribute
    told = [
        value(cuda.cuFuncGetAttribute(getattr(names, f"CU_FUNC_ATTRIBUTE_{name}"), function))
        for name in ("MAX_THREADS_PER_BLOCK", "NUM_REGS", "SHARED_SIZE_BYTES", "LOCAL_SIZE_BYTES")
    ]
    assert told == [1024, 32, 0, 0]
    ask = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor
    room = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    shared = value(cuda.cuDeviceGetAttribute(room, 0))
    assert value(ask(function, 32, shared // 3)) == 3 and value(ask(function, 32, shared // 3 + 1)) == 2
    # A block has whole warps.
    assert value(ask(function, 513, 0)) == value(ask(function, 544, 0)) < value(ask(function, 512, 0))
    assert value(ask(function, 1025, 0)) == 0


@pytest.mark.skipif(REAL_GPU, reason="a GPU of the software GPU")
def test_a_device_tells_what_its_file_says(cuda: Any, context: Any) -> None:
    names = cuda.CUdevice_attribute

    def ask(name: str) -> int:
        return int(value(cuda.cuDeviceGetAttribute(getattr(names, f"CU_DEVICE_ATTRIBUTE_{name}"), 0)))

    assert (ask("COMPUTE_CAPABILITY_MAJOR"), ask("COMPUTE_CAPABILITY_MINOR")) == (9, 0)
    assert (ask("PCI_DEVICE_ID"), ask("PCI_DOMAIN_ID"), ask("MPS_ENABLED")) == (0, 0, 0)
    assert code(cuda.cuDeviceCanAccessPeer(0, 1000)) == INVALID_DEVICE


@pytest.mark.skipif(REAL_GPU, reason="needs a machine with two devices")
def test_two_devices_are_told_apart(run_python: RunPython, softgpu_env: dict[str, str]) -> None:
    program = """
import ctypes
from cuda.bindings import driver
from cuda.bindings.driver import CUdevice_attribute
def check(answer): assert int(answer[0]) == 0, answer; return answer[1] if len(answer) == 2 else answer[1:]
check(driver.cuInit(0))
bus = [check(driver.cuDeviceGetAttribute(CUdevice_attribute.CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, i)) for i in (0, 1)]
print(len(set(bus)), check(driver.cuDeviceCanAccessPeer(0, 1)))
contexts = [check(driver.cuCtxCreate(None, 0, i)) for i in (0, 1)]
library = ctypes.CDLL('libcuda.so.1'); device = ctypes.c_int(-1)
def device_of(context):
    return library.cuCtxGetDevice_v2(ctypes.byref(device), ctypes.c_void_p(int(context))), device.value
print(*[device_of(context) for context in (*contexts, 0)])
check(driver.cuCtxDestroy(contexts[0])); print(device_of(contexts[0])[0], int(driver.cuCtxDestroy(contexts[0])[0]))

# One launch on both, each in a stream of its own.
class Launch(ctypes.Structure):
    _fields_ = [('function', ctypes.c_void_p), ('shape', ctypes.c_uint * 7), ('stream', ctypes.c_void_p)]
    _fields_ += [('parameters', ctypes.c_void_p)]
text = b'softgpu 1\\nkernel fill function=fill\\n'
launches, memories, kept = (Launch * 2)(), [], []
for i in (0, 1):
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(i))))
    function = check(driver.cuModuleGetFunction(check(driver.cuModuleLoadData(text)), b'fill'))
    stream, memory = check(driver.cuStreamCreate(1)), int(check(driver.cuMemAlloc(16)))
    values = ctypes.c_uint64(memory), ctypes.c_float(i + 5), ctypes.c_uint64(4)
    pointers = (ctypes.c_void_p * 3)(*map(ctypes.addressof, values)); kept += [values, pointers, stream]
    shape = (ctypes.c_uint * 7)(1, 1, 1, 32, 1, 1, 0)
    launches[i] = Launch(int(function), shape, int(stream), ctypes.addressof(pointers))
    memories.append(memory)
call = library.cuLaunchCooperativeKernelMultiDevice
twice = (Launch * 2)(launches[0], launches[0]); unstreamed = (Launch * 1)(launches[0]); unstreamed[0].stream = None
print(call(twice, 2, 0), call(unstreamed, 1, 0), call(launches, 2, 4), call(launches, 0, 0), call(launches, 2, 3))
for i in (0, 1):
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(i)))); check(driver.cuCtxSynchronize())
    into = (ctypes.c_float * 4)(); check(driver.cuMemcpyDtoH(into, memories[i], 16)); print(*into)
"""
    done = run_python(program, softgpu_env | {"COTENANT_SOFTGPU": "small,small"})
    assert done.stdout.splitlines() == [
        "2 0",
        "(0, 0) (0, 1) (0, 1)",
        f"{INVALID_CONTEXT} 709",
        "1 1 1 1 0",
        "5.0 5.0 5.0 5.0",
        "6.0 6.0 6.0 6.0",
    ], done.stderr
