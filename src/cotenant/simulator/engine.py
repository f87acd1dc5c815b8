"""One GPU with its jobs under one controller: the engine runs, the controller is ticked in virtual time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cotenant.errors import Problem
from cotenant.policies import border, interface
from cotenant.segment.wire import (
    DEFAULT_GATE_EVERY_US,
    DEFAULT_GRACE_US,
    DEFAULT_IN_FLIGHT_US,
    DEFAULT_TURN_US,
)
from cotenant.simulator import native
from cotenant.simulator.machine import SimulatedGpu
from cotenant.simulator.results import Times
from cotenant.simulator.workload import ArrivalKind, Job, Program, program_of

Progress = Callable[[float], None]  # told the virtual time in seconds, at each tick

URGENT, NOT_URGENT = 0, 1


@dataclass(frozen=True, slots=True)
class Recording:
    """What is kept of a run beside its figures."""

    timeline_places: int = 0  # the SMs of each tenant over time, in so many places
    timeline_s: float | None = None  # of the middle of the run; None: all of it
    most_spans: int = 0  # single operations, the first so many

    def timeline_of(self, seconds: float) -> tuple[float, float]:
        """Where the timeline begins, and how long it is, in seconds."""
        length = seconds if self.timeline_s is None else min(self.timeline_s, seconds)
        return (seconds - length) / 2, length


@dataclass(frozen=True, slots=True)
class Ran:
    """What the engine has counted, as it comes."""

    tenants: Sequence[Any]  # native.Tenant
    gpu: Any  # native.Gpu
    latencies: list[Times]
    services: list[Times]
    timelines: list[tuple[float, ...]]
    spans: list[Any]  # native.Span


class Engine:
    def __init__(
        self,
        gpu: SimulatedGpu,
        jobs: Sequence[Job],
        policy: type[interface.Policy],
        seconds: float,
        seed: int,
        recording: Recording,
    ) -> None:
        self._gpu, self._jobs, self._seconds = gpu, jobs, seconds
        self._policy, self._controller = policy, made(policy)
        self._lib = native.library()
        self._recording = recording
        machine = machine_record(gpu, policy)
        mps_daemon = int(policy.sharing == "together")
        self._declared = [as_declared(number, job, mps_daemon) for number, job in enumerate(jobs)]
        begin, length = recording.timeline_of(seconds)
        self._handle = self._lib.cotenant_sim_new(
            ctypes.byref(machine), recording.timeline_places, begin * 1e6, length * 1e6, recording.most_spans
        )
        if not self._handle:
            raise Problem("there is not enough memory for the simulation", "lower the number of jobs")
        self._programs: list[tuple[Program, int]] = []
        for job in jobs:
            self._add(job, seed)
        self._views = (native.Tenant * len(jobs))()
        self._tenant_knobs = (native.TenantKnobs * len(jobs))()
        self._set_knobs: list[interface.TenantKnobs | None] = [None] * len(jobs)  # what is written there
        self._failure: BaseException | None = None

    def close(self) -> None:
        if self._handle:
            self._lib.cotenant_sim_delete(self._handle)
            self._handle = None

    def run(self, progress: Progress | None = None) -> Ran:
        def tick(_: object) -> int:
            try:
                self._tick(progress)
                return 1
            except BaseException as failure:  # it must not cross the C frames: raised again below
                self._failure = failure
                return 0

        every_us = self._policy.every_ms * 1000
        status = self._lib.cotenant_sim_run(
            self._handle, self._seconds * 1e6, every_us, native.Tick(tick), None
        )
        if isinstance(self._failure, Problem | KeyboardInterrupt):
            raise self._failure
        if self._failure is not None:
            raise failed(self._policy, self._failure) from self._failure
        if status:
            raise Problem("the simulation ran out of memory", "shorten it, or lower the number of jobs")
        return self._collect()

    # ---- jobs in ----------------------------------------------------------------------------------------------------

    def _add(self, job: Job, seed: int) -> None:
        record = job_record(job, seed)
        record.program = self._program(program_of(job, self._gpu, seed))
        at = np.ascontiguousarray(np.array(job.arrivals.at_s, dtype=np.float64) * 1e6)
        if self._lib.cotenant_sim_add_tenant(self._handle, ctypes.byref(record), at.ctypes.data, len(at)) < 0:
            raise Problem("there is not enough memory for the simulation", "lower the number of jobs")

    def _program(self, program: Program) -> int:
        """A recorded trace that several jobs run is held once."""
        for known, number in self._programs:
            if known is program:
                return number
        ops = np.ascontiguousarray(program.ops)
        ends = np.ascontiguousarray(program.request_ends, dtype=np.uint32)
        number = self._lib.cotenant_sim_add_program(
            self._handle, ops.ctypes.data, len(ops), ends.ctypes.data, len(ends)
        )
        if number < 0:
            raise Problem("there is not enough memory for the simulation", "shorten the trace")
        self._programs.append((program, int(number)))
        return int(number)

    # ---- ticks ------------------------------------------------------------------------------------------------------

    def _tick(self, progress: Progress | None) -> None:
        about = native.Gpu()
        self._lib.cotenant_sim_gpu(self._handle, ctypes.byref(about))
        self._lib.cotenant_sim_tenants(self._handle, self._views)
        view = interface.View(
            now_us=about.now_us,
            tenants=[
                seen_tenant(declared, seen)
                for declared, seen in zip(self._declared, self._views, strict=True)
                if seen.is_here
            ],
            sms=self._gpu.sms,
            memory_bytes=self._gpu.memory_bytes,
        )
        self._set(border.knobs(self._controller.tick(view)))
        if progress is not None:
            progress(about.now_us / 1e6)

    def _set(self, knobs: interface.Knobs) -> None:
        record = native.Knobs(
            int(knobs.rule),
            0,
            _or(knobs.gate_every_us, DEFAULT_GATE_EVERY_US),
            _or(knobs.in_flight_us, DEFAULT_IN_FLIGHT_US),
            _or(knobs.turn_us, DEFAULT_TURN_US),
            (ctypes.c_float * native.PARAMETERS)(*knobs.parameters),
        )
        for number in range(len(self._jobs)):
            of = knobs.tenants.get(number, NO_KNOBS)
            if of is self._set_knobs[number]:
                continue
            self._set_knobs[number] = of
            into = self._tenant_knobs[number]
            into.shut, into.tolerant = of.shut, of.tolerant
            # The engine takes 0 for "no limit"; a rate of nothing at all is a very small one.
            into.rate = 0 if of.rate is None else max(of.rate, 1e-6)
            into.sm_share = 1 if of.sm_share is None else min(1.0, max(0.0, of.sm_share))
            into.slice_us = 0 if of.time_slice_us is None else max(1.0, of.time_slice_us)
            into.rank, into.lane = of.rank, of.lane
        self._lib.cotenant_sim_set_knobs(self._handle, ctypes.byref(record), self._tenant_knobs)

    # ---- results out ------------------------------------------------------------------------------------------------

    def _collect(self) -> Ran:
        lib, handle = self._lib, self._handle
        about = native.Gpu()
        lib.cotenant_sim_gpu(handle, ctypes.byref(about))
        lib.cotenant_sim_tenants(handle, self._views)
        spans = (native.Span * about.spans)()
        lib.cotenant_sim_spans(handle, spans)
        return Ran(
            tenants=list(self._views),
            gpu=about,
            latencies=[self._times(number, False) for number in range(len(self._jobs))],
            services=[self._times(number, True) for number in range(len(self._jobs))],
            timelines=[self._timeline(number) for number in range(len(self._jobs))],
            spans=list(spans),
        )

    def _times(self, number: int, of_service: bool) -> Times:
        counts = np.zeros(native.HISTOGRAM_PLACES, dtype=np.uint64)
        self._lib.cotenant_sim_histogram(self._handle, number, int(of_service), counts.ctypes.data)
        which, seen = ("service" if of_service else "latency"), self._views[number]
        count = getattr(seen, f"{which}_count")
        return Times(
            count=count,
            mean_us=getattr(seen, f"{which}_sum_us") / count if count else float("nan"),
            least_us=getattr(seen, f"{which}_least_us"),
            most_us=getattr(seen, f"{which}_most_us"),
            counts=tuple((int(place), int(counts[place])) for place in counts.nonzero()[0]),
        )

    def _timeline(self, number: int) -> tuple[float, ...]:
        places = np.zeros(self._recording.timeline_places, dtype=np.float32)
        self._lib.cotenant_sim_timeline(self._handle, number, places.ctypes.data)
        return tuple(places.tolist())


NO_KNOBS = interface.TenantKnobs()


def made(policy: type[interface.Policy]) -> interface.Policy:
    try:
        return policy()
    except Exception as error:
        raise failed(policy, error) from error


def failed(policy: type[interface.Policy], error: BaseException) -> Problem:
    what = f"the policy '{policy.name}' failed: {border.shown(error)}"
    return Problem(what, "it is told a View and answers with Knobs: see docs/policies.md")


def _or(value: float | None, default: float) -> float:
    return default if value is None else float(value)


def machine_record(gpu: SimulatedGpu, policy: type[interface.Policy]) -> native.Machine:
    costs = gpu.interference
    return native.Machine(
        sms=gpu.sms,
        together=policy.sharing == "together",
        priorities=policy.priorities,
        holds_memory=policy.rule is not interface.Rule.lanes,
        memory_gbps=gpu.memory_gbps,
        slice_us=gpu.slice_us,
        launch_us=gpu.launch_us,
        memory_bytes=gpu.memory_bytes,
        grace_us=DEFAULT_GRACE_US,
        drain_us=gpu.switch_us if costs.drain_us is None else costs.drain_us,
        cut_us=costs.cut_us,
        cold_us=costs.cold_us,
        kill_us=costs.kill_us,
        gate_us=costs.gate_us,
        open_us=costs.open_us,
        keep_us=costs.keep_us,
        tail=costs.tail,
        blocks=costs.blocks,
        together_tax=costs.together_tax,
        contention=costs.contention,
        watch_us=costs.watch_us,
        clock_us=costs.clock_us,
        look_us=costs.look_us,
    )


def job_record(job: Job, seed: int) -> native.Job:
    rate = job.arrivals.rate
    return native.Job(
        tenant_class=int(job.tenant_class),
        priority=URGENT if job.tenant_class == 0 else NOT_URGENT,
        arrivals=int(job.arrivals.kind),
        waits_for_request=job.waits,
        is_recorded=job.program is not None and job.arrivals.kind is ArrivalKind.closed,
        requests=job.requests,
        every_us=1e6 / rate if rate > 0 else 0,
        burst_us=job.arrivals.burst_s * 1e6,
        pause_us=job.arrivals.pause_s * 1e6,
        think_least_us=job.think_ms[0] * 1e3,
        think_most_us=job.think_ms[1] * 1e3,
        spread=job.spread,
        request_spread=job.request_spread,
        begins_us=job.begins_s * 1e6,
        run_ahead_us=job.run_ahead_us,
        weight=job.weight,
        floor=job.floor,
        clock=job.clock,
        persistent_bytes=job.memory_bytes,
        ephemeral_bytes=job.ephemeral_bytes,
        # By the name, so that a job alone sees the same arrivals as beside others.
        seed=hash_of(f"{seed} {job.gpu or 0} {job.name}"),
    )


def hash_of(text: str) -> int:
    """The same in every process, as `hash` is not."""
    import hashlib

    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def as_declared(number: int, job: Job, mps_daemon: int) -> dict[str, Any]:
    """What a tenant says of itself at every tick alike, with a default for what it says anew each time."""
    return dict(
        vars(
            interface.Tenant(
                id=number,
                tenant_class=job.tenant_class,
                weight=job.weight,
                slowdown=job.slowdown,
                floor=job.floor,
                mps_daemon=mps_daemon,
                share_request=job.share_request,
                share_limit=job.share_limit,
                trains=job.trains,
                persistent_bytes=job.memory_bytes,
                ephemeral_bytes=job.ephemeral_bytes,
            )
        )
    )


def seen_tenant(declared: dict[str, Any], seen: Any) -> interface.Tenant:
    # As Tenant(...) would do it, in a third of the time.
    tenant = interface.Tenant.__new__(interface.Tenant)
    about = tenant.__dict__
    about.update(declared)
    about["has_work"] = seen.has_work != 0
    about["is_held"] = seen.is_held != 0
    about["used_us"] = seen.used_us
    about["busy_us"] = seen.busy_us
    about["gap_us"] = seen.gap_us
    about["blocked_us"] = seen.blocked_us
    about["blocking_calls"] = seen.blocking_calls
    about["own_cpu_us"] = seen.own_cpu_us
    about["asleep_us"] = seen.asleep_us
    about["operations"] = seen.operations
    about["bursts"] = seen.bursts
    about["in_flight_us"] = seen.in_flight_us
    about["sm_us"] = seen.sm_us
    about["requests"] = seen.requests
    about["request_us"] = seen.latency_sum_us
    about["alone_us"] = seen.alone_us
    about["remaining_us"] = seen.remaining_us
    about["in_request"] = seen.in_request != 0
    about["arrived_us"] = seen.begun_us
    return tenant
