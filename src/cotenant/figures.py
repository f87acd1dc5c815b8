"""Every figure that a command shows of a tenant, of a tenant on one GPU and of a GPU: declared here, once.

`status` prints its tables, JSON and CSV from FIGURES, `explain` its JSON, `metrics` its families; figures_page.py makes
docs/figures.md of it. A figure is added by a row here. Its name ends in its unit where it has one, and is the same
everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from cotenant import classes, segment, units
from cotenant.tenants import jobs, sm_limit, waits
from cotenant.tenants.lately import NOTHING_KNOWN, UNKNOWN, Key, Lately, key_of

Read = Callable[[Any], Any] | str
NvmlBytes = Mapping[tuple[str, int], int]  # by GPU and process: what NVML counts
SCHEMA = 1  # of JSON and CSV: a figure that goes, or gets another name, unit or meaning, makes it another
NO_USE = segment.Use(-1, "", False, False, dict.fromkeys(segment.FIGURES, 0))


class Of(Enum):
    """What a figure belongs to."""

    tenant = "a tenant"
    on_gpu = "a tenant on a GPU"
    gpu = "a GPU"


class Width(Enum):
    """The narrowest form that has a figure; the wider ones have it too."""

    table = "all forms"
    wide = "wide, JSON, CSV"
    data = "JSON, CSV"


class Kind(Enum):
    """What a figure is to Prometheus (cotenant.metrics)."""

    counter = "counter"  # it only grows while its tenant lives
    histogram = "histogram"  # it is a Distribution
    gauge = "gauge"
    label = "label"  # of every series of what it belongs to
    text = "text"  # it changes: a gauge that is 1, with the text as a label
    unserved = "unserved"


class Distribution(NamedTuple):
    """How many there were of each size."""

    bounds: tuple[float, ...]  # of each bucket the upper one; the last has none
    counts: tuple[int, ...]
    sum: float


class OnGpu(NamedTuple):
    tenant: segment.Tenant
    use: segment.Use
    nvml_bytes: int | None = None
    lately: Lately = UNKNOWN


@dataclass(frozen=True)
class Figure:
    """`read` takes a Tenant, an OnGpu, or what gpus.states says of a GPU. None: not known, or nothing was set."""

    of: Of
    name: str
    unit: str
    help: str
    read: Callable[[Any], Any]
    heading: str = ""  # in a table, where it is not the name
    in_data: bool = True  # False: it only sums up others for a table
    width: Width = Width.data
    goes: int = 0  # of a table's columns that do not fit, the highest goes first; 0: stays
    kind: Kind = Kind.gauge

    @property
    def is_number(self) -> bool:
        return self.unit not in ("", "yes or no")

    @property
    def column(self) -> str:
        return (self.heading or self.name).upper()

    def cell(self, value: Any) -> str:
        if isinstance(value, float):
            shown = {"seconds": ".1f", "ratio": ".0%", "us": ".0f"}
            return format(value, shown.get(self.unit, "g"))
        return "" if value is None else str(value)


def at(width: Width, *figures: Figure) -> list[Figure]:
    return [replace(figure, width=width) for figure in figures]


def of_tenant(name: str, unit: str, help: str, read: Read = "", **more: Any) -> Figure:
    return Figure(Of.tenant, name, unit, help, reader(read or name, lambda tenant: tenant), **more)


def on_gpu(name: str, unit: str, help: str, read: Read = "", **more: Any) -> Figure:
    return Figure(Of.on_gpu, name, unit, help, reader(read or name, lambda here: here.use), **more)


def of_gpu(name: str, unit: str, help: str, **more: Any) -> Figure:
    return Figure(Of.gpu, name, unit, help, lambda state: state[name], **more)


def counted(name: str, help: str) -> Figure:
    """By the interposer, at each call."""
    return on_gpu(name, "count", help, lambda here: here.use.figures[name], kind=Kind.counter)


def between_looks(name: str, unit: str, help: str, **more: Any) -> Figure:
    """Of what happened between the last two looks."""
    return on_gpu(name, unit, help, lambda here: getattr(here.lately, name), **more)


def reader(read: Read, holder: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`read` as it is, or the attribute of this name; one in nanoseconds is told in seconds."""
    if not isinstance(read, str):
        return read
    if read.endswith("_ns"):
        return lambda seen: getattr(holder(seen), read) / 1e9
    return lambda seen: getattr(holder(seen), read)


