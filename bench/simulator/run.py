"""How fast is the simulator? Operations a second of one core, beside simpy on the same model, and a cluster.

pip install simpy     # for the comparison; without it the rest is measured
python bench/simulator/run.py
"""

from __future__ import annotations

import importlib.util
import resource
import time
from collections.abc import Sequence

from cotenant.simulator import (
    ArrivalKind,
    Arrivals,
    Job,
    Op,
    Outcome,
    Study,
    TenantClass,
    Workload,
    find_workload,
)

KERNELS, KERNEL_US, RATE, OTHER_US = 50, 20.0, 300.0, 30.0
WANTED_OPERATIONS, WANTED_RATIO = 2e6, 20.0


def pair(seconds: float) -> Workload:
    serving = Job(
        "serving", ops=(Op(us=KERNEL_US, repeat=KERNELS),), arrivals=Arrivals(ArrivalKind.poisson, rate=RATE)
    )
    training = Job(
        "training", TenantClass.opportunistic, (Op(us=OTHER_US, repeat=100),), waits=False, trains=True
    )
    return Workload("pair", (serving, training), seconds=seconds)


def measured(workload: Workload, policy: str) -> tuple[Outcome, float]:
    """The best of three: the machine may be busy with something else."""
    study = Study(workload)
    for job in workload.jobs:
        study.alone(job)
    outcomes = [study.run(policy) for _ in range(3)]
    return outcomes[0], min(outcome.wall_seconds for outcome in outcomes)


def quantile(values: Sequence[float], part: float) -> float:
    return sorted(values)[int(part * (len(values) - 1))]


def compare_with_simpy() -> None:
    import simpy_model

    begin = time.perf_counter()
    other = simpy_model.simulate(simpy_model.Pair(KERNELS, KERNEL_US, RATE, OTHER_US, seconds=5.0))
    wall = time.perf_counter() - begin
    ours, our_wall = measured(pair(5.0), "strict")
    ratio = (ours.operations / our_wall) / (other.operations / wall)
    print("simpy on the same model, 5 s simulated")
    for name, p50, p99, work, operations, took in (
        (
            "ours",
            ours.tenants[0].latency.p50_us,
            ours.tenants[0].latency.p99_us,
            ours.tenants[1].work_us,
            ours.operations,
            our_wall,
        ),
        (
            "simpy",
            quantile(other.latencies_us, 0.5),
            quantile(other.latencies_us, 0.99),
            other.other_work_us,
            other.operations,
            wall,
        ),
    ):
        print(
            f"  {name:6} production p50 {p50 / 1000:.2f} ms, p99 {p99 / 1000:.2f} ms; other's work "
            f"{work / 5e6:.0%}; {operations / took / 1e6:.2f} million operations a second"
        )
    print(f"  {ratio:.0f} times as fast; wanted: {WANTED_RATIO:g}")


def main() -> None:
    print("two tenants under strict")
    for seconds in (5.0, 20.0, 80.0):
        outcome, wall = measured(pair(seconds), "strict")
        speed = outcome.operations / wall
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"  {seconds:5g} s simulated: {outcome.operations:>10,} operations in {wall:6.3f} s, "
            f"{speed / 1e6:6.1f} million a second, {memory:.0f} MiB"
        )
    print(f"  wanted: {WANTED_OPERATIONS / 1e6:g} million a second")

    if importlib.util.find_spec("simpy") is None:
        print("simpy is not installed: no comparison")
    else:
        compare_with_simpy()

    cluster = find_workload("cluster")
    begin = time.perf_counter()
    outcome = Study(cluster).run("strict")
    print(
        f"{len(outcome.tenants)} tenants on {len(outcome.gpus)} GPUs, {outcome.seconds:g} s simulated: "
        f"{time.perf_counter() - begin:.1f} s, {outcome.operations:,} operations"
    )
    for policy in ("mps", "orion", "guard"):
        outcome, wall = measured(pair(20.0), policy)
        print(f"{policy:6} {outcome.operations / wall / 1e6:6.1f} million operations a second")


if __name__ == "__main__":
    main()
