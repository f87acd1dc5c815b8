"""The kinds of jobs that the simulated cluster knows, and what any two of them do to each other.

Both tables are shipped: bench/simulator/kinds.py makes them from the recorded jobs (examples/traces) and from what was
measured on an H200. A slowdown is true as it was measured there, else as it is simulated; it is predicted by a model
that has not seen the pair.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from cotenant.cluster.placement.interference import PairTable, Part
from cotenant.errors import unknown

SHARING = ("cotenant", "mps", "timeslice")


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    is_production: bool
    is_service: bool  # it answers requests, so that its end does not depend on its speed
    busy: float  # of the time alone, the part in which a GPU has work of it
    sms: float  # of the SMs alone, in the mean
    memory_bytes: int
    service_weight: float  # how often it is drawn as a service that is always there


@cache
def kinds() -> dict[str, Kind]:
    return {
        row["kind"]: Kind(
            row["kind"],
            row["class"] == "production",
            row["service"] == "yes",
            float(row["busy"]),
            float(row["sms"]),
            int(row["memory_bytes"]),
            float(row["service_weight"]),
        )
        for row in table("kinds.csv")
    }


@cache
def interference(sharing: str) -> tuple[PairTable, PairTable]:
    """As it is, and as it is predicted."""
    if sharing not in SHARING:
        raise unknown("way of sharing", sharing, SHARING)
    true, predicted = {}, {}
    for row in table("pairs.csv"):
        if row["sharing"] == sharing:
            key = part(row["kind"], row["class"]), part(row["beside"], row["beside_class"])
            true[key], predicted[key] = float(row["slowdown"]), float(row["predicted"])
    return PairTable(true), PairTable(predicted)


def part(kind: str, tenant_class: str) -> Part:
    return Part(kind, tenant_class == "production")


def table(name: str) -> list[dict[str, str]]:
    text = (files("cotenant.cluster.simulation") / name).read_text()
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
