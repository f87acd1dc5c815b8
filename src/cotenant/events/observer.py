"""What happened between two looks at a segment: snapshots in, events out. No clock, no file.

Whether a promise is broken, or kept again, tenants/verdicts.py decides. Escaping work is told once in ESCAPES_SECONDS
for a tenant on a GPU, with how much there was since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from cotenant import classes, figures, segment, units
from cotenant.events.kinds import Event, Kind
from cotenant.segment import Where
from cotenant.tenants.lately import Key, Lately, Looks, key_of, place_of, slowdown_between
from cotenant.tenants.verdicts import Verdict, Verdicts

ESCAPES_SECONDS = 60.0

Process = tuple[int, int]  # PID, when it was started
AWAY = (Where.evicted, Where.restoring)
BACK_ALREADY = "other tenants needed the space, or it was paused and resumed at once"


class Observer:
    def __init__(self, known: Iterable[Event] = (), at: float = 0.0, at_ns: int = 0) -> None:
        """`known`: what was told before, by an earlier daemon too. `at`, `at_ns`: now, by both clocks."""
        self.looks = Looks()
        self.before: dict[Process, segment.Tenant] = {}
        self.there: dict[Process, Event] = {}  # who was told to have joined, and not to have left
        self.verdicts = Verdicts()
        self.failed: set[Process] = set()  # of whom it was told that their MPS server has
        self.escapes: dict[Key, tuple[float, int]] = {}  # when they were told, and how many there had been
        for event in known:
            if event.kind is Kind.joined:
                self.there[event.pid, event.started] = event
            elif event.kind is Kind.left:
                self.there.pop((event.pid, event.started), None)
            elif event.kind is Kind.mps_failed:
                self.failed.add((event.pid, event.started))
            elif event.kind in (Kind.promise_broken, Kind.promise_kept) and event.gpu is not None:
                since_ns = max(at_ns - round((at - event.at) * 1e9), 0)
                verdict = Verdict(event.kind is Kind.promise_kept, since_ns)
                self.verdicts.remember((event.pid, event.started, event.gpu), verdict)

    def look(
        self, seen: segment.Snapshot, at: float, at_ns: int, is_alive: Callable[[int, int], bool]
    ) -> list[Event]:
        lately = self.looks.look(seen, at_ns)
        now = {(one.pid, one.started): one for one in seen.tenants}
        events = [*self.came(now, at), *self.gone(now, at, is_alive), *self.failed_in_mps(now, at)]
        for process, tenant in now.items():
            if (before := self.before.get(process)) is not None:
                events += self.changed(before, tenant, at)
            for use in tenant.uses:
                key = key_of(tenant, use)
                self.verdicts.find(key, place_of(tenant, use))
                events += self.promised(tenant, use, lately[key], at, at_ns)
                events += self.escaped(tenant, key, use, at, at_ns / 1e9)
        self.before = now
        keys = lately.keys()
        self.verdicts.keep_only(place_of(tenant, use) for tenant in seen.tenants for use in tenant.uses)
        self.escapes = {key: one for key, one in self.escapes.items() if key in keys}
        return events

    def came(self, now: dict[Process, segment.Tenant], at: float) -> Iterator[Event]:
        for process, tenant in now.items():
            if process not in self.there:
                name = figures.class_name(tenant)
                self.there[process] = about(tenant, at, Kind.joined, f"its first use of a GPU, as {name}")
                yield self.there[process]

    def gone(
        self, now: dict[Process, segment.Tenant], at: float, is_alive: Callable[[int, int], bool]
    ) -> Iterator[Event]:
        for process in [one for one in self.there if one not in now]:
            joined = self.there.pop(process)
            cause = (
                "it gave its slot back" if is_alive(joined.pid, joined.started) else "its process has ended"
            )
            yield Event(
                at, Kind.left, cause, joined.job, joined.pid, joined.started, joined.run_id, joined.uid
            )

    def failed_in_mps(self, now: dict[Process, segment.Tenant], at: float) -> Iterator[Event]:
        for process, tenant in now.items():
            if not tenant.mps_fault or process in self.failed:
                continue
            self.failed.add(process)
            others = sum(one.mps_daemon == tenant.mps_daemon for one in now.values()) - 1
            whose = "by its own fault" + (", or another's in the same server" if others else "")
            yield about(tenant, at, Kind.mps_failed, f"CUDA error {tenant.mps_fault}, {whose}")
        self.failed &= now.keys()

    def changed(self, before: segment.Tenant, now: segment.Tenant, at: float) -> Iterator[Event]:
        if before.tenant_class != now.tenant_class:
            names = (classes.name_of(one.tenant_class) for one in (before, now))
            yield about(now, at, Kind.class_changed, f"asked by hand: from {' to '.join(names)}")
        yield from moved(before, now, at)
        if now.refusal and now.refused_ns != before.refused_ns:
            yield about(now, at, Kind.eviction_refused, now.refusal.text)
        counts = {use.gpu: use.refused for use in before.uses}
        for use in now.uses:
            more = use.refused - counts.get(use.gpu, 0)
            if more > 0:
                limit = units.limit_shown(now.memory_limit)
                cause = f"the memory limit {limit}: {more} allocation{'s' if more > 1 else ''} refused"
                yield about(now, at, Kind.allocation_refused, cause, use.gpu)

    def promised(
        self, tenant: segment.Tenant, use: segment.Use, lately: Lately, at: float, at_ns: int
    ) -> Iterator[Event]:
        before, now = self.verdicts.look(place_of(tenant, use), tenant, lately.promise_kept, at_ns)
        was_broken, is_broken = (one is not None and not one.kept for one in (before, now))
        if is_broken and not was_broken:
            cause = self.measured(tenant, key_of(tenant, use))
            yield about(tenant, at, Kind.promise_broken, cause, use.gpu)
        elif was_broken and not is_broken:
            gone = (
                "it has had no work for a minute"
                if any((tenant.slowdown, tenant.floor))
                else "it has no promise now"
            )
            cause = self.measured(tenant, key_of(tenant, use)) if now else gone
            yield about(tenant, at, Kind.promise_kept, cause, use.gpu)

    def measured(self, tenant: segment.Tenant, key: Key) -> str:
        samples = self.looks.uses[key]
        (since_ns, then), (now_ns, now) = samples[0], samples[-1]
        if tenant.slowdown:
            slowed = slowdown_between(then, now) or 0.0
            return f"it is slowed down by {slowed:.1%}, {units.percent(tenant.slowdown)} at most was promised"
        share = max(now.used_ns - then.used_ns, 0) / max(now_ns - since_ns, 1)
        return f"it got {share:.1%} of the GPU, {units.percent(tenant.floor)} was promised"

    def escaped(
        self, tenant: segment.Tenant, key: Key, use: segment.Use, at: float, now: float
    ) -> Iterator[Event]:
        """`now`: by a clock that nobody sets."""
        count = use.figures["escaped"]
        told_at, told = self.escapes.setdefault(key, (now - ESCAPES_SECONDS, count))
        if count > told and now - told_at >= ESCAPES_SECONDS:
            self.escapes[key] = (now, count)
            cause = f"{count - told} operations reached the GPU without a gate"
            yield about(tenant, at, Kind.escaped, cause, use.gpu)


def moved(before: segment.Tenant, now: segment.Tenant, at: float) -> Iterator[Event]:
    """Its memory, between two looks; also where it went and came back in between."""
    was_away, is_away = before.where in AWAY, now.where in AWAY
    has_gone = now.evictions != before.evictions or (is_away and not was_away)
    if has_gone and not (was_away and is_away):
        size = units.size_shown(now.host_bytes or max(now.saved_bytes - before.saved_bytes, 0))
        if now.paused or before.paused:
            yield about(now, at, Kind.paused, f"asked by hand: {size} went to the host")
        else:
            why = figures.evicted_for(now)
            cause = why.value if why else BACK_ALREADY
            yield about(now, at, Kind.evicted, f"{cause}: {size} went to the host")
    if not is_away and (was_away or has_gone):
        if before.paused:
            yield about(now, at, Kind.resumed, "asked by hand, and there was space for its memory")
        else:
            yield about(now, at, Kind.restored, "there was space for its memory")


def about(tenant: segment.Tenant, at: float, kind: Kind, cause: str, gpu: int | None = None) -> Event:
    return Event(at, kind, cause, tenant.job, tenant.pid, tenant.started, tenant.run_id, tenant.uid, gpu)
