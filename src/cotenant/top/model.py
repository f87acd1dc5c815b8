"""What `cotenant top` knows: snapshots of a segment in, rows and histories out. No terminal, no clock, no file.

Between two snapshots that are `elapsed` apart a tenant's share of a GPU is

    gpu_share = used_ns' - used_ns  /  elapsed

and a class's is the sum of its tenants'. Whether a promise is kept is decided over the last PROMISE_SAMPLES snapshots:

    floor       used >= 0.9 * min(floor * elapsed, busy)
    slowdown    burst / (burst - wait - what its operations take longer) - 1 <= slowdown, for the mean burst

Tenants write their slots as they like: a difference that is negative is 0, a share is at most 1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cotenant import classes, figures, segment
from cotenant.tenants import breakdown

HISTORY_SAMPLES = 240
PROMISE_SAMPLES = 10
NEARLY = 0.9  # of a floor: time is charged when a burst ends or a watcher looks
NO_RUN = bytes(16).hex()

Key = tuple[int, int, int]  # PID, when it started, GPU


@dataclass(frozen=True)
class Row:
    """A tenant on a GPU. None: not known, or there is nothing to know."""

    here: figures.OnGpu
    gpu_share: float | None = None  # of the GPU, since the snapshot before
    promise_kept: bool | None = None
    share_asked: float | None = (
        None  # by its weight, among the tenants of its class on this GPU that have had work
    )
    share_got: float | None = None

    @property
    def tenant(self) -> segment.Tenant:
        return self.here.tenant

    @property
    def key(self) -> Key:
        return key_of(self.here.tenant, self.here.use)

    @property
    def is_of_a_run(self) -> bool:
        return self.tenant.run_id not in ("", NO_RUN)


@dataclass(frozen=True)
class GpuRow:
    number: int
    uuid: str
    state: Mapping[str, Any]  # as cotenant.gpus.states tells it
    history: Mapping[int, Sequence[float]]  # by class, the newest last

    def share(self, tenant_class: int) -> float | None:
        """Since the snapshot before."""
        known = self.history[tenant_class]
        return known[-1] if known else None

    @property
    def total(self) -> float | None:
        shares = [self.share(one) for one in self.history]
        known = [share for share in shares if share is not None]
        return min(sum(known), 1.0) if known else None


@dataclass(frozen=True)
class Picture:
    """What one look shows."""

    seen: segment.Snapshot
    gpus: tuple[GpuRow, ...]
    rows: tuple[Row, ...]
    elapsed_ns: int  # since the look before; 0: this is the first


@dataclass
class Model:
    """Looks at a segment, one after the other."""

    at_ns: int = 0
    uses: dict[Key, deque[tuple[int, segment.Use]]] = field(default_factory=dict)
    history: dict[int, dict[int, deque[float]]] = field(default_factory=dict)

    def look(self, seen: segment.Snapshot, at_ns: int, states: Mapping[int, Mapping[str, Any]]) -> Picture:
        """`states`: what is known of each GPU's clock and power."""
        elapsed_ns = max(at_ns - self.at_ns, 0) if self.at_ns else 0
        earlier, self.uses = self.uses, {}
        for tenant in seen.tenants:
            for use in tenant.uses:
                key = key_of(tenant, use)
                samples = earlier.get(key) or deque(maxlen=PROMISE_SAMPLES + 1)
                samples.append((at_ns, use))
                self.uses[key] = samples
        self.at_ns = at_ns
        rows = tuple(self.row(seen, tenant, use) for tenant, use in places(seen))
        gpus = tuple(
            GpuRow(number, uuid, states.get(number, {}), self.past(number, rows, elapsed_ns))
            for number, uuid in seen.gpus.items()
        )
        return Picture(seen, gpus, rows, elapsed_ns)

    def past(self, gpu: int, rows: Iterable[Row], elapsed_ns: int) -> dict[int, tuple[float, ...]]:
        kept = self.history.setdefault(
            gpu, {one: deque(maxlen=HISTORY_SAMPLES) for one in classes.TenantClass}
        )
        if elapsed_ns:
            for tenant_class, samples in kept.items():
                shares = (
                    row.gpu_share or 0.0
                    for row in rows
                    if row.here.use.gpu == gpu and row.tenant.tenant_class == tenant_class
                )
                samples.append(min(sum(shares), 1.0))
        return {tenant_class: tuple(samples) for tenant_class, samples in kept.items()}

    def row(self, seen: segment.Snapshot, tenant: segment.Tenant, use: segment.Use) -> Row:
        here = figures.OnGpu(tenant, use)
        if use is figures.NO_USE:
            return Row(here)
        equals = [
            (other, there)
            for other, there in places(seen)
            if there.gpu == use.gpu and other.tenant_class == tenant.tenant_class
            if there.busy or self.used_ns(other, there)
        ]
        is_shared = len(equals) > 1 and any(there is use for _, there in equals)
        weights = sum(other.weight for other, _ in equals)
        got_ns = sum(self.used_ns(other, there) or 0 for other, there in equals)
        used_ns = self.used_ns(tenant, use)
        return Row(
            here,
            self.gpu_share(tenant, use),
            self.promise_kept(tenant, use),
            tenant.weight / weights if is_shared and weights else None,
            used_ns / got_ns if is_shared and used_ns is not None and got_ns else None,
        )

    def used_ns(self, tenant: segment.Tenant, use: segment.Use) -> int | None:
        samples = self.uses[key_of(tenant, use)]
        return max(use.used_ns - samples[-2][1].used_ns, 0) if len(samples) > 1 else None

    def gpu_share(self, tenant: segment.Tenant, use: segment.Use) -> float | None:
        samples = self.uses[key_of(tenant, use)]
        used_ns = self.used_ns(tenant, use)
        elapsed_ns = samples[-1][0] - samples[-2][0] if len(samples) > 1 else 0
        return min(used_ns / elapsed_ns, 1.0) if used_ns is not None and elapsed_ns > 0 else None

    def promise_kept(self, tenant: segment.Tenant, use: segment.Use) -> bool | None:
        samples = self.uses[key_of(tenant, use)]
        (since_ns, then), (now_ns, _) = samples[0], samples[-1]
        if now_ns <= since_ns:
            return None
        if tenant.slowdown:
            slowed = slowdown_between(then, use)
            return None if slowed is None else slowed <= tenant.slowdown / 1000
        if tenant.floor:
            wanted_ns = min(tenant.floor / 1000 * (now_ns - since_ns), max(use.busy_ns - then.busy_ns, 0))
            return max(use.used_ns - then.used_ns, 0) >= NEARLY * wanted_ns
        return None


