"""Every benchmark says what it does, on a machine without a GPU, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TREE

pytest.importorskip("numpy", reason="numpy is not installed")
SCRIPTS = sorted(
    script
    for script in (TREE / "bench").glob("*/*.py")
    if "argparse" in script.read_text() and "__main__" in script.read_text()
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.relative_to(TREE)))
def test_it_has_a_help_with_examples(script: Path, softgpu_env: dict[str, str]) -> None:
    command = [sys.executable, str(script), "--help"]
    done = subprocess.run(command, check=False, env=softgpu_env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"python {script.relative_to(TREE)}" in done.stdout or script.name != "run.py"


@pytest.mark.parametrize("name", ["coverage", "daemon", "drills", "launch", "memory", "scale"])
def test_an_output_that_cannot_be_written_is_refused_before_anything_is_measured(
    name: str, softgpu_env: dict[str, str]
) -> None:
    command = [sys.executable, str(TREE / "bench" / name / "run.py"), "--output", "/proc/out.json"]
    done = subprocess.run(command, check=False, env=softgpu_env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "/proc cannot be written" in done.stderr
