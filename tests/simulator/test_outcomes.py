"""What a simulation found, as tables, JSON, CSV and a trace have it: of an outcome whose values are all different."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from typing import Any

import pytest

from cotenant.classes import TenantClass
from cotenant.simulator import perfetto, pictures, tables
from cotenant.simulator.figures import OF_OUTCOME, OF_TENANT
from cotenant.simulator.machine import SimulatedGpu
from cotenant.simulator.results import Alone, GpuOutcome, Outcome, Span, TenantOutcome, Times, edge_us
from cotenant.simulator.study import share


def times(us: float) -> Times:
    """All of one length, which is every quantile."""
    return Times(7, us + 1, us, us, ((400, 7),))


ALONE = Alone(times(2000.0), times(1500.0), 500.0, 8.0)
SERVE = TenantOutcome(
    name="serve", tenant_class=TenantClass.production, gpu=1, latency=times(5000.0), service=times(3000.0),
    alone=ALONE, requests=11, unanswered=12, operations=13, work_us=14.0, wasted_us=15_000.0, sm_share=0.16,
    share=0.9, completion_s=None, preemptions=18, gates=19, bursts=20, held_s=21.5, executed_s=22.5,
    longest_wait_s=23.5,
)  # fmt: skip
TRAIN = replace(
    SERVE, name="train", tenant_class=TenantClass.opportunistic, gpu=0, latency=times(90_000.0), share=0.3,
    completion_s=10.0, operations=100, preemptions=200,
)  # fmt: skip
IDLE = replace(TRAIN, name="idle", tenant_class=TenantClass.standard, share=math.nan, completion_s=20.0)
OUTCOME = Outcome(
    workload="pair", policy="guard", gpu="h200", seconds=30.0, seed=4, tenants=(SERVE, TRAIN, IDLE),
    gpus=(GpuOutcome(0.5, 0.25, 0.01, 3, 4), GpuOutcome(0.7, 0.35, 0.03, 5, 6)), wall_seconds=1.0,
    spans=(Span("train", "kernel", 6, 10.0004, 12.5), Span("serve", "graph", 7, 20.0, 19.0)),
)  # fmt: skip


def test_json_has_every_figure_of_an_outcome() -> None:
    found = json.loads(tables.as_json([OUTCOME]))
    assert found["schema"] == 1
    (outcome,) = found["outcomes"]
    serve, train, idle = outcome.pop("tenants")
    assert outcome == {
        "workload": "pair", "policy": "guard", "gpu_model": "h200", "simulated_seconds": 30.0, "seed": 4,
        "latency_p50_ms": 5.0, "latency_p99_ms": 5.0, "latency_p50_ratio": 2.5, "latency_p99_ratio": 2.5,
        "opportunistic_share": 0.3, "fairness": 0.8, "busy": 0.6, "sm_activity": 0.3, "switching": 0.02,
        "completion_seconds": 15.0, "operations": 213, "preemptions": 418,
    }  # fmt: skip
    assert serve == {
        "job": "serve", "class": "production", "gpu": 1, "requests": 11, "unanswered": 12, "operations": 13,
        "latency_p50_ms": 5.0, "latency_p95_ms": 5.0, "latency_p99_ms": 5.0, "latency_max_ms": 5.0,
        "latency_mean_ms": 5.001, "service_p50_ms": 3.0, "service_p95_ms": 3.0, "service_p99_ms": 3.0,
        "service_max_ms": 3.0, "service_mean_ms": 3.001, "alone_latency_p50_ms": 2.0,
        "alone_latency_p95_ms": 2.0, "alone_latency_p99_ms": 2.0, "alone_latency_max_ms": 2.0,
        "alone_latency_mean_ms": 2.001, "latency_p50_ratio": 2.5, "latency_p99_ratio": 2.5, "work_share": 0.9,
        "sm_share": 0.16, "completion_seconds": None, "alone_completion_seconds": 8.0, "preemptions": 18,
        "gates": 19, "bursts": 20, "gated_seconds": 21.5, "wasted_ms": 15.0,
    }  # fmt: skip
    assert (train["work_share"], train["completion_seconds"], idle["work_share"]) == (0.3, 10.0, None)
    assert SERVE.service_slowdown == 2.0


def test_csv_has_a_line_for_each_tenant(capsys: pytest.CaptureFixture[str]) -> None:
    tables.print_csv([OUTCOME, replace(OUTCOME, policy="none")])
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["policy"], row["job"]) for row in rows] == [
        (policy, job) for policy in ("guard", "none") for job in ("serve", "train", "idle")
    ]
    assert rows[0] | {"workload": "pair", "gpu_model": "h200", "wasted_ms": "15.0", "schema": "1"} == rows[0]
    assert rows[0]["completion_seconds"] == "" and rows[2]["work_share"] == ""


def test_the_table_leaves_out_what_no_policy_has(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    tables.print_table([OUTCOME])
    shown = capsys.readouterr().out
    assert shown.startswith("pair on h200, 30 s simulated; serve alone: p50 2.00 ms, p99 2.00 ms\n\n")
    assert shown.splitlines()[-1].split() == (
        ["guard", "5.00", "5.00", "2.50x", "2.50x", "30%", "0.80", "60%", "30%", "15.0", "418"]
    )
    endless = replace(OUTCOME, tenants=(replace(TRAIN, completion_s=None),))
    tables.print_table([endless])
    shown = capsys.readouterr().out
    assert shown.startswith("pair on h200, 30 s simulated\n\n") and "done" not in shown
    assert shown.splitlines()[-1].split() == ["guard", "30%", "1.00", "60%", "30%", "200"]


@pytest.mark.parametrize(
    ("name", "value", "cell"),
    [
        ("latency_p50_ms", 9.994, "9.99"), ("latency_p50_ms", 10.0, "10.0"), ("latency_p50_ms", 99.94, "99.9"),
        ("latency_p50_ms", 100.0, "100"), ("latency_p50_ratio", 9.5, "9.50x"), ("latency_p50_ratio", 10.0, "10x"),
        ("opportunistic_share", 0.256, "26%"), ("fairness", 0.5, "0.50"), ("completion_seconds", 3.14, "3.1"),
        ("operations", 12, "12"), ("busy", math.nan, ""), ("policy", "guard", "guard"),
    ],
)  # fmt: skip
def test_a_cell_is_short(name: str, value: Any, cell: str) -> None:
    figure = next(one for one in OF_OUTCOME if one.name == name)
    assert replace(figure, read=lambda _: value).cell(None) == cell
    assert replace(figure, read=lambda _: 0.12345678).value(None) == 0.123457


def test_of_several_production_jobs_the_worst_counts() -> None:
    def figure(outcome: Outcome, name: str) -> Any:
        return next(one for one in OF_OUTCOME if one.name == name).value(outcome)

    slower = replace(SERVE, name="slower", latency=times(6000.0))
    unknown = replace(SERVE, name="unknown", latency=Times(0, math.nan, math.nan, math.nan))
    several = replace(OUTCOME, tenants=(slower, SERVE, unknown))
    assert figure(several, "latency_p99_ms") == 6.0 and figure(several, "latency_p50_ratio") == 3.0
    assert figure(several, "opportunistic_share") is None and figure(several, "completion_seconds") is None
    assert figure(replace(OUTCOME, tenants=(TRAIN,)), "latency_p99_ms") is None
    assert len({one.name for one in OF_TENANT}) == len(OF_TENANT)


def test_a_trace_for_perfetto_has_a_track_for_each_tenant_of_each_policy() -> None:
    out = io.StringIO()
    perfetto.write([OUTCOME, replace(OUTCOME, policy="none", spans=())], out)
    written = json.loads(out.getvalue())
    assert written["displayTimeUnit"] == "ms"
    events = written["traceEvents"]
    named = [(one["pid"], one.get("tid"), one["args"]["name"]) for one in events if one["ph"] == "M"]
    tracks = ["serve (production)", "train (opportunistic)", "idle (standard)"]
    assert named == [
        (pid, track or None, name)
        for pid, policy in ((1, "guard"), (2, "none"))
        for track, name in enumerate((policy, *tracks))
    ]
    assert [one for one in events if one["ph"] == "X"] == [
        {"ph": "X", "pid": 1, "tid": 2, "name": "kernel", "ts": 10.0, "dur": 2.5, "args": {"request": 6}},
        {"ph": "X", "pid": 1, "tid": 1, "name": "graph", "ts": 20.0, "dur": 0.0, "args": {"request": 7}},
    ]


def test_a_share_is_of_the_speed_where_both_end_and_else_of_the_work() -> None:
    assert share(100.0, 16.0, ALONE) == 0.5
    assert share(100.0, None, ALONE) == 0.2
    assert share(100.0, 16.0, replace(ALONE, completion_s=None)) == 0.2
    assert math.isnan(share(100.0, None, replace(ALONE, work_us=0.0)))


def test_points_of_a_distribution_end_at_their_places_edges() -> None:
    found = Times(4, 0.0, 0.0, 1e9, ((100, 1), (300, 3)))
    assert found.cdf() == [(edge_us(101), 0.25), (edge_us(301), 1.0)]
    assert edge_us(300) > edge_us(100) > 0
    assert math.isnan(Times(0, 0.0, 0.0, 0.0).quantile_us(0.5))
    # 0.25 of 3 intervals is behind the first, and the rest is between the edges of the second place.
    assert edge_us(100) < found.quantile_us(0.0) < edge_us(101) and edge_us(300) < found.p50_us < edge_us(301)


def test_copies_take_their_bytes_by_the_links_speed() -> None:
    gpu = SimulatedGpu("made-up", 8, 1 << 30, memory_gbps=1000.0, bus_gbps=50.0)
    assert gpu.copy_us(1_000_000, on_device=True) == 1.0
    assert gpu.copy_us(1_000_000, on_device=False) == 20.0


def test_a_picture_shows_the_outcomes() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib import pyplot

    counts = Times(4, 0.0, 0.0, 1e9, ((100, 1), (300, 3)))
    busy = replace(SERVE, gpu=0, latency=counts, timeline=(1.0, 2.0))
    crowd = tuple(replace(TRAIN, name=f"train-{number}", timeline=(0.5, 0.25)) for number in range(7))
    shown = replace(OUTCOME, tenants=(busy, *crowd), timeline_span_s=(10.0, 4.0))
    figure = pictures.composed([shown, replace(shown, policy="none", tenants=(TRAIN,))])
    latencies, harvest, first, second = figure.axes
    assert figure.get_suptitle() == "pair on h200, 30 s simulated"
    assert [line.get_label() for line in latencies.lines] == ["guard", "none", "alone"]
    assert latencies.lines[0].get_xdata().tolist() == [edge_us(101) / 1000, edge_us(301) / 1000]
    assert latencies.lines[0].get_ydata().tolist() == [0.25, 1.0]
    assert latencies.lines[2].get_xdata().tolist() == [edge_us(401) / 1000]
    assert (latencies.get_xscale(), latencies.get_xlabel()) == ("log", "latency of serve, ms")
    (point,) = harvest.lines  # the other policy has no production to compare
    slowdown = shown.tenants[0].slowdown_p99
    assert (point.get_xdata()[0], point.get_ydata()[0]) == (pytest.approx(0.3), pytest.approx(slowdown))
    assert harvest.get_yscale() == "log" and harvest.get_xlim() == pytest.approx((-0.03, 1.03))
    low, high = harvest.get_ylim()
    assert low <= 0.9 and high >= 2
    labels = [text.get_text() for text in first.get_legend().get_texts()]
    assert labels == ["serve", *(f"train-{number}" for number in range(5)), "2 more"]
    tops = [float(layer.get_paths()[0].vertices[:, 1].max()) for layer in first.collections]
    assert tops == pytest.approx([2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.5])
    assert first.get_xlim() == (10.0, 14.0) and first.get_ylabel() == "SMs\nguard"
    assert [text.get_text() for text in second.texts] == ["nothing ran here at that time"]
    assert second.get_xlabel() == "seconds"
    pyplot.close(figure)


def test_a_picture_of_nothing_says_why() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib import pyplot

    nothing = Times(0, math.nan, math.nan, math.nan)
    silent = replace(SERVE, latency=nothing)
    figure = pictures.composed([replace(OUTCOME, tenants=(silent,), timeline_span_s=(0.0, 1.0))])
    latencies, harvest, _ = figure.axes
    assert [text.get_text() for text in latencies.texts] == ["serve answered no request in this time"]
    assert harvest.texts[0].get_text().startswith("nothing to compare")
    pyplot.close(figure)


def test_no_two_policies_look_alike() -> None:
    looks = [tuple(pictures.look(number).values()) for number in range(32)]
    assert len(set(looks)) == 32 and pictures.look(32) == pictures.look(0)
    assert pictures.look(8)["color"] == pictures.look(0)["color"]
