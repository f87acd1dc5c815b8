"""Modules and launches."""

from __future__ import annotations

from typing import Any

from tests.softgpu.calls import code, value
from tests.softgpu.probes.needs import (
    MIB,
    MODULE_WITHOUT_KERNELS,
    empty_kernel,
    loaded,
    new_context,
    streamed,
)
from tests.softgpu.probes.table import (
    INVALID_HANDLE,
    INVALID_IMAGE,
    INVALID_VALUE,
    NOT_FOUND,
    SUCCESS,
    probe,
)


def load(cuda: Any, image: bytes) -> int:
    answer = cuda.cuModuleLoadData(image)
    if code(answer) == SUCCESS:
        value(cuda.cuModuleUnload(answer[1]))
    return code(answer)


@probe(INVALID_IMAGE)
def load_garbage(cuda: Any) -> int:
    return load(cuda, b"this is no module\0")


@probe(INVALID_IMAGE)
def load_bytes_that_are_no_text(cuda: Any) -> int:
    return load(cuda, bytes(range(200, 256)) + bytes(200))


@probe(INVALID_IMAGE)
def load_nothing(cuda: Any) -> int:
    return load(cuda, bytes(64))


@probe(SUCCESS)
def load_a_module_without_kernels(cuda: Any) -> int:
    return load(cuda, MODULE_WITHOUT_KERNELS)


@probe(NOT_FOUND)
def get_a_function_that_is_not_there(cuda: Any) -> int:
    with loaded(cuda) as module:
        return code(cuda.cuModuleGetFunction(module, b"absent"))


def launch(cuda: Any, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int = 0) -> int:
    with empty_kernel(cuda) as function:
        return code(cuda.cuLaunchKernel(function, *grid, *block, shared, 0, 0, 0))


@probe(SUCCESS)
def launch_as_it_should_be(cuda: Any) -> int:
    return launch(cuda, (2, 1, 1), (32, 1, 1))


@probe(INVALID_VALUE)
def launch_no_blocks(cuda: Any) -> int:
    return launch(cuda, (0, 1, 1), (32, 1, 1))


@probe(INVALID_VALUE)
def launch_no_threads(cuda: Any) -> int:
    return launch(cuda, (1, 1, 1), (32, 0, 1))


@probe(INVALID_VALUE)
def launch_too_many_threads(cuda: Any) -> int:
    return launch(cuda, (1, 1, 1), (1025, 1, 1))


@probe(INVALID_VALUE)
def launch_too_many_threads_in_all(cuda: Any) -> int:
    return launch(cuda, (1, 1, 1), (32, 32, 2))


@probe(INVALID_VALUE)
def launch_too_high_a_grid(cuda: Any) -> int:
    return launch(cuda, (1, 65536, 1), (1, 1, 1))


@probe(INVALID_VALUE)
def launch_with_too_much_shared_memory(cuda: Any) -> int:
    return launch(cuda, (1, 1, 1), (32, 1, 1), MIB)


@probe(INVALID_VALUE)
def launch_with_more_shared_memory_than_was_asked_for(cuda: Any) -> int:
    """More than 48 KiB must be asked for."""
    return launch(cuda, (1, 1, 1), (32, 1, 1), 64 << 10)


@probe(INVALID_HANDLE)
def launch_a_function_of_another_context(cuda: Any) -> int:
    with empty_kernel(cuda) as function, new_context(cuda):
        return code(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))


@probe(INVALID_HANDLE)
def launch_in_a_stream_of_another_context(cuda: Any) -> int:
    with empty_kernel(cuda) as function, new_context(cuda), streamed(cuda) as stream:
        return code(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0))


@probe(SUCCESS)
def launch_in_a_stream_of_a_context_that_is_not_current(cuda: Any) -> int:
    with empty_kernel(cuda) as function, streamed(cuda) as stream, new_context(cuda):
        return code(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0))
