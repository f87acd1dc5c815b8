"""What happened between two looks at a segment: what a tenant used of a GPU, what it got among its equals, whether its
promise was kept. No terminal, no clock, no file.

Between two snapshots that are `elapsed` apart a tenant's share of a GPU is

    gpu_share = used_ns' - used_ns  /  elapsed

Whether a promise is kept is decided over the last PROMISE_SAMPLES snapshots:

    floor       used >= 0.9 * min(floor * elapsed, busy)
    slowdown    burst / (burst - wait - what its operations take longer) - 1 <= slowdown, for the mean burst

but where the daemon has decided it (tenants/verdicts.py), that holds.

Tenants write their slots as they like: a difference that is negative is 0, a share is at most 1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from cotenant import segment
from cotenant.tenants import breakdown, waits
from cotenant.tenants.verdicts import NO_VERDICTS, Place, Verdict

PROMISE_SAMPLES = 10
FEW_WAITS = 20
NEARLY = 0.9  # of a floor: time is charged when a burst ends or a watcher looks

Key = tuple[int, int, int]  # PID, when it started, GPU


@dataclass(frozen=True)
class Lately:
    """Of a tenant on a GPU. None: not known, or there is nothing to know."""

    gpu_share: float | None = None  # of the GPU, since the look before
    # Among the tenants of its class on this GPU that have had work: by its weight, and since the look before.
    share_asked: float | None = None
    share_got: float | None = None
    promise_kept: bool | None = None
    promise_seconds: float | None = None  # for how long that has been so; None: no daemon has decided it
    wait_us: float | None = (
        None  # for the GPU: the mean of the bursts that were timed over PROMISE_SAMPLES looks
    )
    # Of its waits for the GPU over PROMISE_SAMPLES looks; of all where those are fewer than FEW_WAITS.
    wait_p50_us: float | None = None
    wait_p99_us: float | None = None


UNKNOWN = Lately()
NOTHING_KNOWN: Mapping[Key, Lately] = {}


@dataclass
class Looks:
    """At a segment, one after the other."""

    at_ns: int = 0
    elapsed_ns: int = 0  # since the look before; 0: this is the first
    uses: dict[Key, deque[tuple[int, segment.Use]]] = field(default_factory=dict)

    def look(
        self, seen: segment.Snapshot, at_ns: int, verdicts: Mapping[Place, Verdict] = NO_VERDICTS
    ) -> dict[Key, Lately]:
        """`verdicts`: the daemon's, on promises."""
        self.elapsed_ns = max(at_ns - self.at_ns, 0) if self.at_ns else 0
        self.at_ns = at_ns
        earlier, self.uses = self.uses, {}
        equals: dict[tuple[int, int], list[tuple[segment.Tenant, segment.Use]]] = {}
        for tenant in seen.tenants:
            for use in tenant.uses:
                key = key_of(tenant, use)
                samples = earlier.get(key) or deque(maxlen=PROMISE_SAMPLES + 1)
                samples.append((at_ns, use))
                self.uses[key] = samples
                if use.busy or self.used_ns(key):
                    equals.setdefault((use.gpu, tenant.tenant_class), []).append((tenant, use))
        return {
            key_of(tenant, use): self.lately(
                tenant,
                use,
                equals.get((use.gpu, tenant.tenant_class), []),
                verdicts.get(place_of(tenant, use)),
            )
            for tenant in seen.tenants
            for use in tenant.uses
        }

    def lately(
        self,
        tenant: segment.Tenant,
        use: segment.Use,
        equals: list[tuple[segment.Tenant, segment.Use]],
        verdict: Verdict | None,
    ) -> Lately:
        key = key_of(tenant, use)
        is_shared = len(equals) > 1 and any(there is use for _, there in equals)
        weights = sum(other.weight for other, _ in equals) if is_shared else 0
        got_ns = sum(self.used_ns(key_of(*equal)) or 0 for equal in equals) if is_shared else 0
        used_ns = self.used_ns(key)
        return Lately(
            self.gpu_share(key),
            tenant.weight / weights if weights else None,
            used_ns / got_ns if used_ns is not None and got_ns else None,
            verdict.kept if verdict else self.promise_kept(tenant, key),
            max(self.at_ns - verdict.since_ns, 0) / 1e9 if verdict else None,
            self.wait_us(key),
            *self.wait_quantiles_us(key),
        )

    def used_ns(self, key: Key) -> int | None:
        samples = self.uses[key]
        return max(samples[-1][1].used_ns - samples[-2][1].used_ns, 0) if len(samples) > 1 else None

    def gpu_share(self, key: Key) -> float | None:
        samples = self.uses[key]
        used_ns = self.used_ns(key)
        elapsed_ns = samples[-1][0] - samples[-2][0] if len(samples) > 1 else 0
        return min(used_ns / elapsed_ns, 1.0) if used_ns is not None and elapsed_ns > 0 else None

    def wait_us(self, key: Key) -> float | None:
        samples = self.uses[key]
        (_, then), (_, now) = samples[0], samples[-1]
        waits, waited_ns = now.waits - then.waits, now.waited_ns - then.waited_ns
        return max(waited_ns, 0) / waits / 1000 if waits > 0 else None

    def wait_quantiles_us(self, key: Key) -> tuple[float | None, float | None]:
        samples = self.uses[key]
        (_, then), (_, now) = samples[0], samples[-1]
        lately = waits.between(then.wait_counts, now.wait_counts)
        counts = lately if sum(lately) >= FEW_WAITS else now.wait_counts
        return waits.quantile_us(counts, 0.5), waits.quantile_us(counts, 0.99)

    def promise_kept(self, tenant: segment.Tenant, key: Key) -> bool | None:
        samples = self.uses[key]
        (since_ns, then), (now_ns, now) = samples[0], samples[-1]
        if now_ns <= since_ns:
            return None
        if tenant.slowdown:
            slowed = slowdown_between(then, now)
            return None if slowed is None else slowed <= tenant.slowdown / 1000
        if tenant.floor:
            wanted_ns = min(tenant.floor / 1000 * (now_ns - since_ns), max(now.busy_ns - then.busy_ns, 0))
            return max(now.used_ns - then.used_ns, 0) >= NEARLY * wanted_ns
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


def place_of(tenant: segment.Tenant, use: segment.Use) -> Place:
    return tenant.own_pid, tenant.started, use.gpu
