"""The GPU as the demo's workloads see it: bursts of kernels that last a given time, and a count of them.

A kernel's length is a fixed amount of arithmetic, not a wait for a clock: a kernel that was preempted still
has its work before it, so being cut in the middle is never free.
"""

from __future__ import annotations

import ctypes
from typing import Any

from cuda.bindings import driver

_THREADS_PER_BLOCK = 256

# `spin` iterates a linear congruential generator; the store keeps the compiler from dropping the loop.
_PTX = b"""
.version 6.0
.target sm_50
.address_size 64

.visible .entry spin(.param .u64 loops, .param .u64 sink)
{
    .reg .pred %p;
    .reg .b32 %x;
    .reg .b64 %left, %sink;
    ld.param.u64 %left, [loops];
    ld.param.u64 %sink, [sink];
    cvta.to.global.u64 %sink, %sink;
    mov.u32 %x, 1;
again:
    mad.lo.u32 %x, %x, 1664525, 1013904223;
    sub.u64 %left, %left, 1;
    setp.gt.s64 %p, %left, 0;
    @%p bra again;
    st.global.u32 [%sink], %x;
    ret;
}

.visible .entry count(.param .u64 out, .param .u64 a, .param .u64 b, .param .u64 n)
{
    .reg .f32 %f<3>;
    .reg .b64 %out, %a, %b;
    ld.param.u64 %out, [out];
    ld.param.u64 %a, [a];
    ld.param.u64 %b, [b];
    cvta.to.global.u64 %out, %out;
    cvta.to.global.u64 %a, %a;
    cvta.to.global.u64 %b, %b;
    ld.global.f32 %f0, [%a];
    ld.global.f32 %f1, [%b];
    add.f32 %f2, %f0, %f1;
    st.global.f32 [%out], %f2;
    ret;
}
\0"""

# The software GPU takes the same parameters and models the time: `spin`'s first parameter is nanoseconds.
_SOFTGPU_TEXT = b"""softgpu 1
kernel spin time=@0ns params=u64,u64 sms=all
kernel count function=add time=1us
\0"""


class GpuError(Exception):
    """A driver call failed; says which and why."""


def call(name: str, *args: Any) -> Any:
    """Calls the driver's function of that name; gives what it returns beside its status."""
    status, *results = getattr(driver, name)(*args)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise GpuError(f"{name}: {status.name}")
    return results[0] if len(results) == 1 else results


class _Arguments:
    """A kernel's parameters, laid out once so that a launch in the loop costs no marshalling."""

    def __init__(self, *values: int) -> None:
        self.values = (ctypes.c_uint64 * len(values))(*values)
        size = ctypes.sizeof(ctypes.c_uint64)
        base = ctypes.addressof(self.values)
        self._pointers = (ctypes.c_void_p * len(values))(*(base + size * i for i in range(len(values))))
        self.address = ctypes.addressof(self._pointers)


class SpinGpu:
    """GPU 0, with one stream for all that this process does."""

    def __init__(self) -> None:
        call("cuInit", 0)
        self._device = call("cuDeviceGet", 0)
        call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", self._device))
        self.name: str = call("cuDeviceGetName", 128, self._device).split(b"\0")[0].decode()
        self.driver_version: int = call("cuDriverGetVersion")
        module = self._load_module()
        self._spin = call("cuModuleGetFunction", module, b"spin")
        self._count = call("cuModuleGetFunction", module, b"count")
        self._stream = call("cuStreamCreate", driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self._blocks = self._blocks_that_fill()
        size = ctypes.sizeof(ctypes.c_float)
        self._counter = int(call("cuMemAlloc", size))
        one, sink = int(call("cuMemAlloc", size)), int(call("cuMemAlloc", size))
        call("cuMemcpyHtoD", one, bytes(ctypes.c_float(1.0)), size)
        self._spin_arguments = _Arguments(0, sink)
        self._count_arguments = _Arguments(self._counter, self._counter, one, 1)
        self.work_per_us = 1000.0
        self.reset_count()

    def _load_module(self) -> Any:
        status, module = driver.cuModuleLoadData(_PTX)
        self.software = status == driver.CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU
        if self.software:
            return call("cuModuleLoadData", _SOFTGPU_TEXT)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise GpuError(f"cuModuleLoadData: {status.name}")
        return module

    def _blocks_that_fill(self) -> int:
        attribute = driver.CUdevice_attribute
        sms = call("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, self._device)
        threads = attribute.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR
        return int(sms) * (int(call("cuDeviceGetAttribute", threads, self._device)) // _THREADS_PER_BLOCK)

    def calibrate(self) -> None:
        """Learns how much work a microsecond is. Only meaningful while nothing else runs on the GPU."""
        if self.software:
            return
        short, long = 20_000, 100_000
        self._time_us(long)  # brings the clocks up
        self.work_per_us = (long - short) / (self._time_us(long) - self._time_us(short))

    def _time_us(self, work: int) -> float:
        """The quickest of a few runs: what disturbs a run only ever lengthens it."""
        begin, end = call("cuEventCreate", 0), call("cuEventCreate", 0)
        times = []
        for _ in range(5):
            call("cuEventRecord", begin, self._stream)
            self._launch(self._spin, self._blocks, self._spin_arguments, work)
            call("cuEventRecord", end, self._stream)
            call("cuEventSynchronize", end)
            times.append(float(call("cuEventElapsedTime", begin, end)) * 1000.0)
        return min(times)

    def _launch(self, function: Any, blocks: int, arguments: _Arguments, first: int | None = None) -> None:
        if first is not None:
            arguments.values[0] = first
        threads = _THREADS_PER_BLOCK if blocks > 1 else 1
        call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, self._stream, arguments.address, 0)

    def submit_burst(self, kernels: int, kernel_us: float) -> None:
        """Queues kernels of that length that fill the GPU, then one that counts the burst."""
        work = max(1, round(kernel_us * self.work_per_us))
        for _ in range(kernels):
            self._launch(self._spin, self._blocks, self._spin_arguments, work)
        self._launch(self._count, 1, self._count_arguments)

    def synchronise(self) -> None:
        call("cuStreamSynchronize", self._stream)

    def count_in_sight(self) -> ctypes.c_float:
        """From now on bursts are counted in host memory: that a kernel runs is seen without a call to the driver."""
        size = ctypes.sizeof(ctypes.c_float)
        host = int(call("cuMemHostAlloc", size, driver.CU_MEMHOSTALLOC_DEVICEMAP))
        self._counter = int(call("cuMemHostGetDevicePointer", host, 0))
        self._count_arguments.values[0] = self._count_arguments.values[1] = self._counter
        self.reset_count()
        return ctypes.c_float.from_address(host)

    def new_event(self) -> Any:
        return call("cuEventCreate", driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)

    def record(self, event: Any) -> None:
        call("cuEventRecord", event, self._stream)

    def wait(self, event: Any) -> None:
        call("cuEventSynchronize", event)

    def reset_count(self) -> None:
        call("cuMemsetD32Async", self._counter, 0, 1, self._stream)
        self.synchronise()

    def count(self) -> int:
        """Bursts done since the last reset, as the GPU counted them."""
        self.synchronise()
        value = bytearray(ctypes.sizeof(ctypes.c_float))
        call("cuMemcpyDtoH", value, self._counter, len(value))
        return int(ctypes.c_float.from_buffer(value).value)
