"""The GPU that a command would see, as its driver describes it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

from cotenant.errors import Problem
from cotenant.gpus import naming, nvml
from cotenant.launch import driver
from cotenant.profile import peaks
from cotenant.profile.store import Model

SMS, MEMORY_KHZ, MEMORY_BITS = 16, 36, 37  # CU_DEVICE_ATTRIBUTE_*


def visible(environment: Mapping[str, str], gpu: str | None) -> str | None:
    """CUDA_VISIBLE_DEVICES where --gpu says so; None: as it is. Raises Problem."""
    return naming.visible_devices(gpu, environment, nvml.installed(found(environment))) if gpu else None


def found(environment: Mapping[str, str]) -> Path:
    try:
        return driver.find(environment)
    except driver.NoDriver as error:
        raise Problem(f"nothing can be profiled: {error}", "`cotenant doctor` says more") from None


def model(environment: Mapping[str, str], shown: str | None) -> Model:
    """Of the first device. Asks the driver in this process, which makes no context. Raises Problem."""
    if shown is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = shown
    path = found(environment)
    try:
        library = ctypes.CDLL(str(path))
        device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
        failed = library.cuInit(0) or library.cuDeviceGet(ctypes.byref(device), 0)
        failed = failed or library.cuDeviceGetName(name, len(name), device)
    except (OSError, AttributeError) as error:
        raise Problem(f"the driver {path} does not answer: {error}", "`cotenant doctor` says more") from None
    if failed:
        raise Problem(f"the driver shows no GPU (error {failed})", "`cotenant doctor` says more")

    def attribute(which: int) -> int:
        value = ctypes.c_int()
        return 0 if library.cuDeviceGetAttribute(ctypes.byref(value), which, device) else value.value

    text = name.value.decode(errors="replace")
    # Two transfers a clock, as the recorder counts.
    gbps = 2 * attribute(MEMORY_KHZ) * attribute(MEMORY_BITS) // 8_000_000
    return Model(text, attribute(SMS), gbps or peaks.memory_gbps(text))
