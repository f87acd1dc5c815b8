"""How far a stream has got, by what the GPU writes, and what may be put into it then."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program, cuda_headers


@pytest.fixture(scope="module")
def progress(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("progress"),
        "tests/tenant/progress.cpp",
        "native/tenant/progress.cpp",
        headers=cuda_headers(),
    )


@pytest.mark.parametrize("case", ["behind", "empty", "operations", "linked", "copies", "words", "none"])
def test_progress(progress: Path, case: str) -> None:
    done = subprocess.run([str(progress), case], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
