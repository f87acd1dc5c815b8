"""Whether all work of a process has ended, in all of its contexts: those that come, go, and come again."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program, cuda_headers


@pytest.fixture(scope="module")
def used_contexts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("used_contexts"),
        "tests/tenant/used_contexts.cpp",
        "native/tenant/memory/used_contexts.cpp",
        headers=cuda_headers(),
    )


@pytest.mark.parametrize("case", ["every_one", "ended", "otherwise"])
def test_work_has_ended(used_contexts: Path, case: str) -> None:
    done = subprocess.run([str(used_contexts), case], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
