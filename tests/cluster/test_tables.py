"""Outcomes of a cluster as people and programs get them."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import pytest

from cotenant.classes import TenantClass
from cotenant.cluster.placement.fleet import Job
from cotenant.cluster.simulation import tables
from cotenant.cluster.simulation.engine import is_broken
from cotenant.cluster.simulation.outcome import ClusterOutcome, JobOutcome, quantile

HOUR = 3600.0


def job(id: str, submitted: float, begun: float, ended: float) -> JobOutcome:
    return JobOutcome(id, "gpt", False, 2, submitted * HOUR, begun * HOUR, ended * HOUR, 2 * HOUR, 3, 60.0)


OUTCOME = ClusterOutcome(
    policy="muxflow", log="philly", sharing="cotenant", gpus=64,
    jobs=(job("a", 0.0, 0.5, 2.0), job("b", 1.0, 1.5, 2.0), job("c", 1.0, 3.0, 10.0)), services=5,
    arrivals_s=36 * HOUR, makespan_s=10 * HOUR, utilisation=0.756, sm_activity=0.312, memory=0.5,
    production_s=1000.0, broken_s=12.0, moves=7, never_ran=1, wall_seconds=2.34,
)  # fmt: skip


def test_a_row_has_hours_and_parts() -> None:
    assert tables.row(OUTCOME) == [
        "muxflow", "4.00", "2.00", "9.00", "1.00", "76%", "31%", "50%", "1.2%", "7", "1", "2.3",
    ]  # fmt: skip
    nothing = replace(OUTCOME, jobs=(), production_s=0.0, moves=0, never_ran=0, utilisation=math.nan)
    assert tables.row(nothing) == ["muxflow", "", "", "", "", "", "31%", "50%", "", "", "", "2.3"]
    assert len(tables.COLUMNS) == 12


def test_the_title_says_what_was_simulated() -> None:
    assert tables.title(OUTCOME) == "  philly: 4 jobs in 1.5 days on 64 GPUs, 5 services; shared by cotenant"
    assert "services" not in tables.title(replace(OUTCOME, services=0))


def test_a_table_leaves_out_empty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    tables.print_table([OUTCOME])
    assert "never" in capsys.readouterr().out
    tables.print_table([replace(OUTCOME, never_ran=0), replace(OUTCOME, never_ran=0, moves=0)])
    shown = capsys.readouterr().out
    assert "never" not in shown and "moves" in shown


def test_json_and_csv_have_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = json.loads(tables.as_json([replace(OUTCOME, production_s=0.0)]))["outcomes"]
    jobs = found.pop("jobs")
    assert found == {
        "placement": "muxflow", "log": "philly", "sharing": "cotenant", "gpus": 64, "services": 5,
        "arrivals_s": 129600.0, "makespan_s": 36000.0, "mean_completion_s": 14400.0,
        "median_completion_s": 7200.0, "p99_completion_s": 32400.0, "mean_queued_s": 3600.0,
        "utilisation": 0.756, "sm_activity": 0.312, "memory": 0.5, "promises_broken": None, "moves": 7,
        "never_ran": 1,
    }  # fmt: skip
    assert jobs[1] == {
        "id": "b", "kind": "gpt", "is_production": False, "gpus": 2, "submitted_s": 3600.0, "begun_s": 5400.0,
        "ended_s": 7200.0, "alone_s": 7200.0, "moves": 3, "broken_s": 60.0,
    }  # fmt: skip
    tables.print_csv([OUTCOME, replace(OUTCOME, policy="first-fit")])
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["placement"], row["id"]) for row in rows][2:4] == [("muxflow", "c"), ("first-fit", "a")]
    assert rows[0]["alone_s"] == "7200.0"


def test_a_job_is_stretched_by_what_it_waited_and_lost() -> None:
    one = job("a", 1.0, 2.0, 5.0)
    assert (one.completion_s, one.queued_s, one.stretch) == (4 * HOUR, HOUR, 2.0)
    assert [quantile([3.0, 1.0, 2.0, 4.0], part) for part in (0.0, 0.5, 0.51, 0.99, 1.0)] == [1, 2, 3, 4, 4]
    assert math.isnan(quantile([], 0.5))


def test_a_promise_is_broken_beyond_what_was_promised() -> None:
    promised = Job("a", "decode", TenantClass.production, 1.0, slowdown=0.05)
    assert not is_broken(promised, 1.05) and is_broken(promised, 1.0501)
    assert not is_broken(replace(promised, slowdown=None), 9.0)
    assert is_broken(replace(promised, slowdown=0.0), 1.01)
