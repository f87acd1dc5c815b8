"""The capacity of a device is one for all processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from tests.conftest import REAL_GPU

pytestmark = pytest.mark.skipif(REAL_GPU, reason="needs a device that nobody else uses")

# Does what its input says, a line each, and answers with the error code or the free bytes.
CLIENT = """
import sys
from cuda.bindings import driver
driver.cuInit(0)
_, context = driver.cuDevicePrimaryCtxRetain(0)
driver.cuCtxSetCurrent(context)
for line in sys.stdin:
    call, amount = line.split()
    if call == "allocate":
        print(int(driver.cuMemAlloc(int(amount))[0]), flush=True)
    else:
        print(driver.cuMemGetInfo()[1], flush=True)
"""
MIB = 1 << 20
OUT_OF_MEMORY = 2


class Client:
    def __init__(self, child: subprocess.Popen[str], requests: IO[str], answers: IO[str]) -> None:
        self.child, self.requests, self.answers = child, requests, answers

    def ask(self, call: str, amount: int = 0) -> int:
        self.requests.write(f"{call} {amount}\n")
        self.requests.flush()
        return int(self.answers.readline())


@contextmanager
def client(env: dict[str, str]) -> Iterator[Client]:
    command = [sys.executable, "-c", CLIENT]
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        try:
            yield Client(child, child.stdin, child.stdout)
        finally:
            child.kill()


def test_what_one_process_holds_another_cannot_have(softgpu_env: dict[str, str]) -> None:
    with client(softgpu_env) as one, client(softgpu_env) as other:
        half = one.ask("free") // 2
        assert one.ask("allocate", half) == 0
        assert other.ask("free") <= half
        assert other.ask("allocate", half + 4 * MIB) == OUT_OF_MEMORY
        assert other.ask("allocate", half - 4 * MIB) == 0


def test_a_killed_process_gives_its_memory_back(softgpu_env: dict[str, str]) -> None:
    with client(softgpu_env) as other:
        before = other.ask("free")
        with client(softgpu_env) as one:
            assert one.ask("allocate", 100 * MIB) == 0
            assert other.ask("free") == before - 100 * MIB
        deadline = time.monotonic() + 20
        while other.ask("free") != before:
            assert time.monotonic() < deadline, "the memory of a killed process is still held"
