"""Alibaba's cluster-trace-gpu-v2020 (NSDI 2022): `pai_task_table.csv`, a line a task, without a header.

    job_name, task_name, inst_num, status, start_time, end_time, plan_cpu, plan_mem, plan_gpu, gpu_type

Times are in seconds; `plan_gpu` is in percent of a GPU for each of the `inst_num` instances (50 is half a GPU, 200 is
two). The log has no submission, so a task comes when it started. Tasks without GPU, and tasks that have not ended, are
left out.
"""

from __future__ import annotations

import math
from pathlib import Path

from cotenant.cluster.logs.interface import LoggedJob, from_zero, number, rows, wrong

NAME = "alibaba2020"
COLUMNS = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
TASK_STATES = ("Terminated", "Failed", "Running", "Waiting", "Interrupted")


def is_it(head: str) -> bool:
    first = head.partition("\n")[0].strip().split(",")
    return first == list(COLUMNS) or (len(first) == len(COLUMNS) and first[3] in TASK_STATES)


def read(path: Path) -> list[LoggedJob]:
    jobs = []
    for line, row in rows(path, COLUMNS, has_header=False):
        if row["job_name"] == "job_name":  # a copy with the header in it
            continue
        try:
            plan = number(row["plan_gpu"] or "0") / 100
            if not plan or not row["start_time"] or not row["end_time"]:
                continue
            begin, end = number(row["start_time"]), number(row["end_time"])
            instances = max(1, int(number(row["inst_num"] or "1")))
        except ValueError as error:
            raise wrong(path, line, str(error)) from None
        if end > begin > 0:
            each = math.ceil(plan - 1e-9)
            name = f"{row['job_name']}/{row['task_name']}"
            jobs.append(LoggedJob(name, begin, end - begin, instances * each, plan / each))
    return from_zero(jobs, path)
