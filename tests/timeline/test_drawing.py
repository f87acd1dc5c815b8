"""The picture of a timeline, of intervals that nobody noted."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from cotenant import segment
from cotenant.timeline import collecting, drawing
from cotenant.timeline.rings import Closed, Event, Interval, Noted

US = 1000
TENANT = segment.Tenant(
    pid=71, uid=1, started=5, program="p", run_id="", tenant_class=2, unknown_functions=0, time_slice_us=0,
    time_slice_refused=False, uses=(), job="train",
)  # fmt: skip


def noted(event: Event, begin: int, end: int, gpu: int | None = 0, value: int = 0, why: int = 0) -> Interval:
    return Interval(event, begin * US, end * US, gpu, value, why, thread=42)


@pytest.mark.parametrize(
    ("interval", "name", "track", "title", "said"),
    [
        (noted(Event.burst, 1, 2, 3, 17), "burst", 31, "GPU 3 bursts", {"operations": 17}),
        (noted(Event.gpu_wait, 1, 2, 1), "waits for the GPU", 12, "GPU 1 waits for the GPU", {"gpu": 1}),
        (
            noted(Event.gate, 1, 2, 0, why=Closed.by_equal),
            "gate closed: an equal has the turn",
            3,
            "GPU 0 gate",
            {"gpu": 0},
        ),
        (noted(Event.gate, 1, 2, 0, why=99), "gate closed", 3, "GPU 0 gate", {"gpu": 0}),
        (noted(Event.turn, 1, 2, 2), "turn", 24, "GPU 2 turn", {"gpu": 2}),
        (noted(Event.slice, 1, 2, None, 500, 1), "cut: slices of 500 us", 1002, "time slice", {}),
        (noted(Event.slice, 1, 2, None, 2000), "slices of 2000 us", 1002, "time slice", {}),
        (
            noted(Event.evicted, 1, 2, None, 3 << 20),
            "evicted",
            1001,
            "memory",
            {"host_bytes": 3 << 20, "shown": "3M"},
        ),
        (noted(Event.copy, 1, 2, 1, 4096), "copy", 10_042, "thread 42", {"gpu": 1, "bytes": 4096}),
        (noted(Event.copy, 1, 2, 1), "copy", 10_042, "thread 42", {"gpu": 1}),
        (
            noted(Event.launch_wait, 1, 2, 1),
            "a launch waits: enough is queued",
            10_042,
            "thread 42",
            {"gpu": 1},
        ),
        (
            noted(Event.space_wait, 1, 2, None),
            "an allocation waits for space",
            10_042,
            "thread 42",
            {},
        ),
    ],
)
def test_an_interval_has_a_name_a_track_and_what_it_was_about(
    interval: Interval, name: str, track: int, title: str, said: dict[str, object]
) -> None:
    assert drawing.name_of(interval) == name
    assert (drawing.track_of(interval), drawing.title_of(track)) == (track, title)
    assert drawing.arguments(interval) == said


def test_every_reason_of_a_closed_gate_is_said() -> None:
    assert {why: drawing.name_of(noted(Event.gate, 0, 1, why=why)) for why in Closed} == {
        Closed.by_higher_class: "gate closed: a higher class has work",
        Closed.by_equal: "gate closed: an equal has the turn",
        Closed.by_policy: "gate closed: the policy keeps it shut",
        Closed.over_rate: "gate closed: it is over its rate",
        Closed.by_copying: "gate for copies closed: a higher class copies",
    }


def test_a_picture_is_cut_off_where_the_recording_began_and_ended(tmp_path: Path) -> None:
    inside = [
        noted(Event.burst, 90, 110, value=1),
        noted(Event.burst, 120, 130, value=2),
        noted(Event.copy, 190, 300, value=3),
    ]
    outside = [noted(Event.burst, 10, 99), noted(Event.turn, 201, 300)]
    path = tmp_path / "picture.json"
    taken = [(TENANT, Noted([*outside, *inside], 6)), (TENANT, Noted([], 0))]
    drawing.write(path, taken, 100 * US, 200 * US, {1: "b", 2: "a", 3: "a"}, forgotten=4)
    written = json.loads(path.read_text())
    assert written["displayTimeUnit"] == "ms"
    assert written["otherData"] == {
        "made_by": "cotenant timeline",
        "clock": "CLOCK_MONOTONIC",
        "dropped": {"train (71)": 6},
        "not_read": ["a", "b"],
        "forgotten_tenants": 4,
    }
    events = written["traceEvents"]
    assert [(one["pid"], one["tid"], one["ts"], one["dur"]) for one in events if one["ph"] == "X"] == [
        (1, 1, 0.0, 10.0),
        (1, 1, 20.0, 10.0),
        (1, 10_042, 90.0, 10.0),
    ]
    assert [one["cat"] for one in events if one["ph"] == "X"] == ["burst", "burst", "copy"]
    names = [(one["pid"], one["tid"], one["args"]) for one in events if one["ph"] == "M"]
    assert names == [
        (1, 0, {"name": "opportunistic: train (71)"}),
        (1, 0, {"sort_index": 2001}),
        (1, 1, {"name": "GPU 0 bursts"}),
        (1, 1, {"sort_index": 1}),
        (1, 10_042, {"name": "thread 42"}),
        (1, 10_042, {"sort_index": 10_042}),
        (2, 0, {"name": "opportunistic: train (71)"}),
        (2, 0, {"sort_index": 2002}),
    ]


def test_a_summary_counts_and_says_what_is_missing() -> None:
    taken = [(TENANT, Noted([noted(Event.burst, 1, 2)] * 3, 0)), (TENANT, Noted([], 5))]
    first, second, third = drawing.summary(Path("x.json"), taken, {1: "no", 2: "no"}).splitlines()
    assert first == "x.json: 2 tenants, 3 intervals; ui.perfetto.dev opens it"
    assert second.startswith("5 older intervals did not fit") and third == "no"
    assert drawing.summary(Path("x"), taken[:1], {}) == "x: 1 tenant, 3 intervals; ui.perfetto.dev opens it"


def tenant(pid: int, *gpus: int, **more: object) -> segment.Tenant:
    uses = tuple(segment.Use(gpu, "", False, False, {}) for gpu in gpus)
    about = vars(TENANT) | {"pid": pid, "uses": uses, "process": pid, "own_pid": pid} | more
    return segment.Tenant(**about)


@pytest.fixture
def collection(monkeypatch: pytest.MonkeyPatch) -> collecting.Collection:
    """Of a segment whose tenants note each request and nothing else."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(segment, "ask", lambda path, pid, wanted: asked.append((pid, wanted["timeline"])))
    one = collecting.Collection(Path("nowhere"), ring_bytes=256 << 10)
    one.asked = asked  # type: ignore[attr-defined]
    return one


