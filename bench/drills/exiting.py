"""The process ends by exit() while two threads launch, as a program with threads of its own does at its end."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time

from cotenant.demo.spin import GpuError, SpinGpu, call

LAUNCHING_SECONDS = 0.2


def main() -> None:
    gpu = SpinGpu()
    context = call("cuCtxGetCurrent")
    begun = threading.Barrier(3)

    def launch_for_ever() -> None:
        call("cuCtxSetCurrent", context)
        begun.wait()
        # A driver that has begun to end refuses launches.
        with contextlib.suppress(GpuError):
            while True:
                gpu.submit_burst(8, 1.0)

    for _ in range(2):
        threading.Thread(target=launch_for_ever, daemon=True).start()
    begun.wait()
    time.sleep(LAUNCHING_SECONDS)
    # Python's own exit would stop the other threads first; the C library's does not, and this call lets them run.
    ctypes.CDLL(None).exit(0)


if __name__ == "__main__":
    main()
