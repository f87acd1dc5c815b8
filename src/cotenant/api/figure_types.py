"""A figure is a field, under the name that `status -o json` gives it. `make figures` writes this file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TenantFigures:
    """Of one tenant."""

    pid: int
    """The process, as its own PID namespace numbers it."""
    job: str
    """The name of its `cotenant run`: `--name`, else its script or program."""
    class_: str
    """`production`, `standard` or `opportunistic`."""
    weight: float
    """Its weight among its equals."""
    unknown_functions: int
    """Driver functions that the program looked up and that Cotenant does not know."""
    run_id: str
    """The job's id: the same for all its processes."""
    program: str
    """The program's name."""
    process: int
    """The process: `pid`, or, of a lane (`cotenant.tenant`), the process that the lane is in."""
    lane: int
    """Its number among the lanes of its process; 0: it is the process's own."""
    uid: int
    """Its user."""
    time_slice_us: int
    """Its slice of the hardware; 0: not known."""
    export_tables: int
    """Tables of private driver functions that the program got."""
    ungated_graphs: int
    """Long graphs that could not be given gates inside."""
    checkpoints: int
    """Calls of the driver's checkpointing."""
    mps: str | None
    """The MPS daemon that its contexts live in; empty: contexts of its own. Jobs with the same one can
    overlap."""
    memory_limit: str | None
    """The most that it may allocate of each GPU: `20G`; of its run's limit and its user's the smaller."""
    host_bytes: int
    """What is evicted to the host now, of all GPUs."""
    evictions: int
    """How often its memory was evicted."""
    user: str
    """The user's name."""
    command: str | None
    """The job's command line, where it can be seen."""
    began_at: str | None
    """When the job began, as ISO 8601 has it."""
    slowdown: float | None
    """By how much it may be slowed down: 0.05 is 5 %."""
    floor: float
    """The share of the GPU that it gets at least."""
    sms: float
    """The share of a GPU's SMs that its kernels get; 0: all."""
    sms_refused: str | None
    """Why it cannot be given fewer SMs while it runs."""
    time_slice_refused: bool
    """Whether the driver refused its time slice."""
    grace_us: int
    """After so long without work it counts as idle."""
    mps_fault: int
    """The CUDA error with which its MPS server failed; 0: none."""
    where: str
    """Its memory: `pinned` (it does not move), `resident`, `evicting`, `evicted`, `restoring`."""
    paused: bool
    """Whether it was evicted by hand."""
    evicted_for: str | None
    """Why its memory is on the host: `space` (other tenants need it), `limit` (its own), `pause` (by
    hand)."""
    wanted_bytes: int
    """GPU memory that it waits for."""
    saved_bytes: int
    """What evictions have copied to the host, ever."""
    dropped_bytes: int
    """What they did not copy, as the program had no use for it."""
    host_pinned_bytes: int
    """Host memory that it has pinned for them."""
    transfer_seconds: float
    """Its last eviction and restore, together."""
    refusal: str | None
    """Why it was not evicted when it last should have been."""


