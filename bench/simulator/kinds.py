"""Rewrites the tables that `cotenant predict` and `cotenant simulate --cluster` ship, when traces, measured pairs or
the simulator have changed.

python bench/simulator/kinds.py      # half a minute

    src/cotenant/cluster/predict/h200.csv       each measured pair (docs) beside what is simulated
    src/cotenant/cluster/simulation/kinds.csv   the recorded jobs (examples/traces), alone
    src/cotenant/cluster/simulation/pairs.csv   what any two of them do to each other, true and predicted
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from pair_jobs import CROWD_STEPS, POLICIES, RATES, SERVING, TRACES, opportunistic_job, production_job
from validate import known, of_the_docs

from cotenant.cluster.predict import observations
from cotenant.cluster.predict.model import Model, Observation
from cotenant.cluster.predict.pairs import simulated, study_of
from cotenant.simulator import Job, Study, TenantClass, Workload
from cotenant.simulator.workload_file import trace_job

CLUSTER = Path(__file__).parents[2] / "src" / "cotenant" / "cluster"
SHARING = ("cotenant", "mps", "timeslice")
# So that services use 26 % of their GPUs in the mean, as online work did at MuxFlow's.
SERVICE_WEIGHTS = {"decode": 0.62, "encoder": 0.33, "vision": 0.05}

# In the simulator these two do not slow each other down; measured under time slicing they do (docs/simulator.md).
MEASURED = {("eager", "eager"): 2 / 1.73}


def observed() -> list[Observation]:
    studies: dict[str, Study] = {}
    found = []
    for point in known(of_the_docs(), list(POLICIES)):
        production, _, other = point.pair.partition("+")
        jobs = production_job(production), opportunistic_job(other)
        study = studies.setdefault(point.pair, study_of(*jobs))
        pair = simulated(*jobs, point.mode, study=study)
        found.append(Observation(point.pair, pair, point.slowdown, point.share))
    return found


def kind_rows() -> Iterator[list[str]]:
    yield ["kind", "class", "service", "busy", "sms", "memory_bytes", "service_weight"]
    for job in [production_job(name) for name in SERVING] + [opportunistic_job(name) for name in CROWD_STEPS]:
        alone = Study(Workload(job.name, (job,)), seconds=20.0, seed=1).run("none")
        memory = trace_job(TRACES / f"{job.name}.trace", job.name, job.tenant_class).memory_bytes
        yield [
            job.name,
            "production" if job.tenant_class is TenantClass.production else "opportunistic",
            "yes" if job.name in RATES else "no",
            f"{alone.busy:.4g}",
            f"{alone.sm_activity:.4g}",
            str(memory),
            str(SERVICE_WEIGHTS.get(job.name, 0)),
        ]


def pair_rows(seen: list[Observation]) -> Iterator[list[str]]:
    yield ["sharing", "kind", "class", "beside", "beside_class", "slowdown", "predicted"]
    measured = {(one.name, one.pair.mode): one for one in seen}
    above, below = (
        [production_job(name) for name in SERVING],
        [opportunistic_job(name) for name in CROWD_STEPS],
    )
    for sharing in SHARING:
        for job in above:
            for other in below:
                name = f"{job.name}+{other.name}"
                pair = simulated(job, other, sharing)
                said = Model(one for one in seen if one.name != name).predict(pair)
                true = measured.get((name, sharing))
                slowdown, share = (true.slowdown, true.share) if true else (pair.slowdown, pair.share)
                yield line(sharing, job, other, slowdown, said.slowdown)
                yield line(sharing, other, job, 1 / share, said.other_slowdown)
        for group in (above, below):
            for place, job in enumerate(group):
                for other in group[place:]:
                    yield from equals(sharing, job, other)


def equals(sharing: str, one: Job, two: Job) -> Iterator[list[str]]:
    """Two of a class: nothing of such pairs was learned, so what is predicted is what is simulated."""
    if (one.name, two.name) in MEASURED:
        slowdown = MEASURED[one.name, two.name]
        yield line(sharing, one, two, slowdown, slowdown)
        return
    twin = dataclasses.replace(two, name=f"{two.name}-2") if one.name == two.name else two
    outcome = Study(Workload("equals", (one, twin)), seconds=20.0, seed=1).run(POLICIES[sharing])
    for job, other, seen in ((one, two, outcome.tenants[0]), (two, one, outcome.tenants[1])):
        is_production = job.tenant_class is TenantClass.production
        slowdown = seen.service_slowdown if is_production else 1 / seen.share
        yield line(sharing, job, other, slowdown, slowdown)
        if one.name == two.name:
            break


def line(sharing: str, job: Job, beside: Job, slowdown: float, predicted: float) -> list[str]:
    return [
        sharing,
        job.name,
        job.tenant_class.name,
        beside.name,
        beside.tenant_class.name,
        f"{max(1.0, slowdown):.4g}",
        f"{max(1.0, predicted):.4g}",
    ]


def main() -> None:
    seen = observed()
    with (CLUSTER / "predict" / "h200.csv").open("w") as file:
        file.write("# Measured on an H200, beside what is simulated; by bench/simulator/kinds.py.\n")
        observations.write(seen, file)
    for name, rows in (("kinds.csv", kind_rows()), ("pairs.csv", pair_rows(seen))):
        with (CLUSTER / "simulation" / name).open("w") as file:
            file.write("# By bench/simulator/kinds.py.\n")
            csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
