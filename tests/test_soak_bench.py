"""The soak, for a moment: jobs come, go, crash, fork, are paused and stopped, and leave nothing behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REAL_GPU, TREE, clean_environment

pytestmark = pytest.mark.skipif(REAL_GPU, reason="it brings a software GPU of its own")

RUN = TREE / "bench" / "soak" / "run.py"


def soak(native: Path, *options: str) -> subprocess.CompletedProcess[str]:
    if not (shutil.which("gcc") or shutil.which("cc")):
        pytest.skip("no C compiler")
    env = clean_environment() | {"COTENANT_NATIVE": str(native)}
    command = [sys.executable, str(RUN), *options]
    return subprocess.run(command, check=False, env=env, capture_output=True, text=True, timeout=280)


def test_a_short_soak_leaves_nothing_behind(native: Path, tmp_path: Path) -> None:
    output = tmp_path / "soak.json"
    done = soak(native, "--seed", "17", "--actions", "90", "--output", str(output))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(output.read_text())
    assert (found["seed"], found["harm"]) == (17, [])
    # Every kind of action was there, and jobs came and went.
    assert found["jobs"] > 5 and {"work", "fork", "kill", "crash", "pause or resume"} <= found["done"].keys()
    assert "| slots | 2 | 2 |" in done.stdout
