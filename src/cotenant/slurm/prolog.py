"""Slurm's task prolog: what it prints becomes the task's environment (`export NAME=value`, `unset NAME`).

It asks the controller for the job's QOS, partition, shards and comment: variables of these names could be the user's.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from cotenant.classes import TenantClass
from cotenant.errors import Problem
from cotenant.launch import environment, job_name, python_path
from cotenant.slurm.rules import Rule, Rules, SlurmJob, rule_for

FOLDERS = "/usr/local/bin:/usr/bin:/bin:/opt/slurm/bin"
SECONDS_TO_ANSWER = 20
FORMAT = "%q|%P|%b|%k"  # QOS, partition, gres, comment: the comment is last, since it may have a bar in it
SHARDS = re.compile(r"\bshard(?::[A-Za-z][^:,]*)?(?::(\d+))?(?=,|\(|$)")  # gres:gpu:1,shard:20


def lines(inherited: Mapping[str, str], rules: Rules) -> list[str]:
    """For this task; none where its job is no tenant. Raises Problem."""
    job = asked_of_slurm(inherited, rules.squeue)
    rule = rule_for(job, rules)
    if rule is None:
        return []
    try:
        after = tenant_environment(inherited, job, rule, rules.segment)
    except environment.NotShared as reason:
        raise Problem(reason.message, reason.hint) from None
    return changes(inherited, after)


def asked_of_slurm(inherited: Mapping[str, str], program: str) -> SlurmJob:
    id = inherited.get("SLURM_JOB_ID", "")
    if not id:
        raise Problem("SLURM_JOB_ID is not set", "name this program in slurm.conf: TaskProlog=...")
    squeue = shutil.which(program, path=FOLDERS)  # not by PATH, which is the user's
    if squeue is None:
        raise Problem(f"there is no {program}", 'name it in the rules: squeue = "/opt/slurm/bin/squeue"')
    try:
        done = subprocess.run(
            [squeue, "--noheader", "--jobs", id, "--format", FORMAT],
            env=dict(inherited),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS_TO_ANSWER,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Problem(f"squeue does not answer: {error}", "see slurmctld's log") from None
    answer = done.stdout.partition("\n")[0]
    if done.returncode or answer.count("|") < 3:
        raise Problem(f"squeue does not know job {id}: {done.stderr.strip()[:200]}", "see slurmctld's log")
    qos, partition, gres, comment = (word.strip() for word in answer.split("|", 3))
    comment = "" if comment == "(null)" else comment
    name = inherited.get("SLURM_JOB_NAME", "")
    return SlurmJob(
        id, name, qos, partition, comment, sum(int(number or 1) for number in SHARDS.findall(gres))
    )


def tenant_environment(
    inherited: Mapping[str, str], job: SlurmJob, rule: Rule, segment: str
) -> dict[str, str]:
    """As `cotenant run` makes it; all tasks of a job are one run."""
    after = environment.of_command(
        environment.of_no_tenant(inherited),
        rule.tenant_class.name,
        Path(segment) if segment else None,
        job_name.of_command([f"{job.name or 'job'}.{job.id}"]),
    )
    cluster = inherited.get("SLURM_CLUSTER_NAME", "")
    after["COTENANT_RUN_ID"] = hashlib.sha256(os.fsencode(f"{cluster} {job.id}")).hexdigest()[:32]
    promises = (
        ("COTENANT_WEIGHT", rule.weight),
        ("COTENANT_SLOWDOWN", rule.slowdown),
        ("COTENANT_FLOOR", rule.floor),
        ("COTENANT_MEMORY", rule.memory),
    )
    for name, value in promises:
        if value:
            after[name] = value
    if rule.tenant_class is TenantClass.opportunistic:
        python_path.add_helper(after)
    return after


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    found = []
    for name in sorted(after):
        if after[name] != before.get(name):
            if "\n" in after[name]:
                raise Problem(f"{name} has a line break in it", "Slurm cannot set it")
            found.append(f"export {name}={after[name]}")
    return found + [f"unset {name}" for name in sorted(before) if name not in after]
