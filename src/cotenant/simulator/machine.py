"""The GPU that is simulated, and what sharing costs on it."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, field
from pathlib import Path

from cotenant.errors import USAGE, Problem, unknown
from cotenant.launch import native_files
from cotenant.simulator import native


@dataclass(frozen=True, slots=True)
class Interference:
    """What was fitted to measurements on an H200 (docs/simulator.md); measure again for another GPU."""

    drain_us: float | None = None  # a change of contexts, nothing running; None: what the device file says
    cut_us: float = 200.0  # a change of contexts in the middle of a kernel
    cold_us: float = 0.0  # what the one that comes loses to cold caches
    kill_us: float = 40.0  # stopping a kernel that begins anew later
    gate_us: float = 2.0  # of a stream's time at each gate
    open_us: float = 7.0  # from opening a gate to the kernel behind it
    # Together: a stream of kernels keeps its SMs from a kernel that waits for so long, and this part of the other's
    # kernels, whose blocks do not all end at once. 0: kernels share the SMs in proportion to what they ask for.
    keep_us: float = 16.0
    tail: float = 0.0145
    # Together, with priorities: a more urgent kernel waits for so many blocks of the other's, one after the other.
    blocks: float = 3.0
    together_tax: float = 0.0  # together: part of its speed that everybody loses
    contention: float = 0.0  # together: part of its speed that a kernel loses beside others that fill the GPU
    watch_us: float = 50.0  # pauses shorter than this are not seen: a watcher's shortest nap
    clock_us: float = 15_000.0  # how soon the SM clock follows what runs
    look_us: float = 120.0  # from the end of a watcher's nap to what its look does


@dataclass(frozen=True, slots=True)
class SimulatedGpu:
    name: str
    sms: int
    memory_bytes: int
    memory_gbps: float
    bus_gbps: float
    slice_us: float = 2048.0
    switch_us: float = 150.0
    launch_us: float = 2.0
    interference: Interference = field(default_factory=Interference)

    def copy_us(self, size: float, on_device: bool) -> float:
        return size / ((self.memory_gbps if on_device else self.bus_gbps) * 1000)


def gpu_named(item: str, interference: Interference | None = None) -> SimulatedGpu:
    """A shipped device by name, or a device file."""
    shipped = native_files.device_files()
    path = shipped.get(item)
    if path is None:
        if os.sep not in item and not item.endswith(".gpu"):
            raise unknown("GPU", item, shipped)
        path = Path(item)
        if not path.is_file():
            raise Problem(f"no device file '{item}'", f"shipped devices: {', '.join(shipped)}", USAGE)
    device = native.Device()
    why = ctypes.create_string_buffer(1000)
    if native.library().cotenant_sim_read_device(os.fsencode(path), ctypes.byref(device), why, len(why)):
        raise Problem(why.value.decode(errors="replace"), "see docs/softgpu.md for device files", USAGE)
    return SimulatedGpu(
        name=path.stem,
        sms=device.sms,
        memory_bytes=device.memory_bytes,
        memory_gbps=device.memory_gbps,
        bus_gbps=device.bus_gbps,
        slice_us=device.slice_us,
        switch_us=device.switch_us,
        launch_us=device.launch_us,
        interference=interference or Interference(),
    )
