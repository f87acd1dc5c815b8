"""What the interposer adds to a launch, in instructions: they are the same on a busy machine as on an idle one."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).parents[1]


def test_a_production_launch_adds_at_most_300_instructions(native: Path, tmp_path: Path) -> None:
    if not shutil.which("valgrind"):
        pytest.skip("valgrind is not installed")
    if os.uname().machine == "aarch64":
        pytest.skip("callgrind loses sight of returns on this processor")
    figures = tmp_path / "launch.json"
    command = [
        sys.executable,
        str(TREE / "bench" / "launch" / "run.py"),
        "--class",
        "production",
        "-o",
        str(figures),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(figures.read_text())["instructions"]
    assert {row["stream"] for row in rows} == {"own", "legacy"}
    assert all(0 < row["added"] <= 300 for row in rows), rows


EXAMPLE = """\
events: Ir
ob=(1) /bin/program
fl=(1) program.c
fn=(1) loop
10 5
cob=(2) /lib/interposer
cfn=(2) launch
calls=2 20
11 100
ob=(2)
fn=(2)
20 40
cob=(3) /lib/driver
cfn=(2)
calls=2 30
21 60
"""


def test_what_callgrind_wrote_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TREE / "bench" / "launch"))
    callgrind = importlib.import_module("callgrind")
    edges = callgrind.read_edges(EXAMPLE.splitlines())
    assert callgrind.total(edges, out_of="loop") == callgrind.Cost(calls=2, instructions=100)
    inner = {edge: cost for edge, cost in edges.items() if edge.callee.object == "/lib/driver"}
    assert callgrind.total(inner, into="launch") == callgrind.Cost(calls=2, instructions=60)
