"""Microsoft's Philly (ATC 2019): `cluster_job_log`, a JSON list with an object a job.

    jobid, submitted_time, attempts: [{start_time, end_time, detail: [{ip, gpus: [...]}]}]; the rest is unused

The run time is that of all attempts together; the number of GPUs is the last attempt's. Philly hands out whole GPUs.
Jobs that never ran, or whose last attempt has no end, are left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cotenant.cluster.logs.interface import LoggedJob, from_zero, moment_s
from cotenant.errors import USAGE, Problem

NAME = "philly"


def is_it(head: str) -> bool:
    return head.lstrip().startswith("[") and '"attempts"' in head


def read(path: Path) -> list[LoggedJob]:
    try:
        content = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise Problem(f"{path} cannot be read: {error}", "give Philly's cluster_job_log", USAGE) from None
    jobs = []
    for place, entry in enumerate(content if isinstance(content, list) else []):
        try:
            if job := read_job(entry):
                jobs.append(job)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            hint = "docs/cluster.md describes the logs"
            raise Problem(f"{path}, job {place + 1}: {type(error).__name__}: {error}", hint, USAGE) from None
    return from_zero(jobs, path)


def read_job(entry: Any) -> LoggedJob | None:
    seconds, gpus = 0.0, 0
    for attempt in entry["attempts"]:
        start, end = attempt.get("start_time"), attempt.get("end_time")
        if not start or not end or "None" in (start, end):
            return None
        seconds += max(0.0, moment_s(end) - moment_s(start))
        gpus = sum(len(machine["gpus"]) for machine in attempt["detail"])
    if not gpus or not seconds:
        return None
    return LoggedJob(str(entry["jobid"]), moment_s(entry["submitted_time"]), seconds, gpus)
