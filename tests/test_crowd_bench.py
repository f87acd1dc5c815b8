"""bench/crowd: its arithmetic exactly, whole runs with jobs that only sleep, and small crowds on the software GPU."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import REAL_GPU, TREE, clean_environment

BENCH = TREE / "bench" / "crowd"
pytest.importorskip("numpy", reason="numpy is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")


def load(name: str) -> ModuleType:
    for folder in (BENCH.parent / "pairs", BENCH):
        sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        for folder in (BENCH.parent / "pairs", BENCH):
            sys.path.remove(str(folder))


catalogue, crowds, windows, standing, tables, intervals = map(
    load, ("catalogue", "crowds", "windows", "standing", "tables", "intervals")
)
Problem = load("cotenant.errors").Problem
DECODE = catalogue.JOBS["decode"]


# Crowds and their windows


def test_a_crowd_is_named_by_its_jobs_and_numbers_those_of_one_kind() -> None:
    crowd = crowds.parse_crowd("gpt+longk*2+longk")
    assert [job.name for job in crowd.jobs] == ["gpt", "longk", "longk#2", "longk#3"]
    assert [job.name for job in crowd.kinds] == ["gpt", "longk"]
    assert {job.source for job in crowd.jobs[1:]} == {catalogue.JOBS["longk"].source}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("gtp", "did you mean 'gpt'"),
        ("longk*x", "no number"),
        ("longk*99", "no number"),
        ("decode", "unknown"),
    ],
)
def test_a_wrong_crowd_is_explained(word: str, said: str) -> None:
    with pytest.raises(Problem) as raised:
        crowds.parse_crowd(word)
    assert said in f"{raised.value.message} {raised.value.hint}" and raised.value.status == 2


def test_the_crowds_of_the_issue_are_there() -> None:
    sizes = {len(crowds.parse_crowd(name).jobs) for name in crowds.CROWDS}
    assert {2, 3, 4, 8} <= sizes
    assert set(crowds.QUICK_CROWDS) <= set(crowds.CROWDS)
    # The largest has everybody: nobody has to be started for the others.
    everybody = set(crowds.parse_crowd(crowds.CROWDS[-1]).jobs)
    assert all(set(crowds.parse_crowd(name).jobs) <= everybody for name in crowds.CROWDS)


def test_what_several_crowds_are_compared_with_is_measured_once() -> None:
    two = [crowds.parse_crowd("gpt+longk"), crowds.parse_crowd("gpt+resnet+longk")]
    found = crowds.cases(two, crowds.MODES, [DECODE])
    assert len(found) == len(set(found))
    solo = [case.jobs[0].name for case in found if case.mode == "solo"]
    assert sorted(solo) == ["gpt", "longk", "resnet"]
    assert sum(case.mode == "alone" for case in found) == 1
    beside_one = [
        case for case in found if case.production and case.mode == "cotenant" and len(case.jobs) == 1
    ]
    assert sorted(case.jobs[0].name for case in beside_one) == ["gpt", "longk", "resnet"]
    # 1:2:4 is for three.
    assert [len(case.jobs) for case in found if case.mode == "cotenant 1:2:4"] == [3]


def test_the_longest_gap_counts_the_edges_of_the_window() -> None:
    assert windows.longest_gap([1.0, 2.0, 2.5], 0.0, 3.0) == 1.0
    assert windows.longest_gap([], 0.0, 3.0) == 3.0  # it never ended a step
    assert windows.longest_gap([-5.0, 0.5, 9.0], 0.0, 3.0) == 2.5


# Figures


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=16), st.floats(0.1, 10))
def test_jains_index_is_one_for_equals_and_says_how_many_had_something(
    parts: list[float], scale: float
) -> None:
    index = standing.jain(parts)
    assert 1 / len(parts) - 1e-9 <= index <= 1 + 1e-9
    assert standing.jain([scale * part for part in parts]) == pytest.approx(index)
    assert standing.jain([scale] * len(parts)) == pytest.approx(1)
    assert standing.jain([1.0, *[0.0] * 3]) == pytest.approx(1 / 4)
    assert standing.jain([0.0, 0.0]) == 0.0


def test_weights_are_told_in_points() -> None:
    assert standing.points_off([1, 2, 4], [1, 2, 4]) == pytest.approx(0)
    assert standing.points_off([1, 1], [1, 3]) == pytest.approx(25)
    assert standing.points_off([0, 0], [1, 1]) == 100


def worked(steps: float, gap_ms: float = 20.0, used_s: float | None = None, digest: str = "x") -> Any:
    return windows.Worked(steps, gap_ms, used_s, [digest])


def seen(*jobs: Any, services: float = 0.0, seconds: float = 1.0) -> Any:
    requests = [services] * 10 if services else []
    return windows.Seen(seconds, list(jobs), requests, requests, production_digests=["r"] if services else [])


PAIR = crowds.parse_crowd("gpt+longk")
GPT, LONGK = PAIR.jobs
Case = crowds.Case


def stand(cotenant: Any, **more: Any) -> Any:
    """gpt does 10 steps a second alone, longk 100; decode's ten requests of 20 ms keep the GPU busy for 10 ms each."""
    rounds = {
        Case("solo", None, (GPT,)): seen(worked(10)),
        Case("solo", None, (LONGK,)): seen(worked(100)),
        Case("alone", DECODE, ()): seen(services=20.0),
        Case("timeslice", None, PAIR.jobs): seen(worked(4), worked(40)),
        Case("cotenant", None, PAIR.jobs): cotenant,
        Case("cotenant", DECODE, (GPT,)): seen(worked(8), services=21.0),
        Case("cotenant", DECODE, (LONGK,)): seen(worked(80), services=22.0),
        Case("cotenant", DECODE, PAIR.jobs): more.get("beside", seen(worked(4.5), worked(45), services=22.0)),
    }
    two = {case: [window, window] for case, window in rounds.items()}
    return standing.Standing(two, {"decode": more.get("busy_ms", 10.0)})


