"""What arrays and imported memory are counted as: the driver tells nobody, so their descriptions must."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REAL_GPU

if TYPE_CHECKING:
    from tests.conftest import RunPython

pytestmark = pytest.mark.skipif(REAL_GPU, reason="of a driver that takes no memory for them")

# It makes anything but what is 3 wide.
DRIVER = """
static unsigned long last = 1000;
int cuArray3DCreate_v2(void** out, unsigned long* wanted) { *out = (void*)++last; return *wanted == 3; }
int cuMipmappedArrayCreate(void** out, unsigned long* wanted, unsigned levels) {
    *out = (void*)++last; return *wanted == 3;
}
int cuImportExternalMemory(void** out, void* wanted) { *out = (void*)++last; return 0; }
int cuArrayDestroy(void* array) { return 0; }
int cuMipmappedArrayDestroy(void* array) { return array == 0; }
int cuDestroyExternalMemory(void* memory) { return memory == 0; }
"""
COUNTING = """
import ctypes, json, sys
from soft import Gpu, check, driver
from memory_ways import counted
gpu = Gpu(); library = ctypes.CDLL('libcuda.so.1'); made = ctypes.c_void_p(); named = driver.CUarray_format
check(driver.cuMemAlloc(1000)); before = counted(); found = []
def count(make, destroy):
    result = make(); during = counted() - before
    if not result: assert destroy(made) == 0
    found.append([result, during, counted() - before])
for format, channels, width, height, depth, flags, levels in json.loads(sys.argv[1]):
    wanted = driver.CUDA_ARRAY3D_DESCRIPTOR(); wanted.Width, wanted.Height, wanted.Depth = width, height, depth
    wanted.Format, wanted.NumChannels, wanted.Flags = getattr(named, 'CU_AD_FORMAT_' + format), channels, flags
    about = ctypes.c_void_p(int(wanted.getPtr())), ctypes.c_uint(levels)
    if levels == 0: count(lambda: library.cuArray3DCreate_v2(ctypes.byref(made), about[0]), library.cuArrayDestroy)
    else:
        make = lambda: library.cuMipmappedArrayCreate(ctypes.byref(made), *about)
        count(make, library.cuMipmappedArrayDestroy)
for size in (8 << 20, 900 << 20):
    wanted = driver.CUDA_EXTERNAL_MEMORY_HANDLE_DESC(); wanted.size = size
    about = ctypes.c_void_p(int(wanted.getPtr()))
    count(lambda: library.cuImportExternalMemory(ctypes.byref(made), about), library.cuDestroyExternalMemory)
print(json.dumps(found))
"""
MiB = 1 << 20
LAYERED, SPARSE, DEFERRED = 0x01, 0x40, 0x80
# Format, channels, width, height, depth, flags, levels (0: no mipmap); and the MiB that it takes.
ARRAYS = (
    (("FLOAT", 1, 1024, 1024, 0, 0, 0), 4),
    (("FLOAT", 2, 1024, 1024, 0, 0, 0), 8),
    (("FLOAT", 1, 1024, 1024, 5, 0, 0), 20),
    (("UNSIGNED_INT8", 1, 4096, 1024, 0, 0, 0), 4),
    (("SIGNED_INT8", 1, 4096, 1024, 0, 0, 0), 4),
    (("UNSIGNED_INT16", 1, 2048, 1024, 0, 0, 0), 4),
    (("SIGNED_INT16", 1, 2048, 1024, 0, 0, 0), 4),
    (("HALF", 1, 2048, 1024, 0, 0, 0), 4),
    (("UNSIGNED_INT8", 1, 1, 1 << 16, 0, 0, 0), 4),  # a row of 64 bytes
    (("FLOAT", 1, 1024, 1024, 0, SPARSE, 0), 0),
    (("FLOAT", 1, 1024, 1024, 0, DEFERRED, 0), 0),
    (("FLOAT", 1, 2048, 2048, 0, 0, 1), 16),
    (("FLOAT", 1, 2048, 2048, 0, 0, 2), 16 + 4),
    (("FLOAT", 1, 512, 512, 64, 0, 2), 64 + 8),
    (("FLOAT", 1, 512, 512, 64, LAYERED, 2), 64 + 16),
    (("FLOAT", 1, 1 << 20, 0, 0, 0, 2), 32 + 16),  # one row is eight high
)


def test_they_are_counted_as_what_their_descriptions_need(
    preloaded: dict[str, str], run_python: RunPython, driver_with: Callable[[str], Path]
) -> None:
    refused = (("FLOAT", 1, 3, 1 << 19, 0, 0, 0), ("FLOAT", 1, 3, 1 << 19, 0, 0, 2))
    too_large = (("FLOAT", 1, 1 << 31, 1 << 31, 1 << 31, 0, 0), ("FLOAT", 1, 1 << 14, 1 << 14, 0, 0, 0))
    asked = [*(about for about, _ in ARRAYS), *refused, *too_large]
    told = {"COTENANT_DRIVER": str(driver_with(DRIVER)), "COTENANT_MEMORY": "512M"}
    done = run_python(COUNTING, preloaded | told, json.dumps(asked))
    assert done.returncode == 0, done.stderr
    made, others = ([[0, size * MiB, 0] for _, size in ARRAYS], [[1, 0, 0]] * 2 + [[2, 0, 0]] * 2)
    assert json.loads(done.stdout) == [*made, *others, [0, 8 * MiB, 0], [2, 0, 0]]
