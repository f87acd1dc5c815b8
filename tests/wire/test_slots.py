"""Slots by themselves: nothing leaks, and nobody stays shut out, whatever happens to their owners."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cotenant import segment
from tests.compiling import compile_program


@pytest.fixture(scope="module")
def slots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("wire"), "tests/wire/slots.cpp")


@pytest.mark.parametrize(
    "case",
    [
        "churn 1000",
        "crowd",
        "faults",
        "stops",
        "thread",
        "garbage",
        "abandoned",
        "leaving",
        "gpus",
    ],
)
def test_slots(slots: Path, tmp_path: Path, case: str) -> None:
    command = [str(slots), str(tmp_path / "segment"), *case.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_slot_is_live_while_its_owner_lives_and_lost_after_its_death(slots: Path, tmp_path: Path) -> None:
    """As other processes see it, by the word that the kernel marks."""
    path = tmp_path / "segment"
    with subprocess.Popen(
        [slots, path, "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "holding\n"
        alive = segment.read(path)
        holder.kill()
    dead = segment.read(path)
    assert (len(alive.tenants), alive.lost) == (1, 0)
    assert (len(dead.tenants), dead.lost) == (0, 1)
