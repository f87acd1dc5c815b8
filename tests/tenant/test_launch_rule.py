"""What a tenant says of its launches where a rule is asked at each, and which wait (native/tenant/launch_rule.h)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program, cuda_headers

ROOMS = ("launch_rule", "durations", "event_pair", "progress", "streams", "timeline")


@pytest.fixture(scope="module")
def launch_rule(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("launch_rule"),
        "tests/tenant/launch_rule.cpp",
        *(f"native/tenant/{room}.cpp" for room in ROOMS),
        "native/wire/clock.cpp",
        headers=cuda_headers(),
    )


@pytest.mark.parametrize("case", ["production", "outstanding", "orion", "reef"])
def test_each_launch_is_asked_for(launch_rule: Path, case: str) -> None:
    done = subprocess.run([str(launch_rule), case], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