def number_of_gpu(here: OnGpu) -> int | None:
    return None if here.use is NO_USE else here.use.gpu


def class_name(tenant: segment.Tenant) -> str:
    return classes.name_of(tenant.tenant_class)


def state(here: OnGpu) -> str:
    where = here.tenant.where
    if where in (segment.Where.evicting, segment.Where.restoring):
        return where.name
    if where == segment.Where.evicted:
        return "paused" if here.tenant.paused else "evicted"
    if here.use.held:
        return "gated"
    return "busy" if here.use.busy else "idle"


def thousandths(name: str) -> Callable[[segment.Tenant], float]:
    return lambda tenant: getattr(tenant, name) / 1000


def sms_by_policy(here: OnGpu) -> float:
    return here.use.sms / 1000 if here.use.sms_until_ns > segment.now_ns() else 0.0


def slowdown(tenant: segment.Tenant) -> float | None:
    return tenant.slowdown / 1000 or None


def promise(here: OnGpu) -> str:
    tenant, kept = here.tenant, here.lately.promise_kept
    if tenant.slowdown:
        promised = f"<{units.percent(tenant.slowdown)}"
    elif tenant.floor:
        promised = f">{units.percent(tenant.floor)}"
    else:
        return ""
    if kept is None:
        return promised
    seconds = here.lately.promise_seconds
    since = f" {units.age_shown(seconds)}" if seconds is not None else ""
    return f"{promised} kept" if kept else f"{promised} BROKEN{since}"


def share(here: OnGpu) -> str:
    """Among its equals, got and asked for."""
    if here.lately.share_asked is None:
        return ""
    got = "-" if here.lately.share_got is None else f"{100 * here.lately.share_got:.0f}"
    return f"{got}/{100 * here.lately.share_asked:.0f}%"


def memory(here: OnGpu) -> str:
    limit = here.tenant.memory_limit
    return units.size_shown(here.use.memory_bytes) + (f"/{units.limit_shown(limit)}" if limit else "")


def memory_limit(tenant: segment.Tenant) -> str | None:
    return units.limit_written(tenant.memory_limit) if tenant.memory_limit else None


def refusal(tenant: segment.Tenant) -> str | None:
    return tenant.refusal and tenant.refusal.text


class EvictedFor(Enum):
    """Why a tenant's memory is on the host, or on its way there."""

    pause = "it was paused by hand"
    limit = "its own memory limit"
    space = "other tenants need the space"


def evicted_for(tenant: segment.Tenant) -> EvictedFor | None:
    """None: it is not evicted. One that its own limit keeps away waits for no space (memory/mover.cpp)."""
    if tenant.where not in (segment.Where.evicted, segment.Where.evicting):
        return None
    if tenant.paused:
        return EvictedFor.pause
    is_evicted = tenant.where == segment.Where.evicted
    if tenant.memory_limit and tenant.host_bytes and is_evicted and not tenant.wanted_bytes:
        return EvictedFor.limit
    return EvictedFor.space


def cause_of_eviction(tenant: segment.Tenant) -> str | None:
    found = evicted_for(tenant)
    return found.name if found else None


def mps(tenant: segment.Tenant) -> str | None:
    return f"{tenant.mps_daemon & 0xFFFFFFFF:08x}" if tenant.mps_daemon else None


def waits_of(here: OnGpu) -> Distribution | None:
    if not here.use.wait_counts:
        return None
    bounds = tuple(bound / 1e6 for bound in waits.BOUNDS_US)
    return Distribution(bounds, here.use.wait_counts, here.use.wait_sum_ns / 1e9)


