"""What `cotenant top` knows: snapshots of a segment in, rows and histories out. No terminal, no clock, no file.

What happened between two snapshots is cotenant.tenants.lately's to say; a class's share is the sum of its tenants'.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cotenant import classes, figures, segment
from cotenant.tenants import jobs, wait_reasons
from cotenant.tenants.lately import UNKNOWN, Key, Lately, Looks, key_of
from cotenant.tenants.verdicts import NO_VERDICTS, Place, Verdict

HISTORY_SAMPLES = 240
DELAY_SAMPLES = 60
NO_RUN = bytes(16).hex()


@dataclass(frozen=True)
class Row:
    """A tenant on a GPU."""

    here: figures.OnGpu
    # By name: for whom it waited, as a part of the last DELAY_SAMPLES looks. Most first.
    delayed_by: tuple[tuple[str, float], ...] = ()

    @property
    def lately(self) -> Lately:
        return self.here.lately

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

    looks: Looks = field(default_factory=Looks)
    history: dict[int, dict[int, deque[float]]] = field(default_factory=dict)
    delays: dict[Key, deque[frozenset[str]]] = field(default_factory=dict)

    def look(
        self,
        seen: segment.Snapshot,
        at_ns: int,
        states: Mapping[int, Mapping[str, Any]],
        verdicts: Mapping[Place, Verdict] = NO_VERDICTS,
    ) -> Picture:
        """`states`: what is known of each GPU's clock and power. `verdicts`: the daemon's, on promises."""
        lately = self.looks.look(seen, at_ns, verdicts)
        elapsed_ns = self.looks.elapsed_ns
        self.see_delays(seen, at_ns)
        rows = tuple(
            Row(
                figures.OnGpu(tenant, use, lately=lately.get(key_of(tenant, use), UNKNOWN)),
                self.delayed_by(key_of(tenant, use)),
            )
            for tenant, use in places(seen)
        )
        gpus = tuple(
            GpuRow(number, uuid, states.get(number, {}), self.past(number, rows, elapsed_ns))
            for number, uuid in seen.gpus.items()
        )
        return Picture(seen, gpus, rows, elapsed_ns)

    def see_delays(self, seen: segment.Snapshot, now_ns: int) -> None:
        before, self.delays = self.delays, {}
        for tenant in seen.tenants:
            for use in tenant.uses:
                key = key_of(tenant, use)
                samples = before.get(key) or deque(maxlen=DELAY_SAMPLES)
                names = (jobs.named(one) for one in wait_reasons.delayers(seen, tenant, use, now_ns))
                samples.append(frozenset(names))
                self.delays[key] = samples

    def delayed_by(self, key: Key) -> tuple[tuple[str, float], ...]:
        samples = self.delays.get(key, ())
        counts = Counter(name for names in samples for name in names)
        return tuple((name, count / len(samples)) for name, count in counts.most_common())

    def past(self, gpu: int, rows: Iterable[Row], elapsed_ns: int) -> dict[int, tuple[float, ...]]:
        kept = self.history.setdefault(
            gpu, {one: deque(maxlen=HISTORY_SAMPLES) for one in classes.TenantClass}
        )
        if elapsed_ns:
            for tenant_class, samples in kept.items():
                shares = (
                    row.lately.gpu_share or 0.0
                    for row in rows
                    if row.here.use.gpu == gpu and row.tenant.tenant_class == tenant_class
                )
                samples.append(min(sum(shares), 1.0))
        return {tenant_class: tuple(samples) for tenant_class, samples in kept.items()}


def places(seen: segment.Snapshot) -> Iterator[tuple[segment.Tenant, segment.Use]]:
    """Each tenant on each GPU that it has used; once where it has used none."""
    for tenant in seen.tenants:
        for use in tenant.uses or (figures.NO_USE,):
            yield tenant, use


# By GPU and class first: what `status` shows, too.
SORTS: dict[str, Callable[[Row], Any]] = {
    "gpu": lambda row: figures.in_order(row.here),
    "gpu %": lambda row: -(row.lately.gpu_share or 0.0),
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
    """The rows of each run together, in the order of the first of each; who belongs to no run is alone. A tenant writes
    its own slot: only those of one user can be of one run. A lane, which has an id of its own, is with its process,
    behind the processes."""
    rows = list(rows)
    own = {row.tenant.pid: row.tenant for row in rows if not row.tenant.lane}
    found: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        process = own.get(row.tenant.process, row.tenant)
        is_of_a_run = process.run_id not in ("", NO_RUN)
        own_id = process.run_id if is_of_a_run else f"process {process.pid} {process.started}"
        found.setdefault((process.uid, own_id), []).append(row)
    return [sorted(run, key=lambda row: row.tenant.lane != 0) for run in found.values()]