def rows(found: Any) -> dict[tuple[str | None, int, str], Any]:
    made = found.rows([PAIR], crowds.MODES, [DECODE])
    return {(row.production, len(row.jobs), row.mode): row for row in made}


def test_the_sum_of_work_is_that_of_shares_against_the_better_way() -> None:
    made = rows(stand(seen(worked(5, used_s=0.4), worked(48, used_s=0.4))))
    alone = made[None, 2, "cotenant"]
    assert alone.shares == pytest.approx([0.5, 0.48]) and alone.sum.value == pytest.approx(0.98)
    # Time slicing reaches 0.8, one after the other 1.
    assert alone.sum_of_better.value == pytest.approx(0.98)
    assert made[None, 2, "timeslice"].sum_of_better.value == pytest.approx(0.8)
    assert alone.executed_steps_s == pytest.approx([1.0, 0.96])  # two rounds
    assert alone.executed_charged_s == pytest.approx([0.8, 0.8]) and alone.jain_charged == pytest.approx(1)
    assert made[None, 2, "timeslice"].jain_charged is None
    assert alone.longest_wait_ms == pytest.approx([0.0, 10.0])  # a gap of 20 ms; a step takes 100 and 10


@pytest.mark.parametrize(
    ("jobs", "index"),
    [
        (["gpt", "longk", "copies"], 1.0),
        (["gpt", "longk", "graph"], 0.75),
        (["gpt", "eager", "copies"], 0.75),
    ],
)
def test_jains_index_is_about_those_that_always_want_the_gpu(jobs: list[str], index: float) -> None:
    made = rows(stand(seen(worked(5, used_s=0.4), worked(48, used_s=0.4))))[None, 2, "cotenant"]
    row = dataclasses.replace(made, jobs=jobs, executed_steps_s=[1.0, 1.0, 0.0858], executed_charged_s=None)
    assert row.jain_steps == pytest.approx(index, abs=0.05) and row.jain_charged is None
    row = dataclasses.replace(row, executed_charged_s=[2.0, 2.0, 0.1716])
    assert row.jain_charged == pytest.approx(row.jain_steps)


