"""Green contexts: streams of their own in the primary context, which go with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.softgpu.calls import value

if TYPE_CHECKING:
    from tests.softgpu.gate import Gate


@pytest.fixture
def green(cuda: Any, context: Any) -> Iterator[Any]:
    whole = value(cuda.cuDeviceGetDevResource(0, cuda.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
    groups, _, _ = value(cuda.cuDevSmResourceSplitByCount(1, whole, 0, 1))
    description = value(cuda.cuDevResourceGenerateDesc(groups, 1))
    one = value(
        cuda.cuGreenCtxCreate(description, 0, cuda.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM)
    )
    yield one
    cuda.cuGreenCtxDestroy(one)


def stream_of(cuda: Any, green: Any) -> Any:
    return value(cuda.cuGreenCtxStreamCreate(green, cuda.CUstream_flags.CU_STREAM_NON_BLOCKING, 0))


def test_a_stream_knows_its_green_context_and_the_primary_one(cuda: Any, context: Any, green: Any) -> None:
    stream = stream_of(cuda, green)
    of_stream, of_green = value(cuda.cuStreamGetCtx_v2(stream))
    assert (int(of_stream), int(of_green)) == (int(context), int(green))
    # The same handle each time, and not the primary's.
    as_context = int(value(cuda.cuCtxFromGreenCtx(green)))
    assert as_context == int(value(cuda.cuCtxFromGreenCtx(green))) != int(context)
    value(cuda.cuStreamDestroy(stream))


def test_memory_of_a_green_context_is_the_primary_ones(cuda: Any, context: Any, green: Any) -> None:
    value(cuda.cuCtxSetCurrent(value(cuda.cuCtxFromGreenCtx(green))))
    pointer = value(cuda.cuMemAlloc(1 << 20))
    owner = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_CONTEXT
    assert int(value(cuda.cuPointerGetAttribute(owner, pointer))) == int(context)
    value(cuda.cuGreenCtxDestroy(green))
    value(cuda.cuCtxSetCurrent(context))
    value(cuda.cuMemsetD8(pointer, 7, 16))
    value(cuda.cuMemFree(pointer))


def test_what_waits_for_the_primary_context_waits_for_its_green_ones(
    cuda: Any, context: Any, green: Any, gate: Gate
) -> None:
    stream = stream_of(cuda, green)
    event = value(cuda.cuEventCreate(cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING))
    gate.hold(stream)
    value(cuda.cuCtxRecordEvent(context, event))
    gate.settle()
    assert cuda.cuEventQuery(event)[0] == cuda.CUresult.CUDA_ERROR_NOT_READY
    gate.open()
    value(cuda.cuCtxSynchronize())
    value(cuda.cuEventQuery(event))
    value(cuda.cuEventDestroy(event))
    value(cuda.cuStreamDestroy(stream))


def test_streams_of_a_green_context_go_with_it(cuda: Any, context: Any, green: Any) -> None:
    stream = stream_of(cuda, green)
    as_context = value(cuda.cuCtxFromGreenCtx(green))
    value(cuda.cuGreenCtxDestroy(green))
    assert cuda.cuStreamQuery(stream)[0] == cuda.CUresult.CUDA_ERROR_CONTEXT_IS_DESTROYED
    assert cuda.cuCtxSetCurrent(as_context)[0] == cuda.CUresult.CUDA_ERROR_INVALID_CONTEXT
    assert cuda.cuStreamDestroy(stream)[0] == cuda.CUresult.CUDA_ERROR_CONTEXT_IS_DESTROYED


def test_a_green_context_has_no_per_thread_stream(cuda: Any, context: Any, green: Any) -> None:
    value(cuda.cuCtxSetCurrent(value(cuda.cuCtxFromGreenCtx(green))))
    pointer = value(cuda.cuMemAlloc(4096))
    assert cuda.cuMemsetD8Async(pointer, 1, 16, 2)[0] == cuda.CUresult.CUDA_ERROR_INVALID_HANDLE
    value(cuda.cuMemFree(pointer))
    value(cuda.cuCtxSetCurrent(context))


def test_an_event_of_a_context_is_refused_where_one_of_its_streams_captures(cuda: Any, context: Any) -> None:
    stream = value(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))
    event = value(cuda.cuEventCreate(cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING))
    mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    value(cuda.cuStreamBeginCapture(stream, mode))
    assert cuda.cuCtxRecordEvent(context, event)[0] == cuda.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    assert cuda.cuStreamEndCapture(stream)[0] == cuda.CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
    value(cuda.cuEventDestroy(event))
    value(cuda.cuStreamDestroy(stream))
