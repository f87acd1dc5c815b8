"""Which kernels leave their stream, and how streams come home, by what the driver is told (native/tenant/detour.h)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program, cuda_headers


@pytest.fixture(scope="module")
def detour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("detour"),
        "tests/tenant/detour.cpp",
        "native/tenant/detour.cpp",
        "native/tenant/detour_places.cpp",
        "native/tenant/detour_upkeep.cpp",
        "native/tenant/captures.cpp",
        "native/tenant/progress.cpp",
        "native/tenant/streams.cpp",
        "native/wire/clock.cpp",
        headers=cuda_headers(),
    )


@pytest.mark.parametrize("case", ["order", "forgetting", "upkeep"])
def test_streams_leave_and_come_home_each_by_itself(detour: Path, case: str) -> None:
    done = subprocess.run([str(detour), case], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
