"""What each context has of the tenant's, when contexts and their streams come and go."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program, cuda_headers


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("contexts"),
        "tests/tenant/contexts.cpp",
        "native/tenant/gpu_pages.cpp",
        "native/tenant/green_contexts.cpp",
        "native/tenant/progress.cpp",
        headers=cuda_headers(),
    )


@pytest.mark.parametrize("case", ["pages", "greens", "places"])
def test_each_has_its_own_and_gives_it_back(contexts: Path, case: str) -> None:
    done = subprocess.run([str(contexts), case], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