def test_the_ideal_is_what_productions_gpu_time_leaves() -> None:
    beside = rows(stand(seen(worked(5), worked(48))))["decode", 2, "cotenant"]
    # Ten requests of 10 ms of GPU time, though each took 20 ms: 0.9 is left.
    assert beside.sum_of_ideal.value == pytest.approx(0.9 / 0.9)
    by_service = rows(stand(seen(worked(5), worked(48)), busy_ms=None))["decode", 2, "cotenant"]
    assert by_service.sum_of_ideal.value == pytest.approx(0.9 / 0.8)


def test_production_is_compared_with_the_worst_single_neighbour() -> None:
    beside = rows(stand(seen(worked(5), worked(48))))["decode", 2, "cotenant"]
    assert beside.beside_one == "longk"
    assert beside.service_p50_beside_one.value == pytest.approx(1.0)
    assert beside.service_p50_ratio.value == pytest.approx(1.1)
    assert beside.tail == "p95 of 20"


def test_targets_are_met_missed_or_open() -> None:
    def verdicts(found: Any) -> dict[str, str]:
        made = found.rows([PAIR], crowds.MODES, [DECODE])
        return {f"{t.who}: {t.what}"[:46]: t.verdict for t in standing.targets(made)}

    good = verdicts(stand(seen(worked(5), worked(49))))
    assert set(good.values()) == {"met"} and len(good) == 6
    bad = verdicts(
        stand(seen(worked(1, gap_ms=2000), worked(60)), beside=seen(worked(1), worked(30), services=30.0))
    )
    assert set(bad.values()) == {"missed"}
    unequal = stand(seen(worked(5), worked(49)))
    unequal.rounds[Case("cotenant", None, PAIR.jobs)][1] = seen(worked(3), worked(30))
    assert "open" in verdicts(unequal).values()


def test_results_that_differ_are_missed_whoever_they_are_of() -> None:
    beside = seen(worked(4.5, digest="y"), worked(45), services=22.0)
    found = stand(seen(worked(5), worked(49)), beside=beside)
    row = rows(found)["decode", 2, "cotenant"]
    assert row.results == "differs" and row.production_results == "same"
    assert any("crowd's results differ" in target.what for target in standing.targets([row]))


def test_a_row_can_be_written_and_every_cell_is_there() -> None:
    for row in stand(seen(worked(5), worked(49))).rows([PAIR], crowds.MODES, [DECODE]):
        json.dumps(row.as_json())
        assert len(tables.cells(row)) == len(tables.COLUMNS)


# Whole runs

STAND_IN = """
import os, sys
from cotenant.launch import job_name
job_name.checked(os.environ["COTENANT_NAME"])
first = sys.argv.index("--")
os.execv(sys.argv[first + 1], sys.argv[first + 1:])
"""


def run(*options: str, env: dict[str, str], timeout: int = 120) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / "run.py"), *options]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)


