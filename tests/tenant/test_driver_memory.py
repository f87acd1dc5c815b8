"""What the driver takes by itself, and the limit within what an administrator's identity file says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import WIRE, compile_program, cuda_headers


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("driver_memory"),
        "tests/tenant/driver_memory.cpp",
        "native/tenant/memory/driver_memory.cpp",
        "native/tenant/memory/quota.cpp",
        "native/tenant/amounts.cpp",
        *WIRE,
        headers=cuda_headers(),
    )


@pytest.mark.parametrize("case", ["identity", "of_the_run", "measuring"])
def test_limits_and_the_drivers_own_memory(program: Path, tmp_path: Path, case: str) -> None:
    command = [str(program), str(tmp_path / "segment"), case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
