"""How long production's copies of 1 MiB take beside a job that copies without pause: both ways, pinned and pageable.

Measured from the call until the copy has ended. A target is met when all of the interval is within it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from catalogue import JOBS, SOLO, Pair, parse_pairs
from crew import Crew
from intervals import MET, of_shares, shown
from outcome import compare, pooled, ratio, tail_name, tail_percent
from rounds import Narrate, Observation, measure_pair

from cotenant.demo.figures import percentile

MODES_MEASURED = ("alone", "timeslice", "cotenant")
MOST_P99 = 1.2
NAMES = tuple(f"{job}+flood" for job in ("send", "fetch", "send-pageable", "fetch-pageable"))


def measure(
    crew: Crew, names: Sequence[str], modes: Sequence[str], rounds: int, seconds: float, narrate: Narrate
) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    about: dict[str, Any] = {}
    for pair in parse_pairs(names):
        about = crew.gather(pair.workers(modes))
        found = pair_rows(pair, modes, measure_pair(crew, pair, modes, rounds, seconds, narrate))
        for row in found:
            narrate(
                f"{pair.name}: {row['mode']:12} {row['tail']} {row['tail_us']:.0f} us, {row['said']} x alone"
            )
        rows += found
    return {"rows": rows, "misses": misses(rows), "about": about}


def pair_rows(
    pair: Pair, modes: Sequence[str], seen: Mapping[str, Sequence[Observation]]
) -> list[dict[str, Any]]:
    alone, solo = seen["alone"], seen[SOLO]
    percent = tail_percent(min(len(pooled(seen[mode], "services_ms")) for mode in modes))
    rows = []
    for mode in modes:
        took = pooled(seen[mode], "services_ms")
        rates = zip(seen[mode], solo, strict=True)
        shares = of_shares(
            [one.samples.steps_per_second / own.samples.steps_per_second for one, own in rates]
        )
        same = [
            compare([getattr(one, field) for one in base], [getattr(one, field) for one in seen[mode]])
            for field, base in (("production_digests", alone), ("opportunistic_digests", solo))
        ]
        rows.append(
            {
                "pair": pair.name,
                "copy": JOBS[pair.production.name].title,
                "mode": mode,
                "samples": len(took),
                "tail": tail_name(len(took)),
                "p50_us": 1000 * percentile(took, 50),
                "tail_us": 1000 * percentile(took, percent),
                "max_us": 1000 * max(took),
                "p50_ratio": dataclasses.asdict(ratio(seen[mode], alone, "services_ms", 50)),
                "tail_ratio": dataclasses.asdict(ratio(seen[mode], alone, "services_ms", percent)),
                "kept": ratio(seen[mode], alone, "services_ms", percent).at_most(MOST_P99),
                "share": None if mode == "alone" else dataclasses.asdict(shares),
                "results": same[0] if mode == "alone" or same[0] == same[1] else " / ".join(same),
                "said": shown(ratio(seen[mode], alone, "services_ms", percent)),
            }
        )
    return rows


def misses(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"{row['pair']}: {row['tail']} {row['said']} x alone, wanted {MOST_P99}: {row['kept']}"
        for row in rows
        if row["mode"] == "cotenant" and row["kept"] != MET
    ]
