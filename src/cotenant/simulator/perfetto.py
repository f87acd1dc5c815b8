"""The timeline as a trace that Perfetto and chrome://tracing open: one process a policy, one track a tenant."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from cotenant.simulator.results import Outcome


def events(outcomes: Sequence[Outcome]) -> Iterator[dict[str, Any]]:
    for process, outcome in enumerate(outcomes, 1):
        yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": outcome.policy}}
        tracks = {tenant.name: number for number, tenant in enumerate(outcome.tenants, 1)}
        for tenant in outcome.tenants:
            title = f"{tenant.name} ({tenant.tenant_class.name})"
            track = tracks[tenant.name]
            yield {"ph": "M", "pid": process, "tid": track, "name": "thread_name", "args": {"name": title}}
        for span in outcome.spans:
            yield {
                "ph": "X",
                "pid": process,
                "tid": tracks[span.tenant],
                "name": span.kind,
                "ts": round(span.start_us, 3),
                "dur": round(max(0.0, span.end_us - span.start_us), 3),
                "args": {"request": span.request},
            }


def write(outcomes: Sequence[Outcome], file: TextIO) -> None:
    file.write('{"displayTimeUnit": "ms", "traceEvents": [')
    for number, event in enumerate(events(outcomes)):
        file.write(("," if number else "") + "\n" + json.dumps(event))
    file.write("\n]}\n")
