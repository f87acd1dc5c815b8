"""What the interposer adds to a launch, in instructions: they are the same on a busy machine as on an idle one."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).parents[1]


def test_a_production_launch_adds_at_most_300_instructions(native: Path, tmp_path: Path) -> None:
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
    if "no instruction counts" in done.stderr:
        pytest.skip(done.stderr)
    rows = json.loads(figures.read_text())["instructions"]
    assert {row["stream"] for row in rows} == {"own", "legacy"}
    assert all(0 < row["added"] <= 300 for row in rows), rows


THREE_THOUSAND = """
#include <signal.h>
int main(void) {
    raise(SIGSTOP);
    raise(SIGSTOP);
    raise(SIGSTOP);
    asm volatile(".rept 3000; nop; .endr");
    raise(SIGSTOP);
    for (;;) { }
}
"""


def test_instructions_are_counted_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TREE / "bench" / "launch"))
    steps = importlib.import_module("steps")
    compiler = shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler")
    subprocess.run(
        [compiler, "-O1", "-x", "c", "-", "-o", tmp_path / "program"],
        input=THREE_THOUSAND,
        text=True,
        check=True,
    )
    nothing, something = steps.between_stops([str(tmp_path / "program")], {}, counts=2)
    assert something - nothing == 3000
