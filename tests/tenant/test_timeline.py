"""What a timeline's ring has of the watcher's looks (native/tenant/timeline.h)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program


@pytest.fixture(scope="module")
def timeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("timeline"),
        "tests/tenant/timeline.cpp",
        "native/tenant/timeline.cpp",
        "native/wire/clock.cpp",
    )


@pytest.mark.parametrize("case", ["gates", "bursts", "again"])
def test_looks_become_intervals(timeline: Path, case: str) -> None:
    done = subprocess.run([str(timeline), case], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
