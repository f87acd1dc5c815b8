"""What tenants see of each other's time slices and floors."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import WIRE, compile_program


@pytest.fixture(scope="module")
def slices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("slices"), "tests/wire/slices.cpp", *WIRE)


@pytest.mark.parametrize("case", ["shares", "below", "floors", "above"])
def test_slices(slices: Path, tmp_path: Path, case: str) -> None:
    command = [str(slices), str(tmp_path / "segment"), case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
