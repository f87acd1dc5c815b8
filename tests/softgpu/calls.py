"""How tests call the driver: every call must succeed unless the test says which error it expects."""

from __future__ import annotations

from typing import Any


def value(answer: tuple[Any, ...]) -> Any:
    """What a call returned besides CUDA_SUCCESS: nothing, one thing, or a tuple."""
    result, *rest = answer
    assert int(result) == 0, result
    return rest[0] if len(rest) == 1 else tuple(rest)


def code(answer: tuple[Any, ...]) -> int:
    return int(answer[0])


def upload(cuda: Any, pointer: Any, data: bytes) -> None:
    value(cuda.cuMemcpyHtoD(pointer, data, len(data)))


def download(cuda: Any, pointer: Any, size: int) -> bytes:
    data = bytearray(size)
    value(cuda.cuMemcpyDtoH(data, pointer, size))
    return bytes(data)
