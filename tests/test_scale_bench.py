"""The benchmark of many tenants, with few of them: it measures what it says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REAL_GPU, TREE

pytestmark = pytest.mark.skipif(REAL_GPU, reason="it brings software GPUs of its own")


def test_idle_tenants_and_the_calls_of_one_more_are_measured(
    softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    if not (shutil.which("gcc") or shutil.which("cc")):
        pytest.skip("no C compiler")
    output = tmp_path / "scale.json"
    few = ["--tenants", "2", "--seconds", "0.2", "--streams", "20", "--allocations", "400"]
    command = [sys.executable, str(TREE / "bench" / "scale" / "run.py"), *few, "-o", str(output)]
    done = subprocess.run(command, check=False, env=softgpu_env, capture_output=True, text=True, timeout=200)
    assert output.exists(), done.stderr
    found = json.loads(output.read_text())
    assert [(one["kind"], one["tenants"]) for one in found["idle"]] == [("file", 2), ("folder", 2)]
    assert [(one["tenants"], one["class"]) for one in found["calls"]] == [
        (2, "production"),
        (2, "opportunistic"),
    ]
    for one in found["calls"]:
        assert one["launch"]["ns_direct"] > 0
        assert one["streams"]["made_and_destroyed"] == 20
        assert one["allocations"]["free_and_allocate"]["through_ns"] > 0
