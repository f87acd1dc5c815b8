"""SenseTime's Helios (SC 2021): `cluster_log.csv`, a line a job.

    job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue

`duration` is in seconds, moments are as 2020-04-01 00:04:03. Helios hands out whole GPUs; jobs of the CPU alone
(gpu_num 0) are left out.
"""

from __future__ import annotations

from pathlib import Path

from cotenant.cluster.logs.interface import LoggedJob, from_zero, moment_s, number, rows, wrong

NAME = "helios"
COLUMNS = ("job_id", "gpu_num", "submit_time", "duration")


def is_it(head: str) -> bool:
    return {"job_id", "gpu_num", "submit_time"} <= set(head.partition("\n")[0].strip().split(","))


def read(path: Path) -> list[LoggedJob]:
    jobs = []
    for line, row in rows(path, COLUMNS):
        try:
            gpus, seconds = int(number(row["gpu_num"])), number(row["duration"])
            at_s = moment_s(row["submit_time"])
        except ValueError as error:
            raise wrong(path, line, str(error)) from None
        if gpus and seconds:
            jobs.append(LoggedJob(row["job_id"], at_s, seconds, gpus))
    return from_zero(jobs, path)