def slowdown_between(then: segment.Use, now: segment.Use) -> float | None:
    """Of the bursts that ended in between, against what they would have taken alone; None: nothing was measured."""
    bursts = now.figures["bursts"] - then.figures["bursts"]
    busy_ns, gap_ns = now.busy_ns - then.busy_ns, now.gap_ns - then.gap_ns
    waits, waited_ns = now.waits - then.waits, now.waited_ns - then.waited_ns
    ever = breakdown.of(now)
    slower = ever.slower if ever else None
    if bursts <= 0 or busy_ns <= 0 or (waits <= 0 and slower is None):
        return None
    burst_ns = busy_ns / bursts
    wait_ns = max(waited_ns, 0) / waits if waits > 0 else 0.0
    run_ns = max(burst_ns - wait_ns - max(gap_ns, 0) / bursts, 0)
    longer_ns = run_ns * max(slower or 0.0, 0.0) / (1 + max(slower or 0.0, 0.0))
    alone_ns = burst_ns - wait_ns - longer_ns
    return burst_ns / alone_ns - 1 if alone_ns > 0 else None


def key_of(tenant: segment.Tenant, use: segment.Use) -> Key:
    return tenant.pid, tenant.started, use.gpu


def places(seen: segment.Snapshot) -> Iterator[tuple[segment.Tenant, segment.Use]]:
    """Each tenant on each GPU that it has used; once where it has used none."""
    for tenant in seen.tenants:
        for use in tenant.uses or (figures.NO_USE,):
            yield tenant, use


# By GPU and class first: what `status` shows, too.
SORTS: dict[str, Callable[[Row], Any]] = {
    "gpu": lambda row: (row.here.use.gpu, row.tenant.tenant_class, row.tenant.pid),
    "gpu %": lambda row: -(row.gpu_share or 0.0),
    "memory": lambda row: -(row.here.use.memory_bytes + row.tenant.host_bytes),
    "class": lambda row: row.tenant.tenant_class,
    "job": lambda row: row.tenant.job,
    "pid": lambda row: row.tenant.pid,
}


def ordered(rows: Iterable[Row], sort: str = "gpu", wanted: str = "") -> list[Row]:
    """The rows with the wanted text in their PID, job, program, class, state, or at the start of their run's id."""
    found = [row for row in rows if matches(row, wanted.casefold())]
    return sorted(sorted(found, key=SORTS["gpu"]), key=SORTS[sort])


def matches(row: Row, wanted: str) -> bool:
    tenant = row.tenant
    texts = (str(tenant.pid), tenant.job, tenant.program, figures.class_name(tenant), figures.state(row.here))
    return any(wanted in text.casefold() for text in texts) or tenant.run_id.startswith(wanted)


def runs(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows of each run together, in the order of the first of each; who belongs to no run is alone."""
    found: dict[object, list[Row]] = {}
    for row in rows:
        found.setdefault(row.tenant.run_id if row.is_of_a_run else row.key, []).append(row)
    return list(found.values())
