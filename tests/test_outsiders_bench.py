"""bench/outsiders, shortened, on the software GPU: all jobs work, and it says of each what it got."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REAL_GPU, TREE

pytest.importorskip("cuda.bindings", reason="cuda-bindings are not installed")
pytestmark = pytest.mark.skipif(REAL_GPU, reason="`bench/outsiders/run.py` is for a GPU")

RUN = TREE / "bench" / "outsiders" / "run.py"


def test_every_job_works_alone_and_beside_the_others(
    softgpu_env: dict[str, str], native: Path, tmp_path: Path
) -> None:
    output = tmp_path / "outsiders.json"
    env = softgpu_env | {"LD_LIBRARY_PATH": str(native / "softgpu")}
    env.pop("COTENANT_NO_DAEMON", None)
    command = [sys.executable, str(RUN), "--segments", "2", "--rounds", "1", "--output", str(output)]
    command += ["--seconds", "0.5", "--notice", "0.1"]
    done = subprocess.run(command, check=False, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(output.read_text())
    assert len(found["start"]["first_step_s"]) == 6 and min(found["start"]["first_step_s"].values()) > 0
    [windows] = found["beside"]["rounds"]
    for name, window in windows.items():
        assert all(window[kind] > 0 for kind in name.split(" + ")), windows
        assert ("p50_ms" in window) is ("production" in name)
        assert ("named" in window) is ("outsider" in name and "+" in name)
    asked = windows["tenant + outsider"]["nvml"]
    assert len(asked["processes"]) == 2 and asked["processes_ms"]["longest"] > 0
    assert "| production + tenant + outsider |" in done.stdout
