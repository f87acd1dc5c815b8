"""A job that knows what its results must be, and prints how often they were right.

For so many seconds it allocates, fills, computes, copies back, compares and frees, in two streams and a graph. With
CHECKED_JOB_LANE the second stream is a lane's, and the first waits for its events.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time

from soft import Gpu, check, driver  # type: ignore[import-not-found]

import cotenant

WORDS = 1 << 14


def main() -> None:
    gpu = Gpu()
    spin, streams = gpu.kernel("spin"), [gpu.stream(), gpu.stream()]
    duration = ctypes.c_uint64(300)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(duration))
    host = (ctypes.c_uint32 * WORDS)()
    nothing: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    lane = cotenant.tenant("opportunistic") if "CHECKED_JOB_LANE" in os.environ else nothing
    event = check(driver.cuEventCreate(0))

    check(driver.cuStreamBeginCapture(streams[0], driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    for _ in range(4):
        gpu.launch(spin, streams[0], ctypes.addressof(parameters))
    graph = check(driver.cuStreamEndCapture(streams[0]))
    executable = check(driver.cuGraphInstantiate(graph, 0))

    gpu.launch(spin, streams[0], ctypes.addressof(parameters))
    print("began", flush=True)
    end, times = time.monotonic() + float(sys.argv[1]), 0
    while time.monotonic() < end:
        times += 1
        for stream, inside in zip(streams, (nothing, lane), strict=True):
            memory = check(driver.cuMemAlloc(4 * WORDS))
            with inside:
                check(driver.cuMemsetD32Async(memory, times, WORDS, stream))
                for _ in range(8):
                    gpu.launch(spin, stream, ctypes.addressof(parameters))
                check(driver.cuGraphLaunch(executable, stream))
                check(driver.cuEventRecord(event, stream))
                check(driver.cuMemcpyDtoHAsync(ctypes.addressof(host), memory, 4 * WORDS, stream))
            check(driver.cuStreamWaitEvent(streams[0], event, 0))
            check(driver.cuStreamSynchronize(stream))
            if any(word != times for word in host[:: WORDS // 64]):
                sys.exit(f"wrong results in round {times}")
            check(driver.cuMemFree(memory))
    print(f"right {times} times", flush=True)


if __name__ == "__main__":
    main()
