"""Small fleets and jobs for the tests of placement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cotenant.classes import TenantClass
from cotenant.cluster.placement import registry
from cotenant.cluster.placement.fleet import Fleet, Job
from cotenant.cluster.placement.interface import Decision
from cotenant.cluster.placement.interference import NO_INTERFERENCE, Interference, PairTable, Part
from cotenant.cluster.simulation.kinds import Kind

GB = 10**9
# Of the tests of the cluster's simulation.
KINDS = {
    name: Kind(name, name == "serve", name == "serve", busy, busy / 2, 10 * GB, 1.0)
    for name, busy in (("serve", 0.25), ("train", 1.0), ("light", 0.5))
}


def opportunistic(id: str, share: float = 1.0, gb: int = 10, **more: Any) -> Job:
    return Job(id, kind=more.pop("kind", id), share=share, memory_bytes=gb * GB, **more)


def production(id: str, gb: int = 10, **more: Any) -> Job:
    return opportunistic(id, gb=gb, tenant_class=TenantClass.production, **more)


def fleet(*gpus: Sequence[Job], gb: int = 80) -> Fleet:
    """One GPU for each sequence of residents."""
    found = Fleet([gb * GB] * len(gpus))
    for number, jobs in enumerate(gpus):
        for job in jobs:
            found.add(job, (number,))
    return found


def decide(
    policy: str, waiting: Sequence[Job], there: Fleet, interference: Interference = NO_INTERFERENCE
) -> Decision:
    return registry.find(policy)().decide(waiting, there, interference)


def table(unknown: float = 1.0, **slowdowns: float) -> PairTable:
    """`gpt_beside_SERVE=2.0`: a kind in capitals is production's."""
    pairs = {}
    for key, value in slowdowns.items():
        one, _, other = key.partition("_beside_")
        pairs[part(one), part(other)] = value
    return PairTable(pairs, unknown)


def part(word: str) -> Part:
    return Part(word.lower(), word.isupper())
