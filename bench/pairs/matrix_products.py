"""Matrix products by JAX, each a kernel of about 0.4 ms on an H200."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

# Before JAX is loaded: memory as it is needed, and the same kernels in every process, so nothing is tried out. They are
# cuBLAS's: of Triton's, JAX takes one that needs 23 ms where it may try none out.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false".strip()
)

import jax
import jax.numpy as jnp
import numpy


class JaxProducts:
    """A step is ten products, one after another."""

    SIZE, PRODUCTS = 5120, 10

    def __init__(self) -> None:
        try:
            device = jax.devices("gpu")[0]
        except RuntimeError as error:
            raise ImportError(f"JAX sees no GPU: {error}") from None
        self.about: dict[str, Any] = {"gpu": device.device_kind, "versions": {"jax": jax.__version__}}
        left, right = jax.random.split(jax.random.PRNGKey(1234))
        shape = (self.SIZE, self.SIZE)
        self._first = jax.random.normal(left, shape, dtype=jnp.bfloat16)
        self._factor = jax.random.normal(right, shape, dtype=jnp.bfloat16) * self.SIZE**-0.5
        self._multiply = jax.jit(lambda x, factor: x @ factor)
        self._state = self._first
        for _ in range(3):
            self.step()()

    def prepare(self) -> None:
        self._state = self._first

    def step(self) -> Callable[[], object]:
        for _ in range(self.PRODUCTS):
            self._state = self._multiply(self._state, self._factor)
        wait: Callable[[], object] = self._state.block_until_ready
        return wait

    def snapshot(self) -> Callable[[], bytes]:
        state = self._state
        return lambda: bytes(numpy.asarray(state[:64]).tobytes())
