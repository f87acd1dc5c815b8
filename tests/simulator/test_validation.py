"""bench/simulator/validate.py reads what bench/pairs has measured."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import TREE

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
    assert len(pairs) >= 8 and modes == {"timeslice", "mps", "mps-priority", "cotenant"}
    assert all(point.slowdown > 0.5 and 0 < point.share < 2 for point in points)


def test_a_page_without_the_table_is_said_to_have_none(
    validate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("| Pair | Mode |\n| --- | --- |\n")
    monkeypatch.setattr(sys, "argv", ["validate.py", "--measured", str(page)])
    assert validate.main() != 0
    assert "has no pair in these modes" in capsys.readouterr().err


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