def operation_us(name: str) -> Callable[[OnGpu], float | None]:
    return lambda here: getattr(here.use, name) / 1000 or None


STATES = (
    "`busy`; `idle`; `gated`: its gate is closed, of a job that only copies the gate for copies; `evicted`: its memory "
    "is on the host (`evicted_for`); `paused`: evicted by hand; `evicting`, `restoring`: its memory is moving."
)
JOB = "The name of its `cotenant run`: `--name`, else its script or program."
GPU_SHARE = "GPU time charged to it, of the time between the last two looks."
SHARE = (
    "Among the tenants of its class on this GPU that have work: what it got, and after the slash what it should get by"
    " its weight."
)
PROMISE = (
    "`<5%`: it may be slowed down by 5 % at most; `>5%`: it gets at least 5 % of the GPU; `kept` or `BROKEN`: whether"
    " that is so (`promise_kept`), and for how long it has been broken; without a word: nothing was measured."
)
PROMISE_KEPT = (
    "Whether it gets what it was promised, as the daemon decided, which is sure when three looks a second apart agree;"
    " without a daemon: between the looks of this command."
)
PROMISE_SECONDS = "For how long its promise has been kept, or has been broken; where a daemon decided it."
MEMORY = "What it has allocated of the GPU's memory and, after the slash, what all processes of its run may allocate."
DRIVER_BYTES = (
    "Of `memory_bytes`, contexts, modules and what else the driver allocated; measured only under a limit."
)
NVML_BYTES = (
    "What NVML counts for the process. More than `memory_bytes`: the driver's own allocations in a job without a "
    "limit. Less: managed memory, or a graph not yet launched."
)
WAITS = (
    "How long it waited for the GPU with work of its own: at its closed gate, or, of a job that passes no gates, each"
    " burst whose start was timed."
)
OF_WAITS = (
    "of its waits for the GPU (`wait_seconds`) were shorter: of those that ended while this command looked, or of all"
    " since it began where those are fewer than 20."
)
MPS = "The MPS daemon that its contexts live in; empty: contexts of its own. Jobs with the same one can overlap."
OUTSIDERS = (
    "Processes that use the GPU and are no tenants of this segment, as NVML lists them: no class, limit or promise"
    " holds for them. Not known where NVML numbers processes as another PID namespace does."
)
FIGURES = (
    *at(
        Width.table,
        on_gpu("gpu", "number", "The GPU's number in the segment.", number_of_gpu, kind=Kind.label),
        of_tenant(
            "pid", "number", "The process, as its own PID namespace numbers it.", goes=6, kind=Kind.label
        ),
        of_tenant("job", "", JOB, kind=Kind.label),
        of_tenant(
            "class", "", "`production`, `standard` or `opportunistic`.", class_name, goes=4, kind=Kind.label
        ),
        on_gpu("state", "", STATES, state, kind=Kind.text),
        between_looks("gpu_share", "ratio", GPU_SHARE, heading="gpu%", goes=1, kind=Kind.unserved),
        on_gpu("share", "%", SHARE, share, in_data=False, goes=5, kind=Kind.unserved),
        on_gpu("promise", "", PROMISE, promise, in_data=False, goes=2, kind=Kind.unserved),
        on_gpu("memory", "bytes", MEMORY, memory, in_data=False, goes=3, kind=Kind.unserved),
    ),
    *at(
        Width.wide,
        of_tenant("weight", "number", "Its weight among its equals.", thousandths("weight")),
        on_gpu(
            "used_seconds",
            "seconds",
            "GPU time charged to it.",
            "used_ns",
            heading="used_s",
            kind=Kind.counter,
        ),
        counted("kernels", "Kernels that it has launched."),
        counted("graphs", "Graphs that it has launched."),
        counted("copies", "Copies that it has launched."),
        counted("gates", "Gates that the interposer has put into its streams."),
        counted("escaped", "Work that reached the GPU without the gate that it should have passed."),
        of_tenant(
            "unknown_functions",
            "count",
            "Driver functions that the program looked up and that Cotenant does not know.",
            heading="unknown",
            kind=Kind.counter,
        ),
        on_gpu("uuid", "", "The GPU's UUID.", kind=Kind.label),
        of_tenant("run_id", "", "The job's id: the same for all its processes.", kind=Kind.label),
        of_tenant("program", "", "The program's name.", kind=Kind.unserved),
        of_tenant(
            "process",
            "number",
            "The process: `pid`, or, of a lane (`cotenant.tenant`), the process that the lane is in.",
            kind=Kind.unserved,
        ),
        of_tenant(
            "lane",
            "number",
            "Its number among the lanes of its process; 0: it is the process's own.",
            kind=Kind.unserved,
        ),
        of_tenant("uid", "number", "Its user.", kind=Kind.unserved),
        of_tenant("time_slice_us", "us", "Its slice of the hardware; 0: not known.", heading="slice_us"),
        on_gpu("in_flight_us", "us", "Work that is queued behind its gates and not known to be done."),
        counted("memory_ops", "Memsets and other operations on memory that it has launched."),
        counted("host_calls", "Host functions that it has put into streams."),
        counted("bursts", "How often it went from having no work to having some."),
        of_tenant(
            "export_tables",
            "count",
            "Tables of private driver functions that the program got.",
            kind=Kind.counter,
        ),
        of_tenant(
            "ungated_graphs", "count", "Long graphs that could not be given gates inside.", kind=Kind.counter
        ),
        of_tenant("checkpoints", "count", "Calls of the driver's checkpointing.", kind=Kind.counter),
        of_tenant("mps", "", MPS, mps, kind=Kind.text),
        on_gpu("memory_bytes", "bytes", "What it has allocated of the GPU's memory."),
        of_tenant(
            "memory_limit",
            "",
            "The most that it may allocate of each GPU: `20G`; of its run's limit and its user's the smaller.",
            memory_limit,
            kind=Kind.text,
        ),
        on_gpu("driver_bytes", "bytes", DRIVER_BYTES),
        on_gpu("movable_bytes", "bytes", "Of `memory_bytes`, what can be evicted."),
        of_tenant("host_bytes", "bytes", "What is evicted to the host now, of all GPUs."),
        on_gpu("nvml_bytes", "bytes", NVML_BYTES, lambda here: here.nvml_bytes),
        on_gpu(
            "refused_allocations",
            "count",
            "What the memory limit did not allow.",
            "refused",
            heading="refused",
            kind=Kind.counter,
        ),
        of_tenant("evictions", "count", "How often its memory was evicted.", kind=Kind.counter),
        on_gpu(
            "preemptions",
            "count",
            "How often its gate was closed while it had work: for a higher class, after its turn, or by the policy.",
            kind=Kind.counter,
        ),
        between_looks("wait_p50_us", "us", f"Half {OF_WAITS}", kind=Kind.unserved),
        between_looks("wait_p99_us", "us", f"99 % {OF_WAITS}", kind=Kind.unserved),
    ),
    *at(
        Width.data,
        of_tenant("user", "", "The user's name.", lambda tenant: jobs.user_name(tenant.uid), kind=Kind.label),
        of_tenant(
            "command",
            "",
            "The job's command line, where it can be seen.",
            jobs.command_line,
            kind=Kind.unserved,
        ),
        of_tenant(
            "began_at", "", "When the job began, as ISO 8601 has it.", jobs.began_at, kind=Kind.unserved
        ),
        of_tenant("slowdown", "ratio", "By how much it may be slowed down: 0.05 is 5 %.", slowdown),
        of_tenant("floor", "ratio", "The share of the GPU that it gets at least.", thousandths("floor")),
        of_tenant(
            "sms", "ratio", "The share of a GPU's SMs that its kernels get; 0: all.", thousandths("sms")
        ),
        of_tenant(
            "sms_refused",
            "",
            "Why it cannot be given fewer SMs while it runs.",
            lambda tenant: sm_limit.refusal_of(tenant.sms_refused),
            kind=Kind.text,
        ),
        between_looks("promise_kept", "yes or no", PROMISE_KEPT),
        between_looks("promise_seconds", "seconds", PROMISE_SECONDS),
        between_looks(
            "share_asked",
            "ratio",
            "Its weight's share among the tenants of its class on this GPU that have work.",
            kind=Kind.unserved,
        ),
        between_looks(
            "share_got", "ratio", "What it got of the GPU time that these got.", kind=Kind.unserved
        ),
        between_looks(
            "wait_us",
            "us",
            "How long its bursts waited for the GPU of late, on average; where they were timed.",
            kind=Kind.unserved,
        ),
        of_tenant("time_slice_refused", "yes or no", "Whether the driver refused its time slice."),
        of_tenant("grace_us", "us", "After so long without work it counts as idle."),
        of_tenant("mps_fault", "number", "The CUDA error with which its MPS server failed; 0: none."),
        of_tenant(
            "where",
            "",
            "Its memory: `pinned` (it does not move), `resident`, `evicting`, `evicted`, `restoring`.",
            lambda tenant: tenant.where.name,
            kind=Kind.text,
        ),
        of_tenant("paused", "yes or no", "Whether it was evicted by hand."),
        of_tenant(
            "evicted_for",
            "",
            "Why its memory is on the host: `space` (other tenants need it), `limit` (its own), `pause` (by hand).",
            cause_of_eviction,
            kind=Kind.text,
        ),
        of_tenant("wanted_bytes", "bytes", "GPU memory that it waits for."),
        of_tenant("saved_bytes", "bytes", "What evictions have copied to the host, ever.", kind=Kind.counter),
        of_tenant(
            "dropped_bytes",
            "bytes",
            "What they did not copy, as the program had no use for it.",
            kind=Kind.counter,
        ),
        of_tenant("host_pinned_bytes", "bytes", "Host memory that it has pinned for them."),
        of_tenant("transfer_seconds", "seconds", "Its last eviction and restore, together.", "transfer_ns"),
        of_tenant(
            "refusal", "", "Why it was not evicted when it last should have been.", refusal, kind=Kind.text
        ),
        on_gpu("wait_seconds", "seconds", WAITS, waits_of, in_data=False, kind=Kind.histogram),
        on_gpu("has_work", "yes or no", "Whether it has work now.", "busy"),
        on_gpu("gated", "yes or no", "Whether its gate is closed."),
        on_gpu(
            "copies_gated",
            "yes or no",
            "Whether its gate for long copies between host and GPU is closed: a higher class copies.",
        ),
        on_gpu("below_floor", "yes or no", "Whether it has got less than its floor."),
        on_gpu(
            "busy_seconds",
            "seconds",
            "How long it had work, also behind a closed gate.",
            "busy_ns",
            kind=Kind.counter,
        ),
        on_gpu(
            "sms_by_policy",
            "ratio",
            "The share of the SMs that the policy gives its kernels now; 0: all.",
            sms_by_policy,
        ),
        on_gpu("sms_now", "count", "How many SMs its kernels get now; 0: all."),
        on_gpu("detours", "count", "Kernels that were launched into so many.", kind=Kind.counter),
        on_gpu(
            "undetoured", "count", "Kernels that were launched into all SMs meanwhile.", kind=Kind.counter
        ),
        on_gpu("turn_us", "us", "How much it executes in a turn among equals; 0: it has taken none."),
        on_gpu("switch_us", "us", "What a switch to it from an equal costs; 0: none was measured."),
        on_gpu(
            "timed_bursts", "count", "Bursts whose wait for the GPU was timed.", "waits", kind=Kind.counter
        ),
        on_gpu("waited_seconds", "seconds", "The waits of these, together.", "waited_ns", kind=Kind.counter),
        on_gpu(
            "gap_seconds",
            "seconds",
            "How long its streams were empty inside bursts.",
            "gap_ns",
            kind=Kind.counter,
        ),
        on_gpu(
            "blocking_calls",
            "count",
            "Calls that wait for the GPU.",
            "blocking_calls",
            kind=Kind.counter,
        ),
        on_gpu(
            "blocked_seconds",
            "seconds",
            "How long its threads waited for the GPU in calls, together.",
            "blocked_ns",
            kind=Kind.counter,
        ),
        on_gpu("operation_us", "us", "GPU time of one operation, lately.", operation_us("operation_ns")),
        on_gpu(
            "operation_alone_us",
            "us",
            "The same when no other tenant was last at work.",
            operation_us("operation_alone_ns"),
        ),
        of_gpu("clock_mhz", "MHz", "The SMs' clock, when the daemon last asked NVML."),
        of_gpu("highest_mhz", "MHz", "The highest that this GPU has."),
        of_gpu("power_w", "W", "What it draws."),
        of_gpu("power_limit_w", "W", "What it may draw."),
        of_gpu("throttled", "yes or no", "Whether something keeps its clock down."),
        of_gpu("slowed_by", "", "What does: a list, as `power limit`.", kind=Kind.text),
        of_gpu("seconds_ago", "seconds", "When the daemon asked.", kind=Kind.unserved),
        of_gpu("in_words", "", "All that in a sentence, or why it is not known.", kind=Kind.unserved),
        of_gpu("outsiders", "count", OUTSIDERS),
        of_gpu("outsider_pids", "", "Their PIDs: a list.", kind=Kind.unserved),
        of_gpu("outside_in_words", "", "Who they are: sentences about the GPU.", kind=Kind.unserved),
    ),
)


