"""Gates and turns by themselves: who may run, and copy, follows from class, turn, floor and what a controller sets."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import WIRE, compile_program


@pytest.fixture(scope="module")
def gates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("gates"), "tests/wire/gates.cpp", *WIRE)


@pytest.mark.parametrize(
    "case",
    [
        "leave",
        "stopped",
        "turns",
        "emptied",
        "bystanders",
        "steered",
        "besides",
        "leaving",
        "waits",
        "race",
    ],
)
def test_gates(gates: Path, tmp_path: Path, case: str) -> None:
    runs(gates, tmp_path, case)


@pytest.fixture(scope="module")
def copy_gates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("copy_gates"), "tests/wire/copy_gates.cpp", *WIRE)


@pytest.mark.parametrize("case", ["copies", "copiers"])
def test_copy_gates(copy_gates: Path, tmp_path: Path, case: str) -> None:
    runs(copy_gates, tmp_path, case)


def runs(program: Path, tmp_path: Path, case: str) -> None:
    command = [str(program), str(tmp_path / "segment"), case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, "")
