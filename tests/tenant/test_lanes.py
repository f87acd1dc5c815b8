"""What the tenants of one process do to each other, and what a watcher sees of them (native/tenant/lanes.h)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program, cuda_headers

ROOMS = (
    "lanes",
    "lane_events",
    "blocking_call",
    "own_time",
    "stream_activity",
    "captures",
    "green_contexts",
    "progress",
    "streams",
)


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("lanes"),
        "tests/tenant/lanes.cpp",
        *(f"native/tenant/{room}.cpp" for room in ROOMS),
        headers=cuda_headers(),
    )


@pytest.mark.parametrize("case", ["opening", "streams", "events", "standing_still", "waits", "looks"])
def test_each_has_its_own(lanes: Path, case: str) -> None:
    done = subprocess.run([str(lanes), case], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
