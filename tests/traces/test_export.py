"""What other programs and people get of a trace, value by value."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cotenant.commands import trace as command
from cotenant.profile.columns import Columns, KernelClass
from cotenant.traces import Direction, Kind, Trace, export
from cotenant.traces.summary import by_shape, peak_memory, summary
from tests.traces.made_up import GPU, shape, trace

PRODUCT = Columns(KernelClass.compute, True, True, 0.83456, 1200.44)


def made() -> Trace:
    """A kernel of 20 us behind one of 10 us on another stream, a wait, a copy to the host that keeps the host."""
    found = trace(
        [
            shape(name="product", us=10.0, sms=7, columns=PRODUCT),
            shape(name="other", us=20.0, sms=3),
            shape(Kind.copy, us=5.0, direction=Direction.to_host, bytes=4096, sms=0),
        ],
        [
            (Kind.allocate, -1, 0.0, 0.0, 1000),
            (Kind.kernel, 0, 4.0, 0.0, 0),
            (Kind.kernel, 1, 2.0, 0.0, 0),
            (Kind.wait, -1, 1.0, 19.0, 0),
            (Kind.copy, 2, 3.0, 6.0, 4096),
            (Kind.free, -1, 5.0, 0.0, 400),
        ],
        streams=[0, 1, 2, 0, 2, 0],
    )
    ends = np.array([False, False, False, True, False, False])
    return replace(found, operations=replace(found.operations, ends_request=ends))


def test_a_row_for_each_operation() -> None:
    out = io.StringIO()
    export.write_csv(made(), out)
    head, *rows = csv.reader(io.StringIO(out.getvalue()))
    assert head == list(export.COLUMNS)
    assert ["|".join(row) for row in rows] == [
        "0.0|0.0|0.0|allocate|allocate|0|0|1|0.0|0.0|0.0|0|1000||0||||",
        "4.0|4.0|14.0|kernel|product|0|1|1|10.0|4.0|0.0|7|0||0|compute|1|0.8346|1200.4",
        "6.0|6.0|26.0|kernel|other|0|2|1|20.0|2.0|0.0|3|0||0|unknown|0||",
        "26.0|7.0|26.0|wait|wait|0|0|1|0.0|1.0|19.0|0|0||1||||",
        "35.0|29.0|34.0|copy|copy to host|0|2|1|5.0|3.0|6.0|0|4096|to_host|0|copy|0||",
        "40.0|40.0|40.0|free|free|0|0|1|0.0|5.0|0.0|0|400||0||||",
    ]


def test_a_timeline_has_the_gpus_streams_the_hosts_waits_and_the_memory() -> None:
    out = io.StringIO()
    export.write_chrome(made(), out)
    written = json.loads(out.getvalue())
    assert written["displayTimeUnit"] == "ms"
    assert written["otherData"] == {
        "program": "made-up", "pid": "7", "recorded": "2026-01-02T03:04:05Z", "lost": "0", "damage": "",
    }  # fmt: skip
    events: list[dict[str, Any]] = written["traceEvents"]
    named = [(one["name"], one["pid"], one["tid"], one["args"]["name"]) for one in events if one["ph"] == "M"]
    assert named == [
        ("process_name", 0, 0, "GPU 0: A made-up GPU"),
        ("process_name", 1000, 0, "made-up (7)"),
        ("thread_name", 0, 0, "stream 0"),
        ("thread_name", 0, 1, "stream 1"),
        ("thread_name", 0, 2, "stream 2"),
        ("thread_name", 1000, 1, "thread 1"),
    ]
    assert [one for one in events if one["ph"] != "M"] == [
        {"ph": "C", "name": "memory", "pid": 0, "tid": 0, "ts": 0.0, "args": {"bytes": 1000}},
        {"ph": "X", "name": "product", "cat": "kernel", "pid": 0, "tid": 1, "ts": 4.0, "dur": 10.0,
         "args": {"queued_us": 4.0, "sms": 7, "bytes": 0}},
        {"ph": "X", "name": "other", "cat": "kernel", "pid": 0, "tid": 2, "ts": 6.0, "dur": 20.0,
         "args": {"queued_us": 6.0, "sms": 3, "bytes": 0}},
        {"ph": "X", "name": "wait", "cat": "host", "pid": 1000, "tid": 1, "ts": 7.0, "dur": 19.0,
         "args": {"ends_request": 1}},
        {"ph": "X", "name": "copy to host", "cat": "copy", "pid": 0, "tid": 2, "ts": 29.0, "dur": 5.0,
         "args": {"queued_us": 35.0, "sms": 0, "bytes": 4096}},
        {"ph": "X", "name": "copy to host (host)", "cat": "host", "pid": 1000, "tid": 1, "ts": 29.0, "dur": 6.0,
         "args": {"ends_request": 0}},
        {"ph": "C", "name": "memory", "pid": 0, "tid": 0, "ts": 40.0, "args": {"bytes": 600}},
    ]  # fmt: skip
    assert export.FORMATS["perfetto"] is export.FORMATS["chrome"] is export.write_chrome


@pytest.mark.parametrize(
    ("one", "name"),
    [
        (shape(Kind.graph, nodes=7), "graph of 7 nodes"),
        (shape(Kind.graph), "graph"),
        (shape(Kind.copy, direction=Direction.between_devices), "copy between devices"),
        (shape(Kind.copy), "copy"),
        (shape(Kind.fill), "fill"),
        (shape(name="k"), "k"),
    ],
)
def test_what_has_no_name_is_named_by_its_kind(one: Any, name: str) -> None:
    assert export.title(one, one.kind) == name
    assert export.title(None, Kind.wait) == "wait"


def test_a_summary_is_of_all_operations() -> None:
    found = summary(made(), 1)
    assert found | {
        "file": "made-up.trace", "version": 1, "complete": True, "damage": "", "lost": 0, "operations": 6,
        "seconds": 40e-6, "requests": 1, "bytes_copied": 4096, "peak_memory_bytes": 1000, "shapes": 3,
    } == found  # fmt: skip
    # 4 to 26 and 29 to 34, of 40.
    assert found["busy_share"] == round(27 / 40, 4)
    assert found["gpus"][0]["name"] == GPU.name
    assert found["by_kind"] == {
        "kernel": 2, "graph": 0, "copy": 1, "fill": 0, "wait": 1, "allocate": 1, "free": 1,
    }  # fmt: skip
    assert found["top"] == [
        {"kind": "kernel", "name": "other", "operations": 1, "shapes": 1, "total_us": 20.0, "untimed": 0,
         "most_sms": 3, "class": "unknown", "tensor": False, "mean_us": 20.0, "share": round(20 / 35, 4)},
    ]  # fmt: skip


def test_all_dimensions_of_a_kernel_are_one_entry_with_the_class_of_the_longest() -> None:
    shapes = [
        shape(name="k", us=10.0, sms=9),
        shape(name="k", us=30.0, sms=4, columns=PRODUCT),
        shape(name="k", sms=2),
        shape(name="never", us=1.0),
        shape(name="k", us=5.04, sms=1),
    ]
    calls = [(Kind.kernel, number, 1.0, 0.0, 0) for number in (0, 0, 1, 2, 4)]
    (entry,) = by_shape(trace(shapes, calls))
    assert entry == {
        "kind": "kernel", "name": "k", "operations": 5, "shapes": 4, "total_us": 55.0, "untimed": 1, "most_sms": 9,
        "class": "compute", "tensor": True, "mean_us": 11.008, "share": 1.0,
    }  # fmt: skip
    freed = trace([], [(Kind.free, -1, 0.0, 0.0, 5), (Kind.allocate, -1, 1.0, 0.0, 3)])
    assert peak_memory(freed) == 0 and peak_memory(trace([], [])) == 0


def test_a_summary_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    words = "2 bursts 4000000 busy_ns 1 waits 500000 waited_ns 1000000 gap_ns"
    untimed = shape(name="untimed")
    found = made()
    found = replace(
        found, shapes=(found.shapes[0], found.shapes[1], untimed), facts={**found.facts, "breakdown": words}
    )
    command.print_tables(summary(found, 5))
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert shown == [
        "program made-up, process 7, 2026-01-02T03:04:05Z",
        "gpu 0: A made-up GPU, 100 SMs",
        "ended in order",
        "length 0.000 s, GPU busy 67.5 %",
        "operations 2 kernel, 1 copy, 1 wait, 1 allocate, 1 free",
        "requests 1",
        "bursts of a burst of 2.00 ms it waited 0.50 ms for the GPU, ran 1.00 ms and waited 0.50 ms for its own CPU",
        "memory 0.0 MiB at most",
        "",
        "SHARE TOTAL ms MEAN us COUNT SMS CLASS WHAT",
        "66.7 % 0.02 20.00 1 3 unknown other",
        "33.3 % 0.01 10.00 1 7 compute, tensor product",
        "? ? ? 1 2 unknown untimed",
    ]


def test_estimates_are_by_the_gpus_own_bandwidth() -> None:
    one = trace([shape(Kind.fill, us=10.0, bytes=1 << 20), shape(Kind.graph, us=10.0)], [])
    fill, graph = one.columns
    assert fill == Columns(KernelClass.copy, memory_gbps=(1 << 20) / 1e4) and graph == Columns()
    slow = replace(one, gpus=(replace(GPU, memory_gbps=50),))
    assert slow.columns[0].memory_gbps == 50
    known = replace(
        one, gpus=(replace(GPU, name="NVIDIA L4"),), shapes=(shape(Kind.fill, us=1.0, bytes=1 << 20),)
    )
    assert known.columns[0].memory_gbps == 300
    assert replace(one, gpus=()).columns[0].memory_gbps == pytest.approx(104.8576)
    # A copy on the GPU reads and writes; one to or from the host has its link's bandwidth and not the memory's.
    copies = [
        shape(Kind.copy, us=100.0, bytes=1 << 20, direction=way)
        for way in (Direction.on_device, Direction.to_host)
    ]
    here, away = trace(copies, []).columns
    assert here.memory_gbps == pytest.approx(2 * (1 << 20) / 1e5) and away.memory_gbps != here.memory_gbps
