"""The mover, look by look, and allocations that wait for space: on two GPUs, beside other tenants, when calls fail."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import EVICTION, SMALL_HOST_BLOCKS, WIRE, compile_program, cuda_headers

MOVER = [
    "pausing",
    "limits",
    "making_space",
    "line",
    "refusals",
    "draining",
    "halfway",
    "claims",
    "abandoning",
    "boundaries",
    "contexts",
    "preparing",
    "ending",
    "growing",
    "in_a_child",
]


def compiled(folder: Path, name: str) -> Path:
    memory = ("residence", "slabs", "ledger", "quota", "space")
    return compile_program(
        folder,
        f"tests/tenant/{name}.cpp",
        *(f"native/tenant/memory/{part}.cpp" for part in memory),
        *(f"native/tenant/{part}.cpp" for part in ("amounts", "captures", "streams")),
        *EVICTION,
        *(source for source in WIRE if not source.endswith("/clock.cpp")),
        define=SMALL_HOST_BLOCKS,
        headers=cuda_headers(),
    )


@pytest.fixture(scope="module")
def mover(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("mover"), "mover")


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("space"), "space")


def run(program: Path, folder: Path, case: str) -> None:
    command = [str(program), str(folder / "segment"), case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("case", MOVER)
def test_memory_moves_look_by_look(mover: Path, tmp_path: Path, case: str) -> None:
    run(mover, tmp_path, case)


@pytest.mark.parametrize("case", ["crowds", "said", "capacity", "needs", "patience"])
def test_allocations_wait_for_space(space: Path, tmp_path: Path, case: str) -> None:
    run(space, tmp_path, case)
