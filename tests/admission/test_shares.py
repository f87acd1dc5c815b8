"""Rates, floors and time slices, as pure arithmetic."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program


@pytest.fixture(scope="module")
def shares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("shares"), "tests/admission/shares.cpp")


@pytest.mark.parametrize("case", ["rate", "floors", "slices", "cut", "cost"])
def test_shares(shares: Path, case: str) -> None:
    done = subprocess.run([str(shares), case], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
