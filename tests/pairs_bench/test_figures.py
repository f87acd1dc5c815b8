"""bench/pairs: its arithmetic exactly, and the tables that it writes."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import TREE
from tests.pairs_bench.loading import load
from tests.waiting import wait_for

catalogue = load("catalogue")
intervals = load("intervals")
clocks = load("clocks")
rounds = load("rounds")
outcome = load("outcome")
report = load("report")
overhead = load("overhead")
preemption = load("preemption")
promises = load("promises")
numpy = pytest.importorskip("numpy")
Samples = load("cotenant.demo.figures").Samples


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (5, 2.571), (30, 2.042), (31, 2.0395), (60, 2.0003), (10**6, 1.96)]
)
def test_the_quantiles_are_students(freedom: int, quantile: float) -> None:
    assert intervals.t_quantile(freedom) == pytest.approx(quantile, abs=6e-4)


@pytest.mark.parametrize(("rounds_seen", "requests"), [(6, 80), (12, 40)])
def test_the_interval_covers_the_truth_though_rounds_drift(rounds_seen: int, requests: int) -> None:
    """Each window runs at a speed of its own, 3 % apart, for all its requests: 95 of 100 intervals hold the ratio."""
    chance = numpy.random.default_rng(1)
    truth, runs = 1.05, 2000

    def means() -> Any:
        drift = numpy.exp(chance.normal(0, 0.03, (runs, rounds_seen)))
        return chance.lognormal(0, 0.1, (runs, rounds_seen, requests)).mean(axis=2) * drift

    covered = 0
    for above, below in zip(truth * means(), means(), strict=True):
        low, high = intervals.of_ratios(above.tolist(), below.tolist()).interval
        covered += low <= truth <= high
    assert 0.935 <= covered / runs <= 0.965


@given(series=st.lists(st.floats(0.1, 100.0), min_size=2, max_size=12), factor=st.floats(0.5, 4.0))
def test_what_both_sides_have_in_common_leaves_no_interval(series: list[float], factor: float) -> None:
    found = intervals.of_ratios([factor * value for value in series], series)
    assert found.value == pytest.approx(factor)
    assert found.interval == (pytest.approx(factor), pytest.approx(factor))


def test_a_limit_is_met_by_the_upper_bound_and_missed_by_the_lower() -> None:
    estimate = intervals.Estimate(1.05, (1.02, 1.08))
    assert [estimate.at_most(limit) for limit in (1.08, 1.05, 1.01)] == ["met", "open", "missed"]
    assert [estimate.at_least(limit) for limit in (1.02, 1.05, 1.09)] == ["met", "open", "missed"]
    # One round does not say how rounds differ.
    alone = intervals.of_ratios([1.0], [1.0])
    assert alone.interval is None and alone.at_most(2.0) == alone.at_least(0.5) == "open"


def test_a_share_may_be_nothing_in_a_round() -> None:
    found = intervals.of_shares([0.0, 0.1, 0.2])
    assert found.value == pytest.approx(0.1)
    assert found.interval == (
        pytest.approx(0.1 - 4.303 * 0.1 / 3**0.5),
        pytest.approx(0.1 + 4.303 * 0.1 / 3**0.5),
    )


def test_a_series_without_rounds_is_as_sure_as_its_queues_are_many() -> None:
    # Eight queues, each quick or slow as a whole, against requests that are quick or slow each for itself.
    together = [value for value in [1.0, 3.0] * 4 for _ in range(100)]

    def width(samples: list[float]) -> float:
        low, high = intervals.of_series(samples, [1.0] * 800).interval
        return float(high - low)

    assert width(together) > 10 * width([1.0, 3.0] * 400)
    assert intervals.of_series([2.0] * 3, [1.0] * 800).interval is None


def test_the_interval_of_an_overhead_comes_from_its_processes() -> None:
    row = overhead.row("eager", "production", [[100.0, 200.0]] * 2, [[99.0, 198.0]] * 2)
    assert row["cost"] == pytest.approx(0.01)
    assert row["cost_interval"] == [pytest.approx(0.01), pytest.approx(0.01)]
    # Rounds that agree do not narrow what processes leave open.
    low, high = overhead.row("eager", "production", [[10.0] * 100] * 2, [[9.0] * 100, [11.0] * 100])[
        "cost_interval"
    ]
    assert low < -0.1 and high > 0.1


# Clocks


def test_the_clock_of_a_window_is_what_was_seen_in_it() -> None:
    seen = clocks.Clocks()
    for moment, text in (
        (1.0, "1980\n"),
        (2.0, "1500\n"),
        (2.5, "[N/A]\n"),
        (3.0, "1400\n"),
        (4.0, "1980\n"),
    ):
        seen.note(moment, text)
    assert seen.between(1.5, 3.5) == 1450
    assert seen.between(5.0, 6.0) is None


def test_the_clock_is_asked_of_nvidia_smi_while_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "nvidia-smi"
    asked.write_text("#!/bin/sh\necho 1755\nexec sleep 1000\n")
    asked.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with clocks.watched() as seen:
        wait_for(lambda: seen.between(0, time.monotonic()) == 1755)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with clocks.watched() as seen:
        assert seen.between(0, time.monotonic()) is None


# Figures


def seen(latency: float, service: float, steps: float = 0.0, unanswered: int = 0) -> Any:
    samples = Samples([latency] * 10, [service] * 10, steps, 1.0)
    return rounds.Observation(samples, unanswered, ["a", "b"], ["x"] if steps else [])


def figures(pair: str = "decode+gpt", **modes: Any) -> Any:
    return outcome.pair_figures(
        catalogue.parse_pairs([pair])[0],
        {name.replace("_", "-"): [observation] * 2 for name, observation in modes.items()},
    )


def test_work_is_a_share_of_the_solo_rate_beside_the_ideal() -> None:
    found = figures(alone=seen(30, 20), timeslice=seen(90, 40, 60), solo=seen(0, 0, 100))
    assert found.ideal_share == pytest.approx(0.8)  # ten requests of 20 ms in a second
    mode = found.modes["timeslice"]
    assert mode.opportunistic_share.value == pytest.approx(0.6)
    assert mode.opportunistic_share.interval == (pytest.approx(0.6), pytest.approx(0.6))
    assert mode.share_of_ideal.value == pytest.approx(0.75)
    assert mode.service_p50_ratio.value == pytest.approx(2)
    assert mode.tail_ratio.value == pytest.approx(3)
    assert found.modes["alone"].opportunistic_share is None
    assert "solo" not in found.modes


def test_nothing_is_missed_by_a_good_neighbour() -> None:
    good = figures(
        alone=seen(30, 20),
        timeslice=seen(90, 40, 60),
        cotenant=seen(30.3, 20.3, 79),
        solo=seen(0, 0, 100),
    )
    assert good.misses == []


def test_what_falls_short_is_listed() -> None:
    bad = figures(
        alone=seen(30, 20), timeslice=seen(31, 40, 60), cotenant=seen(33, 21, 70), solo=seen(0, 0, 100)
    )
    assert [miss.split()[0] for miss in bad.misses] == ["service", "p95", "work", "p95"]
    vision = figures("vision+graph", alone=seen(30, 20), cotenant=seen(60, 40, 10), solo=seen(0, 0, 100))
    assert vision.misses == []


def test_the_ideal_is_what_productions_gpu_time_leaves() -> None:
    """Its service time is longer: the host launches, waits and reads."""
    found = outcome.pair_figures(
        catalogue.parse_pairs(["decode+gpt"])[0],
        {"alone": [seen(30, 20)] * 2, "timeslice": [seen(90, 40, 63)] * 2, "solo": [seen(0, 0, 100)] * 2},
        gpu_ms=10.0,
    )
    assert found.ideal_share == pytest.approx(0.9) and found.ideal_from == "GPU time"
    assert found.modes["timeslice"].share_of_ideal.value == pytest.approx(0.7)


def test_a_tail_is_called_what_it_is() -> None:
    assert [outcome.tail_name(count) for count in (999, 1000)] == ["p95 of 999", "p99"]
    assert [outcome.tail_percent(count) for count in (999, 1000)] == [95, 99]
    assert figures(alone=seen(30, 20), solo=seen(0, 0, 100)).tail == "p95 of 20"


def at_clock(observation: Any, mhz: float | None) -> Any:
    return dataclasses.replace(observation, sm_mhz=mhz)


def test_ratios_are_shown_as_they_were_and_at_the_same_clock() -> None:
    slow = figures(
        "encoder+longk",
        alone=at_clock(seen(2, 2), 2000),
        cotenant=at_clock(seen(2.5, 2.5, 80), 1600),
        solo=seen(0, 0, 100),
    ).modes["cotenant"]
    assert slow.service_p50_ratio.value == pytest.approx(1.25)
    assert slow.service_p50_at_clock.value == slow.tail_at_clock.value == pytest.approx(1.0)
    # A higher clock than alone is no merit of the sharing, and no fault.
    fast = figures(
        alone=at_clock(seen(2, 2), 1600), cotenant=at_clock(seen(2, 2, 80), 2000), solo=seen(0, 0, 100)
    ).modes["cotenant"]
    assert fast.service_p50_at_clock.value == pytest.approx(1.0)
    unseen = figures(alone=seen(2, 2), cotenant=at_clock(seen(2, 2, 80), 2000), solo=seen(0, 0, 100))
    assert unseen.modes["cotenant"].service_p50_at_clock is None


def test_short_requests_are_judged_at_the_same_clock_and_others_as_they_were() -> None:
    modes = {
        "alone": at_clock(seen(2, 2), 2000),
        "cotenant": at_clock(seen(2.5, 2.5, 97), 1600),
        "solo": seen(0, 0, 100),
    }
    assert figures("encoder+longk", **modes).misses == []
    assert [miss.split()[0] for miss in figures("decode+longk", **modes).misses] == ["service", "p95"]


def promised(*services: float) -> list[str]:
    found = outcome.pair_figures(
        catalogue.parse_pairs(["vision+gpt"])[0],
        {
            "alone": [seen(1, 1)] * len(services),
            "cotenant 20%": [seen(1, service, 50) for service in services],
            "solo": [seen(0, 0, 100)] * len(services),
        },
    )
    return [miss.rpartition(": ")[2] for miss in found.misses]


def test_a_promise_is_kept_by_the_upper_bound_of_its_interval() -> None:
    assert promised(1.17, 1.18, 1.17) == []
    assert promised(1.1, 1.3, 1.1) == [
        "open"
    ]  # the interval reaches down to the promise: that was "kept" once
    assert promised(1.30, 1.31, 1.30) == ["missed"]


@pytest.mark.parametrize(
    ("alone", "mode", "verdict"),
    [
        ([["a", "b"], ["a"]], [["a", "b"], ["a", "b", "c"]], "same"),
        ([["a", "b"]], [["a", "b"], ["a", "c"]], "differs"),
        ([["a", "b"], ["a", "c"]], [["a", "b"]], "not deterministic"),
        ([["a"]], [[]], "nothing to compare"),
        ([[]], [["a"]], "nothing to compare"),
    ],
)
def test_results_are_compared_as_far_as_both_go(
    alone: list[list[str]], mode: list[list[str]], verdict: str
) -> None:
    assert outcome.compare(alone, mode) == verdict


def test_a_preemption_that_takes_too_long_is_listed() -> None:
    rows = [
        {"request": "tiny", "held_by": "spin-11ms", "mode": "timeslice", "p99_ms": 9.0},
        {"request": "tiny", "held_by": "spin-11ms", "mode": "cotenant", "p99_ms": 0.5},
        {"request": "tiny", "held_by": "spin-100us", "mode": "cotenant", "p99_ms": 0.5},
        {"request": "ten", "held_by": "spin-11ms", "mode": "cotenant", "p99_ms": 0.9},  # no bound is stated
    ]
    (miss,) = preemption.misses(rows)
    assert "spin-100us" in miss


def test_each_of_ten_kernels_is_waited_for_before_the_next_is_launched() -> None:
    spinning = load("spinning")
    calls = []

    class Gpu:
        def submit_burst(self, kernels: int, kernel_us: float) -> None:
            calls.append("launch")

        def synchronise(self) -> None:
            calls.append("wait")

    one = spinning.Ten.__new__(spinning.Ten)
    one.gpu = Gpu()
    one.request(0)
    assert calls == ["launch", "wait"] * 10


def burst(count: int, busy_ns: int, waits: int, waited_ns: int, gap_ns: int) -> Any:
    segment = load("cotenant.segment")
    return segment.Use(
        0,
        "",
        False,
        False,
        {"bursts": count},
        busy_ns=busy_ns,
        waits=waits,
        waited_ns=waited_ns,
        gap_ns=gap_ns,
    )


def test_where_a_bursts_time_went_is_that_of_the_windows_alone() -> None:
    bursts = load("bursts")
    spent = bursts.between(burst(100, 5, 7, 9, 11), burst(110, 20_000_005, 12, 1_000_009, 1_000_011))
    assert bursts.between(None, spent) is None and bursts.together([None]) is None
    found = bursts.together([spent, None, spent])
    assert (found.burst_us, found.wait_us, found.gap_us, found.run_us) == pytest.approx(
        (2000, 200, 100, 1700)
    )
    shared = figures(
        alone=seen(30, 20),
        cotenant=dataclasses.replace(seen(30, 20, 70), bursts=spent),
        solo=seen(0, 0, 100),
    )
    entry = {"pair": "decode+gpt", "figures": json.loads(json.dumps(shared.as_json()))}
    table = report.pairs_table({"machine": "a GPU", "pairs": [entry]})
    assert "| 0.20, 1.70, 0.10 |" in table


# Promises


def served(*services: float, steps: int = 10, seconds: float = 10.0) -> Any:
    """One request a second, the first after half of one, and so many steps a second."""
    ended = [number + 0.5 for number in range(len(services))]
    completions = [number / steps for number in range(int(seconds * steps) + 1)] if steps else []
    samples = Samples(list(services), list(services), seconds * steps, seconds)
    return rounds.Observation(samples, ended_s=ended, completions_s=completions)


def test_promises_are_looked_at_in_windows_of_four_seconds_after_the_first_two() -> None:
    assert promises.spans(10.0) == [(2.0, 6.0), (6.0, 10.0)]
    assert promises.spans(6.0) == [(2.0, 6.0)]
    assert promises.spans(3.0) == [(1.0, 3.0)]


def test_one_window_over_the_promise_is_a_promise_not_kept() -> None:
    (pair,) = catalogue.parse_pairs(["encoder+gpt"])
    seen = {
        # A process that is faster than the others, for whatever reason, is nobody's baseline but its own.
        "alone": [served(*[0.9] * 10)] * 2,
        promises.alone_of("cotenant 20%"): [served(*[1.0] * 10)] * 2,
        promises.alone_of("cotenant 10%"): [served(*[2.0] * 10)] * 2,
        # The first two seconds do not count; the second window of the second round is over.
        "cotenant 20%": [served(9, 9, *[1.1] * 8), served(9, 9, *[1.1] * 4, *[1.3] * 4)],
        "cotenant 10%": [served(*[2.1] * 10)] * 2,
        "solo": [served(steps=20)] * 2,
    }
    kept = {name: promises.kept(name, seen) for name in ("cotenant 10%", "cotenant 20%")}
    assert kept["cotenant 20%"].windows == pytest.approx([1.1, 1.1, 1.1, 1.3])
    assert kept["cotenant 20%"].over() == 1 and kept["cotenant 10%"].over() == 0
    assert kept["cotenant 10%"].windows == pytest.approx([1.05] * 4)
    assert kept["cotenant 10%"].share.value == pytest.approx(0.5)
    found = promises.figures(pair, seen)
    (miss,) = found["misses"]
    assert miss.startswith("cotenant 20%") and "1 of 4 windows" in miss and miss.endswith("missed")
    assert "| 1 of 4 | 1.30 |" in report.promises_table(
        {"machine": "", "pairs": [{"pair": "", "figures": found}]}
    )


@pytest.mark.parametrize(("alone_again", "by_more"), [(1.04, 1), (1.12, 0), (0.9, 1)])
def test_windows_over_a_promise_by_no_more_than_noise_are_told_apart(
    alone_again: float, by_more: int
) -> None:
    (pair,) = catalogue.parse_pairs(["encoder+gpt"])
    seen = {
        "alone": [served(*[1.0] * 10)],
        promises.alone_of("cotenant 20%"): [served(*[1.0] * 10)],
        "alone again": [served(*[1.0] * 6, *[alone_again] * 4, steps=0)],
        "cotenant 20%": [served(*[1.1] * 6, *[1.3] * 4)],
        "solo": [served(steps=20)],
    }
    found = promises.figures(pair, seen)
    table = report.promises_table({"machine": "", "pairs": [{"pair": "", "figures": found}]})
    assert f"| 1 of 2 ({by_more}) | 1.30 |" in table
    assert len(found["misses"]) == 1  # noise or not, a promise that was not seen kept is told


def duty(share: float, ratio: float) -> Any:
    return promises.Kept(
        "duty", None, [ratio], intervals.Estimate(ratio, None), intervals.Estimate(share, None)
    )


@pytest.mark.parametrize(
    ("promise", "best"), [(0.05, 0.2), (0.1, 0.4), (0.15, 0.5), (0.3, 0.6), (0.01, 0.04)]
)
def test_the_best_constant_duty_lies_on_a_line_between_its_neighbours(promise: float, best: float) -> None:
    sweep = [duty(0.4, 1.1), duty(0.2, 1.05), duty(0.6, 1.2)]
    assert promises.best_constant(sweep, promise) == pytest.approx(best)


def test_what_could_have_been_done_within_the_promise_and_was_not_is_missed() -> None:
    (pair,) = catalogue.parse_pairs(["encoder+gpt"])
    seen = {
        "alone": [served(*[1.0] * 10)] * 2,
        # Beside nobody a window may differ as well: that is no duty, and nobody's promise.
        "alone again": [served(*[1.0] * 6, *[1.03] * 4, steps=0)] * 2,
        promises.alone_of("cotenant 10%"): [served(*[1.0] * 10)] * 2,
        "cotenant 10%": [served(*[1.05] * 10, steps=10)] * 2,
        # All duties have one process, which is alone for longer than under any of them.
        promises.alone_of("duty 10%"): [served(*[1.0] * 2, *[0.98] * 4, *[1.02] * 4)] * 2,
        "duty 45%": [served(*[1.08] * 6, steps=16, seconds=6.0)] * 2,
        "solo": [served(steps=20)] * 2,
    }
    found = promises.figures(pair, seen)
    assert [row["of_best"] for row in found["rows"]] == [None, pytest.approx(10 / 16), None]
    (miss,) = found["misses"]
    assert "work 0.62 of the best constant duty" in miss
    table = report.promises_table({"machine": "", "pairs": [{"pair": "encoder+gpt", "figures": found}]})
    assert "| alone again | 1.01 [0.99, 1.04] |  | 1.03 | 0% [0, 0] |" in table


# The report


def test_a_section_replaces_itself_and_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    report.save_section(path, "pairs", {"x": 1})
    report.save_section(path, "overhead", {"y": 1})
    report.save_section(path, "pairs", {"x": 2})
    assert json.loads(path.read_text()) == {"pairs": {"x": 2}, "overhead": {"y": 1}}
    assert [entry.name for entry in tmp_path.iterdir()] == ["pairs.json"]


def test_the_documentation_has_a_place_for_every_table() -> None:
    page = (TREE / "docs" / "benchmarks.md").read_text()
    for name in report.TABLES:
        once = report.with_table(page, name, "new")
        assert report.with_table(once, name, "new") == once
        begin, end = f"<!-- {name} table: begin -->", f"<!-- {name} table: end -->"
        assert once.partition(begin)[0] == page.partition(begin)[0]
        assert once.partition(end)[2] == page.partition(end)[2]
        assert "new" in once.partition(begin)[2].partition(end)[0]
    with pytest.raises(ValueError, match="pairs table"):
        report.with_table("no markers", "pairs", "new")


def test_the_table_says_what_is_a_bound_and_what_failed() -> None:
    found = figures(alone=seen(30, 20), mps=seen(900, 40, 60, unanswered=3), solo=seen(0, 0, 100))
    table = report.pairs_table(
        {
            "machine": "a GPU",
            "skipped_modes": {"mps-priority": "no daemon"},
            "pairs": [
                {"pair": "decode+gpt", "figures": json.loads(json.dumps(found.as_json()))},
                {"pair": "vision+graph", "failed": "the vision job ended early:\n  Traceback\n  no | luck"},
                {"pair": "vision+resnet", "skipped": "no torch"},
            ],
        }
    )
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in rows}) == 1
    assert "**decode+gpt**" in rows[2] and "(ideal 80% by service time)" in rows[2]
    assert "> 900" in rows[3] and "60%" in rows[3]
    assert "failed: the vision job ended early: no / luck" in rows[4]
    assert "skipped: no torch" in rows[5]
    assert "`mps-priority` was not measured: no daemon." in table
