"""Memory that moves and is shared between processes, by itself: what is mapped, lent and kept open, and how long."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program, cuda_headers


@pytest.fixture(scope="module")
def ipc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("ipc"),
        "tests/tenant/ipc.cpp",
        "native/tenant/memory/ipc_export.cpp",
        "native/tenant/memory/ipc_import.cpp",
        "native/tenant/captures.cpp",
        headers=cuda_headers(),
    )


@pytest.mark.parametrize("case", ["opening", "in_captures", "contexts", "failing", "exporting"])
def test_sharing(ipc: Path, case: str) -> None:
    done = subprocess.run([str(ipc), case], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
