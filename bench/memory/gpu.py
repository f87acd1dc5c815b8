"""The GPU by the driver's own calls, for programs that need no PyTorch."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

MIB = 1 << 20


def check(result: tuple[Any, ...]) -> Any:
    code, *values = result
    if int(code) != 0:
        raise SystemExit(f"error: the driver said {code!r}")
    return values[0] if values else None


def begin() -> None:
    check(driver.cuInit(0))
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(0))))
