"""bench/coverage: its verdicts, its table, and its runner with toy programs under a stand-in for `cotenant`."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import TREE, clean_environment

BENCH = TREE / "bench" / "coverage"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"coverage_bench_{name}", BENCH / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


comparison = load("comparison")
LAUNCHED = {"kernels": 5, "graphs": 0}


def outcome(counts: dict[str, int] | None = None, problem: str = "", **digests: str) -> object:
    return comparison.Outcome({"digests": digests, "versions": {}}, problem, 1.0, counts or {})


@pytest.mark.parametrize(
    ("plain", "shared", "again", "expected"),
    [
        (outcome(a="1"), outcome(LAUNCHED, a="1"), None, "same"),
        (outcome(a="1", b="2"), outcome(LAUNCHED, a="1", b="3"), None, "differs: b"),
        (outcome(a="1"), outcome(LAUNCHED, a="1", b="3"), None, "differs: b"),
        (outcome(a="1"), outcome(LAUNCHED, a="2"), outcome(a="1"), "differs: a"),
        (outcome(a="1"), outcome(LAUNCHED, a="2"), outcome(a="3"), "no comparison: differs from itself"),
        (outcome(a="1"), outcome({"kernels": 0, "graphs": 0}, a="1"), None, "not interposed"),
        (outcome(a="1"), outcome(LAUNCHED, problem="exit status 1"), None, "fails: exit status 1"),
        (outcome(), outcome(LAUNCHED), None, "fails: no results"),
    ],
)
def test_verdicts(plain: object, shared: object, again: object, expected: str) -> None:
    assert comparison.verdict(plain, shared, again).startswith(expected)


def test_only_what_stands_between_the_markers_is_rewritten() -> None:
    page = f"before\n{comparison.BEGIN}\nold\n{comparison.END}\nafter\n"
    once = comparison.with_table(page, "new\n")
    assert "old" not in once and once.startswith("before\n") and once.endswith("\nafter\n")
    assert comparison.with_table(once, "new\n") == once
    with pytest.raises(ValueError, match="coverage table"):
        comparison.with_table("no markers", "new")


def test_the_documentation_has_a_place_for_the_table() -> None:
    assert comparison.with_table((TREE / "docs" / "coverage.md").read_text(), "x")


PROGRAMS = {
    "steady": 'import evidence; evidence.report({"x": "1"})',
    "changed": 'import os, evidence; evidence.report({"x": os.environ.get("TOY_CLASS", "plain")})',
    "missing": 'import evidence; evidence.need("no_such_library")',
    "crashing": 'import os\nif "TOY_CLASS" in os.environ: raise SystemExit("no GPU today")\n'
    'import evidence; evidence.report({"x": "1"})',
    "hanging": 'import os, signal\nif os.environ.get("TOY_CLASS") == "opportunistic": signal.pause()\n'
    'import evidence; evidence.report({"x": "1"})',
}
# Does what the runner expects of `cotenant run --require --class CLASS -- COMMAND...`.
STAND_IN = """
import json, os, subprocess, sys
assert sys.argv[1:4] == ["run", "--require", "--class"] and sys.argv[5] == "--", sys.argv
os.environ["TOY_CLASS"] = sys.argv[4]
with open(os.environ["COTENANT_REPORT"], "a") as report:
    report.write(json.dumps({"pid": 1, "kernels": 3, "gates": 2}) + "\\n")
    report.write(json.dumps({"pid": 2, "kernels": 4, "escaped": 1}) + "\\n")
os.execv(sys.argv[6], sys.argv[6:])
"""


def test_the_runner_tells_the_same_from_the_different_the_failing_and_the_skipped(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, source in PROGRAMS.items():
        (programs / f"{name}.py").write_text(f'"""Toy: {name}"""\n{source}\n')
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    command = [
        sys.executable,
        str(BENCH / "run.py"),
        "--programs",
        str(programs),
        "--limit",
        "5",
        "--jobs",
        "2",
    ]
    command += [
        "--cotenant",
        f"{sys.executable} {tmp_path / 'stand_in.py'}",
        "--output",
        str(tmp_path / "t.json"),
    ]
    done = subprocess.run(
        command, env=clean_environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "1 same, 1 skipped, 3 failed" in done.stdout
    table = {row["program"]: row for row in json.loads((tmp_path / "t.json").read_text())["programs"]}
    assert table["steady"]["verdicts"] == {"production": "same", "opportunistic": "same"}
    counts = table["steady"]["runs"]["production"]["counts"]
    assert (counts["kernels"], counts["gates"], counts["escaped"]) == (7, 2, 1)
    assert table["changed"]["verdicts"] == {"production": "differs: x", "opportunistic": "differs: x"}
    assert "no GPU today" in table["crashing"]["verdicts"]["production"]
    assert "no_such_library" in table["missing"]["runs"]["plain"]["evidence"]["skipped"]
    assert table["hanging"]["verdicts"]["production"] == "same"
    assert "ran past 5 s" in table["hanging"]["verdicts"]["opportunistic"]


ON_A_GPU = """
import ctypes
import evidence
from cotenant.demo.spin import SpinGpu

gpu = SpinGpu()
for _ in range(5):
    gpu.submit_burst(4, 50.0)
evidence.report({"count": str(gpu.count())}, "cuda-bindings")
"""


def test_a_program_on_the_software_gpu_is_the_same_as_a_tenant(
    native: Path, softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    if not (native / "shim" / "libcuda.so.1").exists():
        pytest.skip("the interposer is not built")
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "bursts.py").write_text(f'"""Bursts"""\n{ON_A_GPU}')
    command = [sys.executable, str(BENCH / "run.py"), "--programs", str(tmp_path / "programs")]
    command += ["--output", str(tmp_path / "t.json")]
    done = subprocess.run(command, env=softgpu_env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads((tmp_path / "t.json").read_text())["programs"]
    assert row["runs"]["plain"]["evidence"]["digests"] == {"count": "5"}
    for name in ("production", "opportunistic"):
        assert row["verdicts"][name] == "same"
        assert row["runs"][name]["counts"]["kernels"] == 5 * (4 + 1)
        assert row["runs"][name]["counts"]["escaped"] == 0
