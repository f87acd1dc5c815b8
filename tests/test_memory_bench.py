"""The benchmark of oversubscription itself, on the software GPU: it runs through, and what it compares is the same."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Run

BENCH = Path(__file__).resolve().parent.parent / "bench" / "memory"


def test_two_jobs_that_do_not_fit_and_a_server_that_grows(
    cotenant: Run, softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("cuda.bindings")
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- memory: begin -->\nold\n<!-- memory: end -->\nafter\n")
    options = ("--toy", "--seconds", "20", "--evictions", "3", "--steps", "40", "--pauses", "2")
    done = cotenant(
        "softgpu",
        "--",
        sys.executable,
        BENCH / "run.py",
        *options,
        "--output",
        tmp_path / "memory.json",
        "--markdown",
        page,
        env=softgpu_env,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "memory.json").read_text())
    assert [one["same"] for one in found["losses"]] == [True, True]
    assert min(found["evictions"]) >= 3
    assert found["most_bytes_at_once"] <= 24 << 20
    assert len(found["server"]["growth_ms"]) == 30
    assert found["problems"] == []
    assert "| evictions of each |" in page.read_text()
    assert "| not copied, amid a step | 0.00 MiB of 20.00 MiB, 0% |" in page.read_text()
    assert page.read_text().startswith("before\n")


def test_small_copies_while_another_job_moves(cotenant: Run, softgpu_env: dict[str, str]) -> None:
    pytest.importorskip("cuda.bindings")
    command = (sys.executable, BENCH / "copies.py", "--mib", "64", "--times", "2")
    done = cotenant("softgpu", "--", *command, env=softgpu_env, timeout=120)
    assert done.returncode == 0, done.stderr
    assert {line.split(" | ")[0] for line in done.stdout.splitlines() if "GPU |" in line} == {
        "| it leaves",
        "| it is away",
        "| it returns",
    }
    assert done.stdout.count("(median of 2)") == 2


def test_a_promise_is_broken_where_not_even_the_interval_reaches_it() -> None:
    pytest.importorskip("numpy")
    # Other benchmarks have a module of that name, too.
    spec = importlib.util.spec_from_file_location("memory_report", BENCH / "report.py")
    assert spec and spec.loader
    report = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(report)
    alone = [1.0, 1.1, 0.9, 1.0] * 50
    latency = {"alone": alone, "kept": [1.15 * one for one in alone], "broken": [1.4 * one for one in alone]}
    # A few that are very late, among few: nobody knows.
    latency["unsure"] = [1.0] * 20 + [30.0]
    assert report.promise_broken({"server": {"latency_ms": latency}}) == ["broken"]
    assert report.promise_broken({}) == []


def test_what_is_there_is_written_whatever_is_missed(
    cotenant: Run, softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("cuda.bindings")
    output = tmp_path / "memory.json"
    options = ("--toy", "--seconds", "1", "--evictions", "100000", "--steps", "5", "--pauses", "1")
    command = (sys.executable, BENCH / "run.py", *options, "--output", output)
    done = cotenant("softgpu", "--", *command, env=softgpu_env, timeout=120)
    assert done.returncode == 1
    assert "| **missed** | fewer than the 100000 evictions wanted of each, within 1 s |" in done.stdout
    found = json.loads(output.read_text())
    assert [one["same"] for one in found["losses"]] == [True, True]
    assert "no_helper" in found
    # Nothing at all works: still one line that says why, and what is known.
    done = cotenant("softgpu", "--", *command, "--python", "false", env=softgpu_env, timeout=120)
    assert done.returncode == 1
    assert "error: the bandwidth (alone) ended with status 1" in done.stderr
    assert json.loads(output.read_text())["problems"][0] == "the bandwidth (alone) ended with status 1"