def looked(collection: collecting.Collection, *tenants: segment.Tenant, meant: int) -> list[tuple[int, int]]:
    collection.seen = lambda: segment.Snapshot({0: "GPU-0"}, tenants, 0)  # type: ignore[method-assign]
    collection.look(lambda one: one.pid == meant)
    return collection.asked  # type: ignore[attr-defined,no-any-return]


def test_everybody_on_a_gpu_of_the_chosen_job_is_asked_once(collection: collecting.Collection) -> None:
    waits = tenant(9, 0, asked=("timeline",))
    seen = (tenant(1, 0), tenant(2, 0, 1), tenant(3, 1), tenant(4), waits)
    assert looked(collection, *seen, meant=1) == [(1, 256), (2, 256)]
    assert collection.gpus == {0: "GPU-0"}
    assert looked(collection, tenant(4), meant=4)[2:] == [(4, 256)]  # it has used none yet


def test_who_cannot_be_asked_or_read_is_named_once(
    collection: collecting.Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise segment.NotYours(SimpleNamespace(pid=2, uid=7))  # type: ignore[arg-type]

    # Its number belongs to no process of that start: there is no ring to open.
    looked(collection, tenant(1 << 22, 0, timeline=7), meant=1 << 22)
    assert list(collection.refused) == [(1 << 22, 5)] and not collection.rings
    monkeypatch.setattr(segment, "ask", refuses)
    looked(collection, tenant(2, 0), meant=2)
    assert collection.refused[2, 5] == "tenant 2 belongs to user 7"
    tries: list[int] = []
    monkeypatch.setattr(segment, "ask", lambda path, pid, wanted: tries.append(pid))
    monkeypatch.setattr(collecting, "Ring", lambda one: tries.append(one.pid))
    looked(collection, tenant(1 << 22, 0, timeline=7), tenant(2, 0), meant=2)
    assert tries == []


def test_what_a_lane_noted_is_apart_from_its_process(collection: collecting.Collection) -> None:
    own = tenant(1, 0)
    looked(collection, tenant(100, 0, lane=2, process=1, job="known"), meant=100)
    assert not collection.asked  # type: ignore[attr-defined]
    intervals = [
        Interval(Event.burst, at, at + 1, 0, 0, 0, 1, lane) for at, lane in ((1, 0), (2, 2), (3, 3), (4, 2))
    ]
    found = list(collection.of_process(own, Noted(intervals, 9)))
    assert [(who.job, [one.begin_ns for one in told.intervals], told.dropped) for who, told in found] == [
        ("train", [1], 9),
        ("known", [2, 4], 0),
        ("train/lane 3", [3], 0),
    ]


def test_the_number_of_lanes_is_bounded_and_those_that_are_known_stay(
    collection: collecting.Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "MOST_LANES", 2)
    lanes = [tenant(100 + number, 0, lane=number, process=1, job="first") for number in (1, 2, 3)]
    looked(collection, *lanes, meant=101)
    assert list(collection.lanes) == [(1, 1), (1, 2)]
    looked(collection, tenant(102, 0, lane=2, process=1, job="renamed"), meant=102)
    assert collection.lanes[1, 2].job == "renamed"


def test_a_tenant_is_drawn_as_it_was_last_seen_and_the_dead_are_forgotten_first(
    collection: collecting.Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []

    def ring(one: segment.Tenant) -> SimpleNamespace:
        return SimpleNamespace(tenant=one, close=lambda: closed.append(one.pid))

    monkeypatch.setattr(collecting, "Ring", ring)
    monkeypatch.setattr(collecting, "MOST_RINGS", 2)
    living, dead = tenant(1, 0, timeline=7), tenant(2, 0, timeline=7)
    looked(collection, living, dead, meant=1)
    changed = tenant(1, 0, timeline=7, tenant_class=0)
    opened = collection.rings[1, 5]
    looked(collection, changed, tenant(3, 0, timeline=7), meant=1)
    assert collection.rings[1, 5] is opened
    assert (closed, [pid for pid, _ in collection.rings], collection.forgotten) == ([2], [1, 3], 1)
    assert collection.rings[1, 5].tenant.tenant_class == 0
