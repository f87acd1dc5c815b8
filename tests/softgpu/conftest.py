"""What the driver tests share. All of it works on a real GPU too, but for text modules."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.softgpu.calls import value
from tests.softgpu.gate import Gate

KERNELS = b"""softgpu 1
kernel nothing  time=0us
kernel burn     time=1ms
kernel narrow   time=1ms sms=1
kernel spin     time=@0us params=u64
kernel fill     function=fill
kernel add      function=add
kernel scale    function=scale
"""


@pytest.fixture
def gate(cuda: Any, context: Any) -> Iterator[Gate]:
    made = Gate(cuda)
    yield made
    made.close()


@pytest.fixture
def new_stream(cuda: Any, context: Any) -> Iterator[Callable[..., Any]]:
    """Makes streams that go with the test."""
    made = []

    def make(flags: int = 0, priority: int = 0) -> Any:
        made.append(value(cuda.cuStreamCreateWithPriority(flags, priority)))
        return made[-1]

    yield make
    for stream in made:
        cuda.cuStreamDestroy(stream)


@pytest.fixture
def new_event(cuda: Any, context: Any) -> Iterator[Callable[..., Any]]:
    made = []

    def make(flags: int = 0) -> Any:
        made.append(value(cuda.cuEventCreate(flags)))
        return made[-1]

    yield make
    for event in made:
        cuda.cuEventDestroy(event)


@pytest.fixture
def buffer(cuda: Any, context: Any) -> Iterator[Any]:
    """A page of device memory, all zero."""
    pointer = value(cuda.cuMemAlloc(4096))
    value(cuda.cuMemsetD8(pointer, 0, 4096))
    yield pointer
    cuda.cuMemFree(pointer)


@pytest.fixture
def kernels(cuda: Any, context: Any) -> Iterator[Callable[[str], Any]]:
    """`kernels(name)`: a function of the text module above, which only the software GPU loads."""
    if os.environ.get("COTENANT_TEST_REAL_GPU") == "1":
        pytest.skip("text modules are the software GPU's")
    module = value(cuda.cuModuleLoadData(KERNELS + b"\0"))
    yield lambda name: value(cuda.cuModuleGetFunction(module, name.encode()))
    cuda.cuModuleUnload(module)
