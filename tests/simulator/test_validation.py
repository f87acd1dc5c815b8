"""bench/simulator/validate.py reads what bench/pairs has measured."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant.policies.interface import Knobs, TenantKnobs
from cotenant.simulator import Study, Workload
from tests.conftest import TREE
from tests.simulator.small import policy

if TYPE_CHECKING:
    from types import ModuleType

BENCH = TREE / "bench" / "simulator"


@pytest.fixture
def validate(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("numpy")
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("validate")


def test_the_page_is_read_whole(validate: ModuleType) -> None:
    points = validate.from_page((TREE / "docs" / "benchmarks.md").read_text())
    pairs, modes = {point.pair for point in points}, {point.mode for point in points}
    assert len(points) == len(pairs) * len(modes)
    assert len(pairs) >= 8 and modes == {"timeslice", "mps-priority", "cotenant"}
    assert all(point.slowdown > 0.5 and 0 < point.share < 2 for point in points)


def test_a_page_without_the_table_is_said_to_have_none(
    validate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("| Pair | Mode |\n| --- | --- |\n")
    monkeypatch.setattr(sys, "argv", ["validate.py", "--measured", str(page)])
    assert validate.main() != 0
    assert "has no pair in these modes" in capsys.readouterr().err


# Further off, as docs/simulator.md says: jobs that wait for their own CPU, whose rate alone varies from run to run, and
# short requests that cannot keep up under MPS.
FURTHER_OFF = {
    ("eager + longk", "cotenant"),
    ("resnet + resnet 2 beside decode", "timeslice"),
    ("resnet + resnet 2 beside encoder", "timeslice"),
    ("resnet + resnet 2 beside encoder", "mps-priority"),
    ("gpt + resnet + longk beside encoder", "mps-priority"),
    ("gpt + longk + graph + copies beside encoder", "mps-priority"),
    (
        "gpt + resnet + resnet 2 + longk + longk 2 + graph + graph 2 + copies beside encoder",
        "mps-priority",
    ),
}


def test_crowds_of_the_h200_are_simulated_within_ten_points(validate: ModuleType) -> None:
    """The sums of work in docs/benchmarks.md against what docs/simulator.md has."""
    crowds = importlib.import_module("crowd_points")
    measured = crowds.from_page((TREE / "docs" / "benchmarks.md").read_text())
    names = {point.title for point in measured}
    assert {"copies + gpt", "gpt + longk + graph + copies", "longk + longk 2 beside decode"} <= names
    assert {point.mode for point in measured} == {"timeslice", "mps-priority", "cotenant", "cotenant 1:2:4"}
    assert len(measured) == 50
    rows = crowds.compared(measured, crowds.Interference(), crowds.SECONDS)
    off = [(a.title, a.mode, 100 * (b.total - a.total)) for a, b in rows]
    far = [one for one in off if abs(one[2]) > crowds.WANTED_POINTS]
    assert {one[:2] for one in far} == FURTHER_OFF and len(far) == len(FURTHER_OFF)
    assert max(abs(points) for *_, points in off) < 2 * crowds.WANTED_POINTS
    page = (TREE / "docs" / "simulator.md").read_text()
    assert crowds.section(rows) in page, "python bench/simulator/validate.py --crowds docs/simulator.md"


# How much longer a request takes in the mean beside a neighbour at a constant rate; 1: in all pauses. An encoder at 100
# requests a second beside GPT training on the H200, least and most of two sweeps and a run of bench/pairs.
COST_OF_RATE = {0.10: (0.01, 0.04), 0.25: (0.03, 0.05), 0.45: (0.05, 0.08), 1.0: (0.09, 0.12)}


def test_a_constant_rate_costs_what_it_costs_on_the_h200(validate: ModuleType) -> None:
    study = Study(
        Workload("rates", (validate.production_job("encoder"), validate.opportunistic_job("gpt"))),
        seconds=20.0,
        seed=1,
    )
    costs = []
    for rate, (least, most) in COST_OF_RATE.items():
        limits = {1: TenantKnobs(rate=rate)} if rate < 1 else {}
        encoder, gpt = study.run(policy(Knobs(tenants=limits))).tenants
        costs.append(encoder.service.mean_us / encoder.alone.service.mean_us - 1)
        assert least - 0.02 <= costs[-1] <= most + 0.02, f"at {rate:.0%}"
        assert rate == 1 or gpt.share == pytest.approx(rate, abs=0.01)
    assert costs == sorted(costs)


def test_crowds_that_were_measured_are_simulated_too(
    validate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sums measured on the H200, as bench/crowd writes them; the simulator is within 10 points of them."""
    sums: list[tuple[list[str], str | None, str, float]] = [
        (["longk", "longk"], None, "timeslice", 0.93),
        (["longk", "longk"], None, "cotenant", 0.98),
        (["gpt", "gpt"], None, "timeslice", 0.93),
        (["gpt", "resnet", "longk"], None, "cotenant", 1.01),
        (["gpt", "resnet", "longk"], "decode", "cotenant", 0.72),
    ]
    rows = [
        {"jobs": jobs, "production": production, "mode": mode, "shares": [total / len(jobs)] * len(jobs)}
        for jobs, production, mode, total in sums
    ]
    unknown = {"jobs": ["nosuch"], "production": None, "mode": "timeslice", "shares": [1.0]}
    measured = tmp_path / "crowd.json"
    measured.write_text(json.dumps({"crowds": {"rows": [*rows, unknown]}}))
    monkeypatch.setattr(sys, "argv", ["validate.py", "--measured", str(measured), "--seconds", "2"])
    assert validate.main() == 0
    said = capsys.readouterr().out
    assert "over 5; 5 within 10 points" in said and "| longk + longk 2 | timeslice | 93% | 9" in said
