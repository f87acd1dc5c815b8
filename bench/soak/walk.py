"""Random actions on jobs that share a GPU. Which comes next depends on the seed alone: never on what a job answered, or
when. So a seed repeats a walk, as far as the machine's timing allows."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import accounts
from jobs import Job

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.policies import registry
from cotenant.tenants import jobs as tenants

MIB = 1 << 20
MOST_JOBS = 6
CLASSES = tuple(one.name for one in TenantClass)
POLICIES = ("strict", "guard", "fair", "timeslice", "none", "gemini")
CRASHES = ("segv", "abort", "_exit", "exit")


class Walk:
    def __init__(self, seed: int, folder: Path, program: Path, env: dict[str, str]) -> None:
        self.chance = random.Random(seed)
        self.folder, self.program, self.env = folder, program, env
        self.path = folder / "segment"
        self.jobs: list[Job] = []
        self.started = 0
        self.done: Counter[str] = Counter()
        self.harm: list[str] = []
        self.residents: list[Job] = []
        self.actions: list[tuple[int, str, Callable[[], str]]] = [
            (6, "start", self.start_one),
            (30, "work", self.work),
            (5, "stop", self.stop_one),
            (3, "crash", self.crash),
            (3, "kill", self.kill),
            (5, "fork", self.fork),
            (8, "pause or resume", self.pause_or_resume),
            (6, "change class", self.change_class),
            (4, "change limit", self.change_limit),
            (4, "SIGSTOP or SIGCONT", self.stop_or_continue),
            (1, "change policy", self.change_policy),
            (1, "kill the daemon", self.kill_daemon),
        ]
        assert all(name in registry.names() for name in POLICIES)

    def start(self, tenant_class: str) -> Job:
        job = Job(self.started, tenant_class, self.program, self.env, self.folder)
        self.started += 1
        self.jobs.append(job)
        return job

    def act(self) -> str:
        """Does one thing; says which."""
        weights = [weight for weight, _, _ in self.actions]
        _, name, action = self.chance.choices(self.actions, weights)[0]
        said = action()
        if said:
            self.done[name] += 1
        return said

    def any_job(self) -> Job:
        return self.chance.choice(self.jobs)

    def any_guest(self) -> Job | None:
        """One that may end: the residents stay, to be looked at in the end."""
        guests = [job for job in self.jobs if job not in self.residents]
        return self.chance.choice(guests) if guests else None

    def free_to_answer(self, job: Job) -> None:
        """Waits until it has answered. Nobody may be stopped meanwhile: memory that a stopped job has stays its. And
        a job that has more than it may have waits on the host."""
        if job.unanswered:
            for one in self.jobs:
                if one.is_stopped:
                    one.go_on()
            if job.is_limited:
                self.limit(job, 0)
            job.hear()

    def tell(self, job: Job, line: str) -> str:
        if job.is_paused and job.unanswered:
            return ""
        self.free_to_answer(job)
        job.is_tenant |= line.startswith(("step", "queue", "add", "graph"))
        job.tell(line)
        return f"{job.name}: {line}"

    # --- the actions

    def start_one(self) -> str:
        tenant_class = self.chance.choice(CLASSES)
        if len(self.jobs) >= MOST_JOBS:
            return ""
        job = self.start(tenant_class)
        return f"{job.name} starts"

    def work(self) -> str:
        kernels, us = self.chance.randrange(1, 60), self.chance.choice((5, 50, 300, 2000))
        size = self.chance.choice((700, 64 << 10, 3 * MIB, 12 * MIB))
        line = self.chance.choice(
            (
                f"step {kernels} {us}",
                f"queue {kernels} {us}",
                f"add {size}",
                "give",
                "check",
                f"streams {kernels // 6}",
                f"graph {kernels}",
            )
        )
        return self.tell(self.any_job(), line)

    def leave(self, job: Job) -> None:
        self.jobs.remove(job)

    def ready_to_end(self, job: Job) -> None:
        if job.is_stopped:
            job.go_on()
        if job.is_paused and job.unanswered:
            self.pause(job, False)
        self.free_to_answer(job)

    def stop_one(self) -> str:
        job = self.any_guest()
        if not job:
            return ""
        self.ready_to_end(job)
        self.leave(job)
        assert job.process.stdin
        job.process.stdin.close()
        status = job.ended()
        if status:
            self.harm.append(f"{job.name} ended with {status}: {job.complaint()}")
        return f"{job.name} stops"

    def crash(self) -> str:
        way = self.chance.choice(CRASHES)
        job = self.any_guest()
        if not job or job.is_paused:
            return ""
        self.ready_to_end(job)
        self.leave(job)
        job.tell(f"crash {way}")
        status = job.ended()
        expected = {"segv": -signal.SIGSEGV, "abort": -signal.SIGABRT}.get(way, 7)
        if status != expected:
            self.harm.append(
                f"{job.name} ended with {status} instead of {expected} by {way}: {job.complaint()}"
            )
        return f"{job.name} crashes: {way}"

    def kill(self) -> str:
        job = self.any_guest()
        if not job:
            return ""
        self.leave(job)
        job.kill()
        return f"{job.name} is killed"

    def fork(self) -> str:
        return self.tell(self.any_job(), f"fork {self.chance.randrange(2)}")

    def ask(self, job: Job, wanted: dict[str, int]) -> None:
        """Of a tenant; one that has not used the GPU has no slot, and is passed over."""
        tenants.ask(self.path, {job.pid: wanted})

    def pause(self, job: Job, pause: bool) -> None:
        job.is_paused = pause
        self.ask(job, {"pause": int(pause)})

    def limit(self, job: Job, limit: int) -> None:
        job.is_limited = limit != 0
        self.ask(job, {"memory": limit})

    def pause_or_resume(self) -> str:
        job = self.any_job()
        # One that is stopped may not have come to its first work.
        if not job.is_tenant or (job.is_stopped and job.unanswered):
            return ""
        # It is asked once it is there: a request to nobody is lost.
        if not accounts.eventually(lambda: job.pid in accounts.taken(self.path)):
            self.harm.append(f"{job.name} has no slot: {job.complaint()}")
            return ""
        self.pause(job, not job.is_paused)
        return f"{job.name} is {'paused' if job.is_paused else 'resumed'}"

    def change_class(self) -> str:
        tenant_class, job = self.chance.choice(list(TenantClass)), self.any_job()
        self.ask(job, {"tenant_class": int(tenant_class)})
        return f"{job.name} becomes {tenant_class.name}"

    def change_limit(self) -> str:
        limit, job = self.chance.choice((0, 2 * MIB, 40 * MIB)), self.any_job()
        self.limit(job, limit)
        return f"{job.name} may have {limit} bytes"

    def stop_or_continue(self) -> str:
        job = self.any_job()
        if job.is_stopped:
            job.go_on()
        else:
            job.stop()
        return f"{job.name} is {'stopped' if job.is_stopped else 'continued'}"

    def change_policy(self) -> str:
        policy = self.chance.choice(POLICIES)
        segment.choose_policy(self.path, policy)
        return f"the policy is {policy}"

    def kill_daemon(self) -> str:
        pid = accounts.daemon(self.path)
        if pid is None:
            return ""
        os.kill(pid, signal.SIGKILL)
        return f"the daemon {pid} is killed"

    # --- looking

    def settle(self) -> None:
        """Nobody is held; everybody has answered, and has what it wrote."""
        for job in self.jobs:
            if job.is_stopped:
                job.go_on()
        for job in self.jobs:
            if job.is_tenant:
                self.limit(job, 0)
                self.pause(job, False)
        for job in self.jobs:
            job.hear()
        for job in self.jobs:
            if job.is_tenant:
                job.tell("check")
        for job in self.jobs:
            job.hear()

    def look(self) -> None:
        """Slots are those of the living, and nothing is open where it should not be."""
        self.settle()
        # A job that has only made a context may have a slot, or none.
        wanted, living = {job.pid for job in self.jobs if job.is_tenant}, {job.pid for job in self.jobs}
        if not accounts.eventually(lambda: wanted <= accounts.taken(self.path) <= living):
            found = accounts.taken(self.path)
            missing = [f"{job.name}: {job.complaint()}" for job in self.jobs if job.pid in wanted - found]
            self.harm.append(f"slots left behind: {found - living or 'none'}; missing: {missing or 'none'}")
        for name in accounts.strange_files(accounts.processes(self.folder), self.folder):
            self.harm.append(f"{name} is open in a shared folder")
