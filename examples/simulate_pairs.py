"""Which policy suits my two jobs? A service of short requests beside a training job, under five policies.

python examples/simulate_pairs.py
"""

from __future__ import annotations

from cotenant.simulator import ArrivalKind, Arrivals, Job, Op, Study, TenantClass, Workload

# A request is 60 kernels of 25 us that fill 80 % of the GPU; the CPU needs 6 us to launch each.
serving = Job(
    name="serving",
    tenant_class=TenantClass.production,
    ops=(Op(us=25, sms=0.8, gbps=0.3, gap_us=6, repeat=60),),
    arrivals=Arrivals(ArrivalKind.poisson, rate=150),
)
# A training step is 300 kernels of 0.2 ms in the mean, launched ahead of the GPU.
training = Job(
    name="training",
    tenant_class=TenantClass.opportunistic,
    ops=(Op(us=200, sigma=0.8, gbps=0.4, gap_us=10, repeat=300, block_us=50),),
    trains=True,
    waits=False,
)


def main() -> None:
    study = Study(Workload("my pair", (serving, training)), gpu="h200", seconds=20)
    print(f"{'policy':12} {'p50, ms':>8} {'p99, ms':>8} {'x alone':>9} {'training':>9}")
    for policy in ("timeslice", "mps", "orion", "strict", "guard"):
        outcome = study.run(policy)
        service, harvest = outcome.tenants
        print(
            f"{policy:12} {service.latency.p50_us / 1000:8.2f} {service.latency.p99_us / 1000:8.2f} "
            f"{service.slowdown_p99:8.2f}x {harvest.share:9.0%}"
        )


if __name__ == "__main__":
    main()
