"""bench/parked, shortened, on the software GPU: both processes do as they are told, and a closed gate ends nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REAL_GPU, TREE

pytest.importorskip("cuda.bindings", reason="cuda-bindings are not installed")
pytestmark = pytest.mark.skipif(REAL_GPU, reason="`bench/parked/run.py` is for a GPU")

RUN = TREE / "bench" / "parked" / "run.py"


def test_a_round_is_measured_beside_each_way_to_wait(softgpu_env: dict[str, str], native: Path) -> None:
    env = softgpu_env | {"LD_LIBRARY_PATH": str(native / "softgpu")}
    command = [sys.executable, str(RUN), "--gaps", "0.1,1", "--repeats", "3", "--mib", "4"]
    done = subprocess.run(command, check=False, env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.strip("|").split("|") for line in done.stdout.splitlines()[2:]]
    assert len(rows) == 4 and all(float(figure) > 0 for row in rows for figure in row[1:])