@dataclass(frozen=True, kw_only=True)
class OnGpuFigures:
    """Of one tenant on one GPU that it has used."""

    gpu: int
    """The GPU's number in the segment."""
    state: str
    """`busy`; `idle`; `gated`: its gate is closed, of a job that only copies the gate for copies; `evicted`:
    its memory is on the host (`evicted_for`); `paused`: evicted by hand; `evicting`, `restoring`: its memory
    is moving."""
    gpu_share: float | None
    """GPU time charged to it, of the time between the last two looks."""
    used_seconds: float
    """GPU time charged to it."""
    kernels: int
    """Kernels that it has launched."""
    graphs: int
    """Graphs that it has launched."""
    copies: int
    """Copies that it has launched."""
    gates: int
    """Gates that the interposer has put into its streams."""
    escaped: int
    """Work that reached the GPU without the gate that it should have passed."""
    uuid: str
    """The GPU's UUID."""
    in_flight_us: int
    """Work that is queued behind its gates and not known to be done."""
    memory_ops: int
    """Memsets and other operations on memory that it has launched."""
    host_calls: int
    """Host functions that it has put into streams."""
    bursts: int
    """How often it went from having no work to having some."""
    memory_bytes: int
    """What it has allocated of the GPU's memory."""
    driver_bytes: int
    """Of `memory_bytes`, contexts, modules and what else the driver allocated; measured only under a
    limit."""
    movable_bytes: int
    """Of `memory_bytes`, what can be evicted."""
    nvml_bytes: int | None
    """What NVML counts for the process. More than `memory_bytes`: the driver's own allocations in a job
    without a limit. Less: managed memory, or a graph not yet launched."""
    refused_allocations: int
    """What the memory limit did not allow."""
    preemptions: int
    """How often its gate was closed while it had work: for a higher class, after its turn, or by the
    policy."""
    wait_p50_us: float | None
    """Half of its waits for the GPU (`wait_seconds`) were shorter: of those that ended while this command
    looked, or of all since it began where those are fewer than 20."""
    wait_p99_us: float | None
    """99 % of its waits for the GPU (`wait_seconds`) were shorter: of those that ended while this command
    looked, or of all since it began where those are fewer than 20."""
    promise_kept: bool | None
    """Whether it gets what it was promised, as the daemon decided, which is sure when three looks a second
    apart agree; without a daemon: between the looks of this command."""
    promise_seconds: float | None
    """For how long its promise has been kept, or has been broken; where a daemon decided it."""
    share_asked: float | None
    """Its weight's share among the tenants of its class on this GPU that have work."""
    share_got: float | None
    """What it got of the GPU time that these got."""
    wait_us: float | None
    """How long its bursts waited for the GPU of late, on average; where they were timed."""
    has_work: bool
    """Whether it has work now."""
    gated: bool
    """Whether its gate is closed."""
    copies_gated: bool
    """Whether its gate for long copies between host and GPU is closed: a higher class copies."""
    below_floor: bool
    """Whether it has got less than its floor."""
    busy_seconds: float
    """How long it had work, also behind a closed gate."""
    sms_by_policy: float
    """The share of the SMs that the policy gives its kernels now; 0: all."""
    sms_now: int
    """How many SMs its kernels get now; 0: all."""
    detours: int
    """Kernels that were launched into so many."""
    undetoured: int
    """Kernels that were launched into all SMs meanwhile."""
    turn_us: int
    """How much it executes in a turn among equals; 0: it has taken none."""
    switch_us: int
    """What a switch to it from an equal costs; 0: none was measured."""
    timed_bursts: int
    """Bursts whose wait for the GPU was timed."""
    waited_seconds: float
    """The waits of these, together."""
    gap_seconds: float
    """How long its streams were empty inside bursts."""
    blocking_calls: int
    """Calls that wait for the GPU."""
    blocked_seconds: float
    """How long its threads waited for the GPU in calls, together."""
    operation_us: float | None
    """GPU time of one operation, lately."""
    operation_alone_us: float | None
    """The same when no other tenant was last at work."""


@dataclass(frozen=True, kw_only=True)
class GpuFigures:
    """Of one GPU."""

    clock_mhz: float | None
    """The SMs' clock, when the daemon last asked NVML."""
    highest_mhz: float | None
    """The highest that this GPU has."""
    power_w: float | None
    """What it draws."""
    power_limit_w: float | None
    """What it may draw."""
    throttled: bool | None
    """Whether something keeps its clock down."""
    slowed_by: tuple[str, ...]
    """What does: a list, as `power limit`."""
    seconds_ago: float | None
    """When the daemon asked."""
    in_words: str
    """All that in a sentence, or why it is not known."""
    outsiders: int | None
    """Processes that use the GPU and are no tenants of this segment, as NVML lists them: no class, limit or
    promise holds for them. Not known where NVML numbers processes as another PID namespace does."""
    outsider_pids: tuple[int, ...] | None
    """Their PIDs: a list."""
    outside_in_words: tuple[str, ...]
    """Who they are: sentences about the GPU."""
