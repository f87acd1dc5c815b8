"""The book of the memory that can move: what goes with what, and what other tenants see of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import EVICTION, SMALL_HOST_BLOCKS, WIRE, compile_program, cuda_headers


@pytest.fixture(scope="module")
def residence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("residence"),
        "tests/tenant/residence.cpp",
        "native/tenant/memory/residence.cpp",
        "native/tenant/memory/slabs.cpp",
        *EVICTION,
        *WIRE,
        define=SMALL_HOST_BLOCKS,
        headers=cuda_headers(),
    )


@pytest.mark.parametrize("case", ["context_ends", "giving_back", "amounts"])
def test_the_book(residence: Path, case: str) -> None:
    done = subprocess.run([str(residence), case], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
