"""`simulate`: a workload under a policy, each job also alone, and the outcome."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from cotenant.policies import interface, registry
from cotenant.simulator.engine import Engine, Ran, Recording
from cotenant.simulator.machine import SimulatedGpu, gpu_named
from cotenant.simulator.results import Alone, GpuOutcome, Outcome, Span, TenantOutcome
from cotenant.simulator.workload import Job, OpKind, Workload, check, draws, placed

Progress = Callable[[float], None]  # told the part that is done, 0 to 1


class Study:
    """Simulates one workload under many policies; what jobs do alone is simulated once."""

    def __init__(
        self,
        workload: Workload,
        gpu: SimulatedGpu | str = "h200",
        seconds: float | None = None,
        seed: int = 0,
        recording: Recording | None = None,
    ) -> None:
        self.workload = workload
        self.gpu = gpu_named(gpu) if isinstance(gpu, str) else gpu
        self.seconds = workload.seconds if seconds is None else seconds
        self.seed = seed
        self._recording = recording or Recording()
        self._alone: dict[Job, Alone] = {}
        check(workload, self.gpu)
        self._jobs = placed(workload)

    def run(self, policy: str | type[interface.Policy], progress: Progress | None = None) -> Outcome:
        controller = (
            registry.find(policy) if isinstance(policy, str) else registry.checked(policy, policy.__name__)
        )
        begin = time.perf_counter()
        tenants: list[TenantOutcome] = []
        gpus: list[GpuOutcome] = []
        spans: list[Span] = []
        left_out = 0
        for number, jobs in enumerate(self._jobs):
            if not jobs:
                gpus.append(GpuOutcome(0.0, 0.0, 0.0, 0, 0))
                continue

            def at(seconds: float, number: int = number) -> None:
                if progress is not None:
                    progress((number + seconds / self.seconds) / len(self._jobs))

            ran = self._on_gpu(jobs, controller, self._recording, at)
            gpus.append(self._gpu_outcome(ran))
            for i, job in enumerate(jobs):
                tenants.append(self._tenant_outcome(job, ran, i))
            spans += [
                Span(jobs[s.tenant].name, OpKind(s.kind).name, s.request, s.start_us, s.end_us)
                for s in ran.spans
            ]
            left_out += ran.gpu.spans_left_out
        return Outcome(
            workload=self.workload.name,
            policy=policy if isinstance(policy, str) else controller.name,
            gpu=self.gpu.name,
            seconds=self.seconds,
            seed=self.seed,
            tenants=tuple(tenants),
            gpus=tuple(gpus),
            wall_seconds=time.perf_counter() - begin,
            spans=tuple(spans),
            spans_left_out=left_out,
            timeline_span_s=self._recording.timeline_of(self.seconds),
        )

    def alone(self, job: Job) -> Alone:
        """The very same job: its name and its GPU are what its random numbers are drawn by, and one that begins late
        has less time. Where nothing is drawn, copies that begin together are alike."""
        key = job if draws(job) else replace(job, name="", gpu=0)
        if key not in self._alone:
            ran = self._on_gpu([job], registry.find("none"), Recording(), None)
            self._alone[key] = Alone(
                latency=ran.latencies[0],
                service=ran.services[0],
                work_us=ran.tenants[0].work_us,
                completion_s=completion_s(job, ran, 0),
            )
        return self._alone[key]

    def _on_gpu(
        self,
        jobs: list[Job],
        controller: type[interface.Policy],
        recording: Recording,
        progress: Callable[[float], None] | None,
    ) -> Ran:
        engine = Engine(self.gpu, jobs, controller, self.seconds, self.seed, recording)
        try:
            return engine.run(progress)
        finally:
            engine.close()

    def _gpu_outcome(self, ran: Ran) -> GpuOutcome:
        us = max(ran.gpu.now_us, 1e-9)
        return GpuOutcome(
            busy=ran.gpu.busy_us / us,
            sm_activity=ran.gpu.sm_us / us / self.gpu.sms,
            switching=ran.gpu.switch_us / us,
            switches=ran.gpu.switches,
            events=ran.gpu.events,
        )

    def _tenant_outcome(self, job: Job, ran: Ran, i: int) -> TenantOutcome:
        seen, alone = ran.tenants[i], self.alone(job)
        completion = completion_s(job, ran, i)
        return TenantOutcome(
            name=job.name,
            tenant_class=job.tenant_class,
            gpu=job.gpu or 0,
            latency=ran.latencies[i],
            service=ran.services[i],
            alone=alone,
            requests=seen.requests,
            unanswered=seen.unanswered,
            operations=seen.operations,
            work_us=seen.work_us,
            wasted_us=seen.wasted_us,
            sm_share=seen.sm_us / max(ran.gpu.now_us, 1e-9) / self.gpu.sms,
            share=share(seen.work_us, completion, alone),
            completion_s=completion,
            preemptions=seen.preemptions,
            gates=seen.gates,
            bursts=seen.bursts,
            held_s=seen.held_us / 1e6,
            executed_s=seen.executed_us / 1e6,
            longest_wait_s=seen.longest_wait_us / 1e6,
            timeline=ran.timelines[i],
        )


def share(work_us: float, completion: float | None, alone: Alone) -> float:
    """Of what it gets done alone; where it ends in both, of its speed alone. Not a number: it does nothing alone."""
    if completion and alone.completion_s:
        return alone.completion_s / completion
    return work_us / alone.work_us if alone.work_us else math.nan


def completion_s(job: Job, ran: Ran, i: int) -> float | None:
    ended = ran.tenants[i].ended_us
    return None if math.isinf(ended) else ended / 1e6 - job.begins_s


def simulate(
    workload: Workload | str,
    policy: str | type[interface.Policy] = "guard",
    gpu: SimulatedGpu | str = "h200",
    seconds: float | None = None,
    seed: int = 0,
    recording: Recording | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """One workload (a Workload, a shipped one's name, or a file) under one policy. Deterministic for a seed."""
    from cotenant.simulator.workload_file import find_workload

    found = find_workload(workload) if isinstance(workload, str) else workload
    return Study(found, gpu, seconds, seed, recording).run(policy, progress)
