"""Alibaba's cluster-trace-gpu-v2023, called openb (ATC 2023): `openb_pod_list_*.csv`, a line a pod.

    name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time

Times are in seconds; `gpu_milli` is in thousandths of each of the pod's `num_gpu` GPUs. A pod of the class LS
(latency-sensitive) or Guaranteed is production, the others (Burstable, BE) are not. Pods without GPU are left out; a
pod ran from scheduled_time (where there is none, from its creation) to deletion_time.
"""

from __future__ import annotations

from pathlib import Path

from cotenant.cluster.logs.interface import LoggedJob, from_zero, number, rows, wrong

NAME = "openb"
COLUMNS = ("name", "num_gpu", "gpu_milli", "qos", "creation_time", "deletion_time", "scheduled_time")
PRODUCTION = ("LS", "Guaranteed")


def is_it(head: str) -> bool:
    return {"num_gpu", "gpu_milli", "creation_time"} <= set(head.partition("\n")[0].strip().split(","))


def read(path: Path) -> list[LoggedJob]:
    jobs = []
    for line, row in rows(path, COLUMNS):
        try:
            gpus, milli = int(number(row["num_gpu"])), number(row["gpu_milli"] or "0")
            created, deleted = number(row["creation_time"]), number(row["deletion_time"])
            begun = number(row["scheduled_time"]) if row["scheduled_time"] else created
        except ValueError as error:
            raise wrong(path, line, str(error)) from None
        if gpus and milli and deleted > begun:
            share = min(1.0, milli / 1000)
            jobs.append(
                LoggedJob(row["name"], created, deleted - begun, gpus, share, row["qos"] in PRODUCTION)
            )
    return from_zero(jobs, path)