def test_a_crowd_that_cannot_run_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    output = tmp_path / "crowd.json"
    page = tmp_path / "page.md"
    page.write_text((TREE / "docs" / "benchmarks.md").read_text())
    done = run(
        *(
            "--markdown",
            str(page),
            "--crowds",
            "toy-work*2,toy-work+toy-missing",
            "--beside",
            "toy-service",
            "--rounds",
            "1",
        ),
        *("--seconds", "0.2", "--hurry", "--output", str(output), "--modes", "timeslice,cotenant"),
        *("--cotenant", f"{sys.executable} {tmp_path / 'stand_in.py'}"),
        env=clean_environment(),
    )
    section = json.loads(output.read_text())["crowds"]
    assert "a_library_that_does_not_exist" in section["skipped"]["toy-missing"]
    assert section["failed"] is None and section["rounds"] == 1
    found = {(row["crowd"], row["production"], len(row["jobs"]), row["mode"]) for row in section["rows"]}
    assert found == {
        *(
            ("toy-work*2", beside, 2, mode)
            for beside in (None, "toy-service")
            for mode in ("timeslice", "cotenant")
        ),
        ("toy-work*2", "toy-service", 1, "cotenant"),
    }
    assert all(row["sum"]["interval"] is None for row in section["rows"])  # of one round
    assert section["busy_ms"] == {"toy-service": 2.0}
    assert done.returncode == (1 if any(t["verdict"] == "missed" for t in section["targets"]) else 0), (
        done.stderr
    )
    for text in (done.stdout, page.read_text()):
        assert "| toy-work*2 | toy-service | cotenant |" in text and "targets met" in text


def test_a_job_that_fails_is_named_with_its_window(tmp_path: Path) -> None:
    output = tmp_path / "crowd.json"
    done = run(
        *(
            "--crowds",
            "toy-work+toy-dying",
            "--beside",
            "none",
            "--rounds",
            "1",
            "--seconds",
            "0.2",
            "--hurry",
        ),
        *("--output", str(output), "--modes", "timeslice"),
        env=clean_environment(),
    )
    assert done.returncode == 1
    failed = json.loads(output.read_text())["crowds"]["failed"]
    assert failed.startswith("timeslice: nobody beside toy-work+toy-dying: the toy-dying job")
    assert "died on purpose" in failed


def test_a_job_that_does_not_answer_is_a_problem_that_says_what_each_tenant_waits_for() -> None:
    class Silent:
        def order(self, _: object) -> None: ...

        def answer(self, _: float = 0.0) -> Any:
            raise Problem("the gpt job did not answer in time")

    class Hanging:
        pace = load("pace").HURRIED

        def worker(self, *_: object) -> Silent:
            return Silent()

        def explained(self, job: Any, _: str) -> list[str]:
            return [f"{job.name} waits for its turn"]

    with pytest.raises(Problem) as raised:
        windows.run_case(Hanging(), Case("cotenant", None, PAIR.jobs), 0.01, 1, Path("/nowhere/segment"))
    said = raised.value.message.splitlines()
    assert said[0] == "cotenant: nobody beside gpt+longk: the gpt job did not answer in time"
    assert said[1:] == ["  gpt: gpt waits for its turn", "  longk: longk waits for its turn"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--crowds", "gtp*2"], "did you mean 'gpt'?"),
        (["--modes", "timeslices"], "did you mean 'timeslice'?"),
        (["--output", "/nowhere/crowd.json"], "there is no folder /nowhere"),
        (["--markdown", "/nowhere/page.md"], "no place for the tables"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(options: list[str], said: str) -> None:
    done = run(*options, env=clean_environment())
    assert done.returncode != 0 and said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(REAL_GPU, reason="`make bench-crowd` runs it on a GPU")
def test_nobody_hangs_and_nothing_is_left_when_jobs_are_killed_one_after_another(
    softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    output = tmp_path / "crowd.json"
    env = {name: value for name, value in softgpu_env.items() if name != "COTENANT_NO_DAEMON"}
    page = tmp_path / "page.md"
    page.write_text((TREE / "docs" / "benchmarks.md").read_text())
    options = (
        "churn",
        "--processes",
        "4",
        "--kills",
        "3",
        "--patience",
        "60",
        "--output",
        str(output),
        "--markdown",
        str(page),
    )
    done = run(*options, env=env | {"COTENANT_SOFTGPU": "h200"}, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    section = json.loads(output.read_text())["churn"]
    assert section["harm"] == [] and section["started"] == 7
    assert os.fspath(tmp_path) not in json.dumps(section)
    assert "| 4 | 3 | 7 |" in page.read_text()
