"""NVML of the driver that is in use, and the GPUs that it lists."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Gpu:
    index: int
    uuid: str
    pci_id: str
    name: str
    memory_bytes: int = 0
    mig: bool = False
    instances: tuple[str, ...] = ()  # UUIDs of its MIG instances
    instance_names: tuple[str, ...] = ()  # in the same order: "NVIDIA H200 MIG 3g.71gb"
    problem: str = ""  # NVML's error where it does not answer: nothing else is known of it then

    def __str__(self) -> str:
        return f"{self.index} {self.problem or f'{self.name} {self.uuid} {self.pci_id}'}"


def start(driver: Path | None) -> Any:
    """The `pynvml` module, initialised with the NVML of this driver; nvmlShutdown ends it. Raises its NVMLError."""
    import pynvml

    beside = driver.parent / "libnvidia-ml.so.1" if driver else None
    if beside and beside.exists():
        with suppress(OSError):
            # pynvml opens it by name, and a library loaded under this name is the one it gets.
            ctypes.CDLL(str(beside), mode=ctypes.RTLD_GLOBAL)
    pynvml.nvmlInit()
    return pynvml


@contextmanager
def session(driver: Path | None) -> Iterator[Any]:
    """The same while this lasts; None where there is none."""
    import pynvml

    try:
        ml = start(driver)
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield ml
    finally:
        ml.nvmlShutdown()


def installed(driver: Path | None) -> list[Gpu] | None:
    """What NVML lists, None without NVML."""
    with session(driver) as ml:
        return None if ml is None else [describe(ml, i) for i in range(ml.nvmlDeviceGetCount())]


def describe(ml: Any, index: int) -> Gpu:
    """One that has fallen off the bus keeps its number: the others' must not change."""
    try:
        return of_its_own(ml, index)
    except ml.NVMLError as error:
        return Gpu(index, uuid="", pci_id="", name="", problem=str(error))


def of_its_own(ml: Any, index: int) -> Gpu:
    """Raises NVMLError."""
    device = ml.nvmlDeviceGetHandleByIndex(index)
    try:
        mig = ml.nvmlDeviceGetMigMode(device)[0] == ml.NVML_DEVICE_MIG_ENABLE
    except ml.NVMLError:
        mig = False
    parts = tuple(instances(ml, device)) if mig else ()
    return Gpu(
        index=index,
        uuid=text(ml.nvmlDeviceGetUUID(device)),
        pci_id=text(ml.nvmlDeviceGetPciInfo(device).busId),
        name=text(ml.nvmlDeviceGetName(device)),
        memory_bytes=int(ml.nvmlDeviceGetMemoryInfo(device).total),
        mig=mig,
        instances=tuple(uuid for uuid, _ in parts),
        instance_names=tuple(name for _, name in parts),
    )


def instances(ml: Any, device: Any) -> Iterator[tuple[str, str]]:
    """UUID and name of each."""
    for i in range(ml.nvmlDeviceGetMaxMigDeviceCount(device)):
        try:
            handle = ml.nvmlDeviceGetMigDeviceHandleByIndex(device, i)
            yield text(ml.nvmlDeviceGetUUID(handle)), text(ml.nvmlDeviceGetName(handle))
        except ml.NVMLError:
            continue


def text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
