"""How long production waits for the GPU: a tiny kernel at random moments while spinning kernels hold it.

Measured from the launch call until the host sees what the kernel has written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from catalogue import JOBS, PLAIN, Pair
from crew import Crew
from rounds import Narrate, Window, observe, plan

from cotenant.demo.figures import percentile

MODES_MEASURED = ("timeslice", "cotenant")
MOST_MS = {"spin-11ms": 0.6, "spin-100us": 0.2}


def measure(
    crew: Crew, rounds: int, seconds: float, narrate: Narrate, holders: Sequence[str] = tuple(MOST_MS)
) -> dict[str, Any]:
    tiny = JOBS["tiny"]
    waits: dict[tuple[str, str], list[float]] = {}
    # The first one has the GPU to itself, so it can tell how much work a microsecond is.
    about = crew.gather([(tiny, PLAIN)])
    for holder in holders:
        pair = Pair(tiny, JOBS[holder])
        crew.gather(pair.workers(MODES_MEASURED), "--work-per-us", repr(float(about["work_per_us"])))
        modes = ("alone", *MODES_MEASURED)
        for mode in modes:
            observe(crew, tiny, pair.opportunistic, Window(mode, crew.pace.warm_up, seed=0))
        for number, windows in enumerate(plan(modes, rounds, seconds), start=1):
            narrate(f"preemption beside {holder}: round {number} of {rounds}")
            for window in windows:
                seen = observe(crew, tiny, pair.opportunistic, window)
                held = "nobody" if window.mode == "alone" else holder
                waits.setdefault((held, window.mode), []).extend(seen.samples.services_ms)
    rows = [
        {
            "held_by": held,
            "mode": mode,
            "samples": len(found),
            "p50_ms": percentile(found, 50),
            "p99_ms": percentile(found, 99),
            "max_ms": max(found),
        }
        for (held, mode), found in waits.items()
        if found
    ]
    return {"rows": rows, "misses": misses(rows), "about": about}


def misses(rows: Sequence[dict[str, Any]]) -> list[str]:
    found = []
    for row in rows:
        most = MOST_MS.get(row["held_by"])
        if most is not None and row["mode"] == "cotenant" and row["p99_ms"] > most:
            found.append(f"p99 {row['p99_ms']:.2f} ms beside {row['held_by']}, wanted {most} ms")
    return found
