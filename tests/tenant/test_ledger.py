"""What a process has allocated and may still take, by kind, GPU and context; and what is given back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import WIRE, compile_program, cuda_headers


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("ledger"),
        "tests/tenant/ledger.cpp",
        *(f"native/tenant/memory/{name}.cpp" for name in ("ledger", "reserve", "quota")),
        "native/tenant/amounts.cpp",
        *WIRE,
        headers=cuda_headers(),
    )


@pytest.mark.parametrize("case", ["places", "kinds", "limits", "pools"])
def test_the_ledger(ledger: Path, tmp_path: Path, case: str) -> None:
    command = [str(ledger), str(tmp_path / "segment"), case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
