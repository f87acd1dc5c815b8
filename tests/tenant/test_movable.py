"""Allocations of memory that can move: who shares what, whatever call fails, in captures and in other contexts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import EVICTION, SMALL_HOST_BLOCKS, WIRE, compile_program, cuda_headers


@pytest.fixture(scope="module")
def movable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("movable"),
        "tests/tenant/movable.cpp",
        *(f"native/tenant/memory/{name}.cpp" for name in ("movable", "residence", "slabs")),
        "native/tenant/captures.cpp",
        *EVICTION,
        *WIRE,
        define=SMALL_HOST_BLOCKS,
        headers=cuda_headers(),
    )


@pytest.mark.parametrize("case", ["sharing", "failing", "freeing", "exporting"])
def test_memory_that_can_move(movable: Path, case: str) -> None:
    done = subprocess.run([str(movable), case], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
