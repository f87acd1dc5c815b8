"""Host memory that several threads make at once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program


@pytest.fixture(scope="module")
def fresh_blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("fresh_blocks"),
        "tests/tenant/fresh_blocks.cpp",
        "native/tenant/memory/fresh_blocks.cpp",
    )


@pytest.mark.parametrize("case", ["taken", "left over", "out of memory", "child"])
def test_fresh_blocks(fresh_blocks: Path, case: str) -> None:
    done = subprocess.run([str(fresh_blocks), case], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
