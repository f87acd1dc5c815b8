"""The memory that the driver keeps in stock, of two GPUs: it is counted where it is, and as much as it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program, cuda_headers


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("pools"),
        "tests/tenant/pools.cpp",
        "native/tenant/memory/pools.cpp",
        headers=cuda_headers(),
    )


@pytest.mark.parametrize("case", ["lives", "stock", "graphs", "contexts"])
def test_stocks(pools: Path, case: str) -> None:
    done = subprocess.run([str(pools), case], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
