"""The picture: Chrome's JSON trace format, which ui.perfetto.dev and chrome://tracing open.

A tenant is a process there, with a track for its bursts, gate and turn on each GPU, for its memory, for its time slice,
and for each thread that waited or copied.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cotenant import classes, segment, units
from cotenant.output_files import replaced
from cotenant.timeline.rings import Closed, Event, Interval, Noted
from cotenant.traces.export import named

CLOSED = {
    Closed.by_higher_class: "gate closed: a higher class has work",
    Closed.by_equal: "gate closed: an equal has the turn",
    Closed.by_policy: "gate closed: the policy keeps it shut",
    Closed.over_rate: "gate closed: it is over its rate",
    Closed.by_copying: "gate for copies closed: a higher class copies",
}
NAMES = {
    Event.burst: "burst",
    Event.turn: "turn",
    Event.launch_wait: "a launch waits: enough is queued",
    Event.gpu_wait: "waits for the GPU",
    Event.space_wait: "an allocation waits for space",
    Event.copy: "copy",
    Event.evicting: "evicting",
    Event.evicted: "evicted",
    Event.restoring: "restoring",
}
# Tracks of a tenant that belong to no thread: GPU * 10 and this. Threads have their own numbers, which are higher.
ON_GPU = {Event.burst: 1, Event.gpu_wait: 2, Event.gate: 3, Event.turn: 4}
ON_GPU_TITLES = {1: "bursts", 2: "waits for the GPU", 3: "gate", 4: "turn"}
MEMORY, SLICE = 1001, 1002
FIRST_THREAD = 10_000
TRACKS = {Event.evicting: MEMORY, Event.evicted: MEMORY, Event.restoring: MEMORY, Event.slice: SLICE}


def name_of(interval: Interval) -> str:
    if interval.event is Event.gate:
        return CLOSED[Closed(interval.why)] if interval.why in set(Closed) else "gate closed"
    if interval.event is Event.slice:
        how = "cut: " if interval.why else ""
        return f"{how}slices of {interval.value} us"
    return NAMES[interval.event]


def track_of(interval: Interval) -> int:
    if interval.event in ON_GPU:
        return (interval.gpu or 0) * 10 + ON_GPU[interval.event]
    return TRACKS.get(interval.event, FIRST_THREAD + interval.thread)


def title_of(track: int) -> str:
    if track >= FIRST_THREAD:
        return f"thread {track - FIRST_THREAD}"
    if track in (MEMORY, SLICE):
        return "memory" if track == MEMORY else "time slice"
    return f"GPU {track // 10} {ON_GPU_TITLES[track % 10]}"


def arguments(interval: Interval) -> dict[str, Any]:
    if interval.event is Event.burst:
        return {"operations": interval.value}
    if interval.event is Event.copy and interval.value:
        return {"gpu": interval.gpu, "bytes": interval.value}
    if interval.event in (Event.evicting, Event.evicted, Event.restoring):
        return {"host_bytes": interval.value, "shown": units.size_shown(interval.value)}
    return {} if interval.gpu is None else {"gpu": interval.gpu}


def events(
    taken: Sequence[tuple[segment.Tenant, Noted]], began_ns: int, ended_ns: int
) -> Iterator[dict[str, Any]]:
    """What began before the recording or ended after it is cut off there. Times are microseconds since it began."""
    for number, (tenant, noted) in enumerate(taken, 1):
        label = f"{classes.name_of(tenant.tenant_class)}: {tenant.job} ({tenant.pid})"
        yield named("process_name", label, number)
        sort = {"sort_index": tenant.tenant_class * 1000 + number}
        yield {"ph": "M", "name": "process_sort_index", "pid": number, "tid": 0, "args": sort}
        shown = [one for one in noted.intervals if one.end_ns >= began_ns and one.begin_ns <= ended_ns]
        for track in sorted({track_of(one) for one in shown}):
            sort = {"sort_index": track}
            yield named("thread_name", title_of(track), number, track)
            yield {"ph": "M", "name": "thread_sort_index", "pid": number, "tid": track, "args": sort}
        for one in shown:
            begin, end = max(one.begin_ns, began_ns), min(one.end_ns, ended_ns)
            yield {
                "ph": "X",
                "name": name_of(one),
                "cat": one.event.name,
                "pid": number,
                "tid": track_of(one),
                "ts": (begin - began_ns) / 1000,
                "dur": (end - begin) / 1000,
                "args": arguments(one),
            }


def about(
    taken: Sequence[tuple[segment.Tenant, Noted]], refused: Mapping[Any, str], forgotten: int
) -> dict[str, Any]:
    return {
        "made_by": "cotenant timeline",
        "clock": "CLOCK_MONOTONIC",
        "dropped": {f"{one.job} ({one.pid})": noted.dropped for one, noted in taken if noted.dropped},
        "not_read": sorted(set(refused.values())),
        "forgotten_tenants": forgotten,
    }


def write(
    path: Path,
    taken: Sequence[tuple[segment.Tenant, Noted]],
    began_ns: int,
    ended_ns: int,
    refused: Mapping[Any, str],
    forgotten: int,
) -> None:
    """Whole or not at all. Raises Problem."""
    with replaced(path) as beside, beside.open("w") as out:
        said = json.dumps(about(taken, refused, forgotten))
        out.write(f'{{"displayTimeUnit": "ms", "otherData": {said}, "traceEvents": [')
        separator = "\n"
        for event in events(taken, began_ns, ended_ns):
            out.write(separator + json.dumps(event))
            separator = ",\n"
        out.write("\n]}\n")


def summary(path: Path, taken: Sequence[tuple[segment.Tenant, Noted]], refused: Mapping[Any, str]) -> str:
    intervals = sum(len(noted.intervals) for _, noted in taken)
    lines = [
        f"{path}: {len(taken)} tenant{'s' * (len(taken) != 1)}, {intervals} intervals; ui.perfetto.dev opens it"
    ]
    dropped = sum(noted.dropped for _, noted in taken)
    if dropped:
        lines.append(f"{dropped} older intervals did not fit: --ring is larger, or record for a shorter time")
    lines += sorted(set(refused.values()))
    return "\n".join(lines)
