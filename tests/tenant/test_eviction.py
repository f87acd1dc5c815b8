"""Moving a tenant's memory: whatever fails on the way, no byte is lost, and it is on the GPU or paused, never torn."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import EVICTION, SMALL_HOST_BLOCKS, WIRE, compile_program, cuda_headers


@pytest.fixture(scope="module")
def eviction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("eviction"),
        "tests/tenant/eviction.cpp",
        *EVICTION,
        *WIRE,
        define=SMALL_HOST_BLOCKS,
        headers=cuda_headers(),
    )


@pytest.mark.parametrize(
    "case",
    [
        "evicting",
        "evicting, and restoring",
        "evicting, for good",
        "evicting, and the rest",
        "restoring, and evicting again",
        "restoring",
        "restoring, for good",
        "no space",
        "parts",
        "turning",
        "host memory",
        "budget",
        "wide ranges",
        "a context ends",
        "shrinking",
        "pinned in a context that ends",
    ],
)
def test_moving(eviction: Path, tmp_path: Path, case: str) -> None:
    command = [str(eviction), str(tmp_path / "segment"), case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