def read(of: Of, seen: Any) -> dict[str, Any]:
    """Name and value of all figures that this has."""
    return {figure.name: figure.read(seen) for figure in FIGURES if figure.of is of and figure.in_data}


def record(
    tenant: segment.Tenant, nvml: NvmlBytes, lately: Mapping[Key, Lately] = NOTHING_KNOWN
) -> dict[str, Any]:
    """All figures of a tenant; `gpus` has those on each GPU that it has used."""
    gpus = [place(tenant, use, nvml, lately) for use in tenant.uses]
    return read(Of.tenant, tenant) | {"gpus": [read(Of.on_gpu, here) for here in gpus]}


def place(tenant: segment.Tenant, use: segment.Use, nvml: NvmlBytes, lately: Mapping[Key, Lately]) -> OnGpu:
    return OnGpu(tenant, use, nvml.get((use.uuid, tenant.pid)), lately.get(key_of(tenant, use), UNKNOWN))


def columns(*widths: Width) -> list[Figure]:
    """Of a table, in order; all three widths: of CSV."""
    is_data = Width.data in widths
    return [
        figure
        for figure in FIGURES
        if figure.of is not Of.gpu and figure.width in widths and (figure.in_data or not is_data)
    ]


def in_order(here: OnGpu) -> tuple[bool, int, int, int]:
    """Of rows: by GPU, class and PID; who has used no GPU comes last."""
    return here.use is NO_USE, here.use.gpu, here.tenant.tenant_class, here.tenant.pid


def rows(
    seen: segment.Snapshot, nvml: NvmlBytes, lately: Mapping[Key, Lately], wanted: list[Figure]
) -> Iterator[list[Any]]:
    """A row for each tenant on each GPU that it has used; one where it has used none. By GPU, class and PID."""
    places = [place(tenant, use, nvml, lately) for tenant in seen.tenants for use in tenant.uses or (NO_USE,)]
    for here in sorted(places, key=in_order):
        yield [figure.read(here.tenant if figure.of is Of.tenant else here) for figure in wanted]
