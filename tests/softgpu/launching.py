"""Launching kernels of text modules from tests."""

from __future__ import annotations

import ctypes
from typing import Any

from tests.softgpu.calls import value

TYPES = {
    "fill": (ctypes.c_uint64, ctypes.c_float, ctypes.c_uint64),
    "add": (ctypes.c_uint64,) * 4,
    "scale": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_float, ctypes.c_uint64),
    "spin": (ctypes.c_uint64,),
}


def parameters(name: str, *arguments: Any) -> Any:
    if not arguments:
        return 0
    plain = tuple(a if isinstance(a, float) else int(a) for a in arguments)
    return (plain, TYPES[name])


def try_launch(
    cuda: Any, function: Any, stream: Any, params: Any = 0, grid: int = 64, block: int = 128
) -> Any:
    return cuda.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, params, 0)


def launch(cuda: Any, function: Any, stream: Any, params: Any = 0, grid: int = 64, block: int = 128) -> None:
    value(try_launch(cuda, function, stream, params, grid, block))
