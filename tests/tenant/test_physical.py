"""Memory that the program maps by itself: when it is given back, and whether it may move."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.compiling import EVICTION, SMALL_HOST_BLOCKS, WIRE, compile_program, cuda_headers


@pytest.fixture(scope="module")
def physical(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("physical"),
        "tests/tenant/physical.cpp",
        "native/tenant/memory/physical.cpp",
        *EVICTION,
        *WIRE,
        define=SMALL_HOST_BLOCKS,
        headers=cuda_headers(),
    )


@pytest.mark.parametrize(
    "case", ["references", "may_move", "stays", "in_part", "drivers_own", "in_a_child", "many_at_once"]
)
def test_mapped_memory(physical: Path, case: str) -> None:
    # What was freed is overwritten, so that nothing can go on using it.
    env = os.environ | {"MALLOC_PERTURB_": "165"}
    done = subprocess.run(
        [str(physical), case], capture_output=True, text=True, timeout=120, check=False, env=env
    )
    assert (done.returncode, done.stderr) == (0, "")
