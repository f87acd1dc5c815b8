"""How long production waits for the GPU: a tiny kernel at random moments while spinning kernels hold it; and ten,
each launched when the program has waited for the one before.

The tiny one is measured from the launch call until the host sees what the kernel has written.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from catalogue import JOBS, PLAIN, Pair
from crew import Crew
from rounds import Narrate, Window, observe, plan

from cotenant.demo.figures import percentile

MODES_MEASURED = ("timeslice", "cotenant")
REQUESTS = ("tiny", "ten")
MOST_MS = {"spin-11ms": 0.6, "spin-100us": 0.2}


def measure(
    crew: Crew, rounds: int, seconds: float, narrate: Narrate, holders: Sequence[str] = tuple(MOST_MS)
) -> dict[str, Any]:
    waits: dict[tuple[str, str, str], list[float]] = {}
    # The first one has the GPU to itself, so it can tell how much work a microsecond is.
    about = crew.gather([(JOBS[REQUESTS[0]], PLAIN)])
    for request, holder in itertools.product(REQUESTS, holders):
        pair = Pair(JOBS[request], JOBS[holder])
        crew.gather(pair.workers(MODES_MEASURED), "--work-per-us", repr(float(about["work_per_us"])))
        modes = ("alone", *MODES_MEASURED)
        for mode in modes:
            observe(crew, pair.production, pair.opportunistic, Window(mode, crew.pace.warm_up, seed=0))
        for number, windows in enumerate(plan(modes, rounds, seconds), start=1):
            narrate(f"preemption, {pair.name}: round {number} of {rounds}")
            for window in windows:
                seen = observe(crew, pair.production, pair.opportunistic, window)
                held = "nobody" if window.mode == "alone" else holder
                waits.setdefault((request, held, window.mode), []).extend(seen.samples.services_ms)
    rows = [
        {
            "request": request,
            "held_by": held,
            "mode": mode,
            "samples": len(found),
            "p50_ms": percentile(found, 50),
            "p99_ms": percentile(found, 99),
            "max_ms": max(found),
        }
        for (request, held, mode), found in waits.items()
        if found
    ]
    return {"rows": rows, "misses": misses(rows), "about": about}


def misses(rows: Sequence[dict[str, Any]]) -> list[str]:
    found = []
    for row in rows:
        most = MOST_MS.get(row["held_by"]) if row["request"] == "tiny" else None
        if most is not None and row["mode"] == "cotenant" and row["p99_ms"] > most:
            found.append(f"p99 {row['p99_ms']:.2f} ms beside {row['held_by']}, wanted {most} ms")
    return found
