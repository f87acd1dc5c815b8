"""Devices and contexts: what there is, what is current, and what goes with a context."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import REAL_GPU, RunPython
from tests.softgpu.calls import code, value

NOT_INITIALIZED, NO_DEVICE, INVALID_DEVICE = 3, 100, 101
INVALID_CONTEXT, CONTEXT_IS_DESTROYED = 201, 709


def test_nothing_works_before_init(run_python: RunPython, softgpu_env: dict[str, str]) -> None:
    program = """
from cuda.bindings import driver
print(int(driver.cuDeviceGetCount()[0]), int(driver.cuCtxSynchronize()[0]), int(driver.cuDriverGetVersion()[0]))
"""
    done = run_python(program, softgpu_env)
    assert done.stdout.split() == [str(NOT_INITIALIZED)] * 2 + ["0"], done.stderr


def test_a_forked_child_is_told_that_nothing_is_initialised(
    run_python: RunPython, softgpu_env: dict[str, str]
) -> None:
    program = """
import os
from cuda.bindings import driver
driver.cuInit(0)
context = driver.cuDevicePrimaryCtxRetain(0)[1]
driver.cuCtxSetCurrent(context)
stream = driver.cuStreamCreate(0)[1]
if (child := os.fork()) == 0:
    answers = [driver.cuInit(0), driver.cuDeviceGetCount(), driver.cuCtxGetCurrent(), driver.cuMemAlloc(1)]
    os._exit(0 if all(int(a[0]) == 3 for a in answers) else 1)
assert os.waitpid(child, 0)[1] == 0
print(int(driver.cuStreamSynchronize(stream)[0]))
"""
    done = run_python(program, softgpu_env)
    assert done.stdout.split() == ["0"], done.stderr


def test_a_child_of_a_process_without_cuda_may_begin(
    run_python: RunPython, softgpu_env: dict[str, str]
) -> None:
    program = """
import os
from cuda.bindings import driver
driver.cuDriverGetVersion()
if (child := os.fork()) == 0:
    os._exit(int(driver.cuInit(0)[0]))
print(os.waitpid(child, 0)[1])
"""
    done = run_python(program, softgpu_env)
    assert done.stdout.split() == ["0"], done.stderr


@pytest.mark.skipif(REAL_GPU, reason="needs a machine with two devices")
@pytest.mark.parametrize(
    ("visible", "count"),
    [("", None), ("0,1", 2), ("1", 1), ("1,7,0", 1), ("-1", None), ("0,0", None), ("7", None)],
)
def test_visible_devices_are_chosen_by_index(
    run_python: RunPython, softgpu_env: dict[str, str], visible: str, count: int | None
) -> None:
    program = """
from cuda.bindings import driver
print(int(driver.cuInit(0)[0]), driver.cuDeviceGetCount()[1])
"""
    env = softgpu_env | {"COTENANT_SOFTGPU": "small,small", "CUDA_VISIBLE_DEVICES": visible}
    done = run_python(program, env)
    expected = ["0", str(count)] if count else [str(NO_DEVICE), "None"]
    assert done.stdout.split() == expected, done.stderr


@pytest.mark.skipif(REAL_GPU, reason="needs a machine with two devices")
def test_a_visible_device_is_chosen_by_uuid(run_python: RunPython, softgpu_env: dict[str, str]) -> None:
    program = """
import sys
from cuda.bindings import driver
driver.cuInit(0)
print(*(driver.cuDeviceGetUuid(i)[1].bytes.hex() for i in range(driver.cuDeviceGetCount()[1])))
"""
    env = softgpu_env | {"COTENANT_SOFTGPU": "small,small"}
    first, second = run_python(program, env).stdout.split()
    assert first != second
    text = "GPU-" + "-".join(second[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
    assert run_python(program, env | {"CUDA_VISIBLE_DEVICES": text}).stdout.split() == [second]
    assert run_python(program, env | {"CUDA_VISIBLE_DEVICES": text[:12]}).stdout.split() == [second]


def test_devices_answer(cuda: Any) -> None:
    device = value(cuda.cuDeviceGet(0))
    attribute = cuda.CUdevice_attribute
    assert value(cuda.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)) > 0
    assert value(cuda.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_WARP_SIZE, device)) == 32
    assert value(cuda.cuDeviceGetName(64, device)).split(b"\0")[0]
    assert code(cuda.cuDeviceGet(1000)) == INVALID_DEVICE
    assert code(cuda.cuDeviceGet(-1)) == INVALID_DEVICE
    assert code(cuda.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1000)) == INVALID_DEVICE


def test_the_primary_context_is_one_and_counted(cuda: Any) -> None:
    device = value(cuda.cuDeviceGet(0))
    first = value(cuda.cuDevicePrimaryCtxRetain(device))
    second = value(cuda.cuDevicePrimaryCtxRetain(device))
    assert int(first) == int(second)
    value(cuda.cuDevicePrimaryCtxRelease(device))
    assert value(cuda.cuDevicePrimaryCtxGetState(device))[1] == 1
    value(cuda.cuDevicePrimaryCtxRelease(device))
    assert value(cuda.cuDevicePrimaryCtxGetState(device))[1] == 0
    assert code(cuda.cuDevicePrimaryCtxRelease(device)) == INVALID_CONTEXT


def test_contexts_stack(cuda: Any, context: Any) -> None:
    made = value(cuda.cuCtxCreate(None, 0, 0))
    assert int(value(cuda.cuCtxGetCurrent())) == int(made) != int(context)
    assert int(value(cuda.cuCtxPopCurrent())) == int(made)
    assert int(value(cuda.cuCtxGetCurrent())) == int(context)
    value(cuda.cuCtxPushCurrent(made))
    assert int(value(cuda.cuCtxGetDevice())) == 0
    value(cuda.cuCtxDestroy(made))
    assert int(value(cuda.cuCtxGetCurrent())) == int(context)
    assert code(cuda.cuCtxDestroy(context)) == INVALID_CONTEXT


def test_a_context_is_current_for_its_thread_only(cuda: Any, context: Any) -> None:
    seen: list[int] = []

    def other() -> None:
        seen.append(int(value(cuda.cuCtxGetCurrent())))
        seen.append(code(cuda.cuStreamCreate(0)))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [0, INVALID_CONTEXT]


@pytest.mark.skipif(REAL_GPU, reason="a real driver leaves this to the caller to avoid")
def test_destroying_a_context_ends_those_who_wait_for_it(cuda: Any, context: Any, gate: Any) -> None:
    made = value(cuda.cuCtxCreate(None, 0, 0))
    stream = value(cuda.cuStreamCreate(0))
    gate.hold(stream)
    waiting = threading.Event()
    answer: list[int] = []

    def wait() -> None:
        waiting.set()
        answer.append(code(cuda.cuStreamSynchronize(stream)))

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    value(cuda.cuCtxPopCurrent())
    value(cuda.cuCtxDestroy(made))
    thread.join(30)
    assert answer and answer[0] != 0


def test_streams_of_two_contexts_do_not_mix(
    cuda: Any, context: Any, new_stream: Callable[..., Any], gate: Any
) -> None:
    gate.hold(new_stream())
    made = value(cuda.cuCtxCreate(None, 0, 0))
    value(cuda.cuCtxSynchronize())
    # A real driver's cuCtxDestroy waits for the streams of the process's other contexts.
    gate.open()
    value(cuda.cuCtxDestroy(made))
