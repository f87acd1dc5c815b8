"""How a model of GPU can be partitioned: its GPU instance profiles, and where on the GPU each may be placed.

NVML tells it of a GPU that is there. For one that is not, the table has what `nvidia-smi mig -lgip` and `-lgipp` say.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from typing import Any

SLICES = 8  # of a GPU's memory; placements count in them
GIB = 1 << 30
MOST_PROFILES = 64


@dataclass(frozen=True, slots=True)
class Profile:
    """Of a GPU instance."""

    name: str  # "3g.71gb"
    id: int
    sms: int
    memory_bytes: int
    size: int  # slices of memory that it takes
    starts: tuple[int, ...]  # the first of these, wherever it may be


@dataclass(frozen=True)
class Geometry:
    model: str
    sms: int  # without MIG
    profiles: tuple[Profile, ...]  # the smallest first


# NVIDIA has given the profiles of all these GPUs the same numbers and places.
PLACES = {
    "1g": (19, 1, (0, 1, 2, 3, 4, 5, 6)),
    "1g wide": (15, 2, (0, 2, 4, 6)),
    "2g": (14, 2, (0, 2, 4)),
    "3g": (9, 4, (0, 4)),
    "4g": (5, 4, (0,)),
    "7g": (0, 8, (0,)),
}
# A pattern of the name, SMs without MIG, and for each of PLACES the profile's name, SMs and GiB of memory.
TABLE = (
    (r"A100.*40GB", 108, (("1g.5gb", 14, 4.75), ("1g.10gb", 14, 9.62), ("2g.10gb", 28, 9.62), ("3g.20gb", 42, 19.5),
                          ("4g.20gb", 56, 19.5), ("7g.40gb", 98, 39.25))),
    (r"A100", 108, (("1g.10gb", 14, 9.5), ("1g.20gb", 14, 19.5), ("2g.20gb", 28, 19.5), ("3g.40gb", 42, 39.25),
                    ("4g.40gb", 56, 39.25), ("7g.80gb", 98, 78.75))),
    (r"(?<!G)H200|GH200.*144", 132, (("1g.18gb", 16, 16.0), ("1g.35gb", 26, 32.5), ("2g.35gb", 32, 32.5),
                                      ("3g.71gb", 60, 65.5), ("4g.71gb", 64, 65.5), ("7g.141gb", 132, 131.0))),
    (r"H100", 132, (("1g.10gb", 16, 9.75), ("1g.20gb", 26, 19.62), ("2g.20gb", 32, 19.62), ("3g.40gb", 60, 39.5),
                    ("4g.40gb", 64, 39.5), ("7g.80gb", 132, 79.25))),
    (r"B200", 148, (("1g.23gb", 18, 20.5), ("1g.45gb", 30, 44.25), ("2g.45gb", 36, 44.25), ("3g.90gb", 70, 86.0),
                    ("4g.90gb", 72, 86.0), ("7g.180gb", 148, 172.0))),
)  # fmt: skip
MODELS = ("A100-40GB", "A100-80GB", "H100", "H200", "B200")


def known(model: str) -> Geometry | None:
    """From the table; None: not in it."""
    for pattern, sms, rows in TABLE:
        if re.search(pattern, model, re.IGNORECASE):
            profiles = (
                Profile(name, number, instance_sms, int(gib * GIB), size, starts)
                for (name, instance_sms, gib), (number, size, starts) in zip(
                    rows, PLACES.values(), strict=True
                )
            )
            return Geometry(model, sms, tuple(profiles))
    return None


def placements(ml: Any, device: Any, profile: int) -> list[Any]:
    count = ctypes.c_uint()
    ml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile, None, ctypes.byref(count))
    found = (ml.c_nvmlGpuInstancePlacement_t * count.value)()
    ml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile, found, ctypes.byref(count))
    return list(found)[: count.value]


def from_nvml(ml: Any, device: Any, model: str, sms: int) -> Geometry | None:
    """What the driver says of this GPU; None: it has no MIG. `ml` is pynvml."""
    found = {}
    for which in range(MOST_PROFILES):
        try:
            about = ml.nvmlDeviceGetGpuInstanceProfileInfo(device, which, version=2)
            places = placements(ml, device, about.id)
        except ml.NVMLError:
            continue
        name = about.name.decode() if isinstance(about.name, bytes) else str(about.name)
        name = name.removeprefix("MIG ")
        # Those with media engines are for video, and there is only one of each.
        if not places or "+" in name or about.id in found:
            continue
        starts = tuple(sorted(place.start for place in places))
        found[about.id] = Profile(
            name, about.id, about.multiprocessorCount, about.memorySizeMB << 20, places[0].size, starts
        )
    by_size = sorted(found.values(), key=lambda one: (one.sms, one.memory_bytes))
    return Geometry(model, sms or (by_size[-1].sms if by_size else 0), tuple(by_size)) if by_size else None
