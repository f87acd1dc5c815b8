"""Whether the mover waits for the boundary between two steps of a training, by itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program, cuda_headers


@pytest.fixture(scope="module")
def boundary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("step_boundary"),
        "tests/tenant/step_boundary.cpp",
        "native/tenant/memory/step_boundary.cpp",
        "native/tenant/captures.cpp",
        headers=cuda_headers(),
    )


@pytest.mark.parametrize("case", ["expected_in_time", "longest", "not_counted", "stays"])
def test_boundaries(boundary: Path, case: str) -> None:
    done = subprocess.run([str(boundary), case], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
