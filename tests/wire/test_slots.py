"""Slots and gates by themselves: nothing leaks, nobody stays shut out, whatever happens to their owners."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program


@pytest.fixture(scope="module")
def slots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = compile_program(tmp_path_factory.mktemp("wire"), "tests/wire/slots.cpp")
    return program


@pytest.mark.parametrize(
    "case", ["churn 1000", "crowd", "leave", "stopped", "faults", "stops", "race", "turns", "steered"]
)
def test_slots(slots: Path, tmp_path: Path, case: str) -> None:
    command = [str(slots), str(tmp_path / "segment"), *case.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
