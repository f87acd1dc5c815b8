"""Contexts: which is current, and who may destroy it."""

from __future__ import annotations

from typing import Any

from tests.softgpu.calls import code, value
from tests.softgpu.probes.needs import MIB, NO_SUCH_DEVICE, in_thread, new_context
from tests.softgpu.probes.table import INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, SUCCESS, probe


@probe(INVALID_DEVICE)
def retain_the_context_of_no_device(cuda: Any) -> int:
    return code(cuda.cuDevicePrimaryCtxRetain(NO_SUCH_DEVICE))


@probe(INVALID_CONTEXT)
def allocate_without_a_context(cuda: Any) -> int:
    return in_thread(lambda: code(cuda.cuMemAlloc(MIB)))


@probe(INVALID_CONTEXT)
def synchronize_without_a_context(cuda: Any) -> int:
    return in_thread(lambda: code(cuda.cuCtxSynchronize()))


@probe(INVALID_CONTEXT)
def create_a_stream_without_a_context(cuda: Any) -> int:
    return in_thread(lambda: code(cuda.cuStreamCreate(0)))


@probe(INVALID_CONTEXT)
def pop_from_an_empty_stack(cuda: Any) -> int:
    return in_thread(lambda: code(cuda.cuCtxPopCurrent()))


@probe(SUCCESS)
def set_no_current_context(cuda: Any) -> int:
    return in_thread(lambda: code(cuda.cuCtxSetCurrent(None)))


@probe(INVALID_VALUE)
def push_no_context(cuda: Any) -> int:
    return in_thread(lambda: code(cuda.cuCtxPushCurrent(None)))


@probe(INVALID_VALUE)
def create_a_context_with_unknown_flags(cuda: Any) -> int:
    return code(cuda.cuCtxCreate(None, 0x1000, 0))


@probe(INVALID_DEVICE)
def create_a_context_on_no_device(cuda: Any) -> int:
    return code(cuda.cuCtxCreate(None, 0, NO_SUCH_DEVICE))


@probe(SUCCESS)
def allocate_after_another_context_was_destroyed(cuda: Any) -> int:
    with new_context(cuda):
        pass
    answer = cuda.cuMemAlloc(MIB)
    if code(answer) == SUCCESS:
        value(cuda.cuMemFree(answer[1]))
    return code(answer)


@probe(INVALID_CONTEXT, crashes=True)
def set_current_what_is_no_context(cuda: Any) -> int:
    return code(cuda.cuCtxSetCurrent(cuda.CUcontext(0x1230)))


@probe(INVALID_CONTEXT, apart=True)
def destroy_a_primary_context(cuda: Any) -> int:
    return code(cuda.cuCtxDestroy(value(cuda.cuCtxGetCurrent())))


@probe(INVALID_CONTEXT, apart=True)
def release_a_primary_context_too_often(cuda: Any) -> int:
    value(cuda.cuDevicePrimaryCtxRelease(0))
    return code(cuda.cuDevicePrimaryCtxRelease(0))
