"""Clusters, jobs and labels that are drawn: what nobody thought of together is placed, and ends, as it ever did."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import pytest

from cotenant.classes import TenantClass
from cotenant.cluster.placement import registry
from cotenant.cluster.placement.fleet import Job
from cotenant.cluster.simulation.engine import Cluster
from cotenant.cluster.simulation.scenario import Coming, Scenario
from tests.cluster.placing import GB, KINDS, decide, fleet, opportunistic, table

# All of them exact in binary: sums are the same in whatever order they are taken.
TRUTH = table(
    unknown=2.0,
    train_beside_train=2.0,
    train_beside_SERVE=1.5,
    SERVE_beside_train=1.25,
    light_beside_light=1.0,
    light_beside_train=1.5,
    train_beside_light=1.125,
    SERVE_beside_light=1.0625,
    light_beside_SERVE=1.0,
)
PREDICTED = table(unknown=1.5, train_beside_train=1.75, SERVE_beside_train=1.125, light_beside_light=1.0)
CLUSTERS = 12

# Who changes a policy or the engine on purpose puts the new ones here. Not muxflow: among equals scipy chooses.
EXPECTED = {
    "first-fit": "116a9a47a85700e1",
    "best-fit": "35e240b8ae9250f3",
    "worst-fit": "505a8d83784e939c",
    "exclusive": "db9e073aab9e93c2",
    "kubeshare": "5887a64f064df139",
    "iadeep": "d5bb8d0588b995e7",
    "gandiva": "2f93fb207a55a3c1",
}


def drawn_job(source: random.Random, id: str, is_service: bool = False) -> Job:
    kind = "serve" if is_service else source.choice(["train", "train", "light", "serve"])
    is_production = kind == "serve" and (is_service or source.random() < 0.5)
    lower = source.choice([TenantClass.standard, *[TenantClass.opportunistic] * 4])
    return Job(
        id,
        kind=kind,
        tenant_class=TenantClass.production if is_production else lower,
        share=source.choice([0.25, 0.5, 0.5, 1.0]),
        memory_bytes=source.choice([5, 10, 10, 40]) * GB,
        gpus=1 if is_service else source.choice([1, 1, 1, 1, 2]),
        slowdown=source.choice([None, 0.0625, 0.25]) if is_production else None,
        affinity=source.choice(["", "", "", "", "", "red"]),
        anti_affinity=source.choice(["", "", "", "", "green"]),
        exclusion=source.choice([*[""] * 9, "blue"]),
    )


def drawn(seed: int) -> Scenario:
    source = random.Random(seed)
    services = tuple(
        drawn_job(source, f"service-{number}", True) for number in range(source.choice([0, 1, 2]))
    )
    jobs, now = [], 0.0
    for number in range(source.choice([6, 15, 30])):
        now += source.choice([0, 0, 3, 16, 60])
        job = drawn_job(source, f"job-{number}")
        jobs.append(Coming(job, now, float(source.choice([10, 64, 300])), source.random() < 0.2))
    return Scenario("drawn", source.choice([2, 3, 5]), 80 * GB, services, tuple(jobs))


@pytest.mark.parametrize("policy", EXPECTED)
def test_what_is_drawn_is_placed_and_ends_as_it_ever_did(policy: str) -> None:
    found: list[object] = []
    for seed in range(CLUSTERS):
        outcome = Cluster(
            drawn(seed), registry.find(policy)(), KINDS, TRUTH, PREDICTED, round_s=float(1 + seed % 3)
        ).run()
        for job in outcome.jobs:
            times = (job.submitted_s, job.begun_s, job.ended_s, job.alone_s, job.broken_s)
            found.append(
                (
                    job.id,
                    int(job.gpus),
                    int(job.moves),
                    bool(job.is_production),
                    [round(float(one), 3) for one in times],
                )
            )
        figures = (
            outcome.arrivals_s,
            outcome.makespan_s,
            outcome.utilisation,
            outcome.sm_activity,
            outcome.memory,
            outcome.production_s,
            outcome.broken_s,
            *(value for point in outcome.timeline for value in point),
        )
        found.append(
            (
                int(outcome.moves),
                int(outcome.never_ran),
                int(outcome.services),
                [round(float(one), 3) for one in figures],
            )
        )
    text = repr(found).replace("-0.0,", "0.0,")
    assert hashlib.blake2b(text.encode(), digest_size=8).hexdigest() == EXPECTED[policy]


def test_a_job_goes_only_where_its_word_allows() -> None:
    there = fleet((), (), ())
    there.where["zone"] = np.array([False, True, True])
    waiting = [opportunistic("a", where="zone"), opportunistic("b"), opportunistic("c", where="zone", gpus=2)]
    assert decide("first-fit", waiting, there).placed == {"a": (1,), "b": (0,)}
