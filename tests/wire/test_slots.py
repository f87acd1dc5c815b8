"""Slots and gates by themselves: nothing leaks, nobody stays shut out, whatever happens to their owners."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def slots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++")
    if not compiler:
        pytest.skip("no C++ compiler")
    program = tmp_path_factory.mktemp("wire") / "slots"
    source = TREE / "tests" / "wire" / "slots.cpp"
    options = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", f"-I{TREE / 'native'}", "-pthread"]
    subprocess.run([compiler, *options, str(source), "-o", str(program)], check=True)
    return program


@pytest.mark.parametrize("case", ["churn 1000", "crowd", "leave", "stopped", "faults", "race"])
def test_slots(slots: Path, tmp_path: Path, case: str) -> None:
    command = [str(slots), str(tmp_path / "segment"), *case.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
