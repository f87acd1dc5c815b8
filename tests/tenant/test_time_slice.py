"""Which channel group gets which of the hardware's time slices, and when."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import WIRE, compile_program


@pytest.fixture(scope="module")
def time_slice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("time_slice"),
        "tests/tenant/time_slice.cpp",
        "native/tenant/time_slice.cpp",
        "native/tenant/fork.cpp",
        "native/tenant/settings.cpp",
        "native/tenant/identity_file.cpp",
        "native/tenant/amounts.cpp",
        *WIRE,
    )


@pytest.mark.parametrize(
    "case",
    [
        "production",
        "standard",
        "opportunistic",
        "changes",
        "kernels refused",
        "copies refused",
        "untold",
        "gone",
        "anew",
        "many",
        "again",
        "video",
        "failed",
        "child",
    ],
)
def test_time_slice(time_slice: Path, case: str) -> None:
    done = subprocess.run([str(time_slice), case], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
