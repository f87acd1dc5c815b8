"""Frees in a stream's order by themselves: who has what was freed, and when it is free."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import EVICTION, SMALL_HOST_BLOCKS, WIRE, compile_program, cuda_headers


@pytest.fixture(scope="module")
def deferred_free(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("deferred_free"),
        "tests/tenant/deferred_free.cpp",
        "native/tenant/memory/deferred_free.cpp",
        "native/tenant/captures.cpp",
        *EVICTION,
        *WIRE,
        define=SMALL_HOST_BLOCKS,
        headers=cuda_headers(),
    )


@pytest.mark.parametrize("case", ["again", "in_order", "same_handle", "many", "walk"])
def test_frees(deferred_free: Path, case: str) -> None:
    done = subprocess.run(
        [str(deferred_free), case], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
