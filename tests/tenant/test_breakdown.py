"""Where the time of bursts goes (native/tenant/breakdown.h): waits for the GPU, gaps of the program's own, the rest."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program, cuda_headers


@pytest.fixture(scope="module")
def breakdown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("breakdown"),
        "tests/tenant/breakdown.cpp",
        "native/tenant/breakdown.cpp",
        "native/tenant/event_pair.cpp",
        "native/tenant/timeline.cpp",
        "native/wire/clock.cpp",
        headers=cuda_headers(),
    )


@pytest.mark.parametrize("case", ["starts", "gaps", "pace"])
def test_looks_become_figures(breakdown: Path, case: str) -> None:
    done = subprocess.run([str(breakdown), case], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
