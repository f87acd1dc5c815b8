"""The drills, shortened, on the software GPU: nobody but the victim comes to harm."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REAL_GPU, TREE

pytest.importorskip("cuda.bindings", reason="cuda-bindings are not installed")
pytest.importorskip("numpy", reason="numpy is not installed")
pytestmark = pytest.mark.skipif(REAL_GPU, reason="`make bench-drills` runs them on a GPU")

RUN = TREE / "bench" / "drills" / "run.py"
VICTIMS = {"production killed": "production", "killed amid an eviction": "opportunistic"}


@pytest.mark.parametrize(
    "drill",
    [
        "production killed",
        "production stopped",
        "daemon killed",
        "slots overwritten",
        "segment overwritten",
        "exit while launching",
        "killed amid an eviction",
    ],
)
def test_nobody_but_the_victim_comes_to_harm(
    drill: str, softgpu_env: dict[str, str], native: Path, tmp_path: Path
) -> None:
    output = tmp_path / "drills.json"
    env = softgpu_env | {"LD_LIBRARY_PATH": str(native / "softgpu")}
    env.pop("COTENANT_NO_DAEMON", None)
    command = [sys.executable, str(RUN), "--only", drill, "--seconds", "0.4", "--output", str(output)]
    done = subprocess.run(command, check=False, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    fates = {fate["tenant_class"]: fate for fate in json.loads(output.read_text())["drills"]}
    assert set(fates) == {"production", "opportunistic"}
    for tenant_class, fate in fates.items():
        if tenant_class != VICTIMS.get(drill):
            assert (fate["ending"], fate["results"]) == ("exit 0", "right")


def test_an_unknown_drill_is_named_with_the_nearest_known_one(softgpu_env: dict[str, str]) -> None:
    command = [sys.executable, str(RUN), "--only", "production kiled"]
    done = subprocess.run(command, check=False, env=softgpu_env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "error: unknown drill 'production kiled'" in done.stderr
    assert "did you mean 'production killed'?" in done.stderr
