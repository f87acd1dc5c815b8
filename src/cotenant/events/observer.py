"""What happened between two looks at a segment: snapshots in, events out. No clock, no file.

A promise is broken, or kept again, when tenants/lately.py has said so at SURE looks, one after the other. Escaping work
is told once in ESCAPES_SECONDS for a tenant on a GPU, with how much there was since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from cotenant import classes, figures, segment, units
from cotenant.events.kinds import Event, Kind
from cotenant.segment import Where
from cotenant.tenants.lately import Key, Lately, Looks, key_of, slowdown_between

SURE = 3
ESCAPES_SECONDS = 60.0

Process = tuple[int, int]  # PID, when it was started
AWAY = (Where.evicted, Where.restoring)


class Observer:
    def __init__(self, known: Iterable[Event] = ()) -> None:
        """`known`: what was told before, by an earlier daemon too."""
        self.looks = Looks()
        self.before: dict[Process, segment.Tenant] = {}
        self.there: dict[Process, Event] = {}  # who was told to have joined, and not to have left
        self.verdicts: dict[Key, tuple[bool, int]] = {}  # the last one, and how often in a row
        self.broken: set[Key] = set()
        self.escapes: dict[Key, tuple[float, int]] = {}  # when they were told, and how many there had been
        for event in known:
            if event.kind is Kind.joined:
                self.there[event.pid, event.started] = event
            elif event.kind is Kind.left:
                self.there.pop((event.pid, event.started), None)

    def look(
        self, seen: segment.Snapshot, at: float, at_ns: int, is_alive: Callable[[int], bool]
    ) -> list[Event]:
        lately = self.looks.look(seen, at_ns)
        now = {(one.pid, one.started): one for one in seen.tenants}
        events = [*self.came(now, at), *self.gone(now, at, is_alive)]
        for process, tenant in now.items():
            if (before := self.before.get(process)) is not None:
                events += self.changed(before, tenant, at)
            for use in tenant.uses:
                key = key_of(tenant, use)
                events += self.promised(tenant, key, lately[key], at)
                events += self.escaped(tenant, key, use, at, at_ns / 1e9)
        self.before = now
        keys = lately.keys()
        self.verdicts = {key: one for key, one in self.verdicts.items() if key in keys}
        self.escapes = {key: one for key, one in self.escapes.items() if key in keys}
        self.broken &= keys
        return events

    def came(self, now: dict[Process, segment.Tenant], at: float) -> Iterator[Event]:
        for process, tenant in now.items():
            if process not in self.there:
                name = figures.class_name(tenant)
                self.there[process] = about(tenant, at, Kind.joined, f"its first use of a GPU, as {name}")
                yield self.there[process]

    def gone(
        self, now: dict[Process, segment.Tenant], at: float, is_alive: Callable[[int], bool]
    ) -> Iterator[Event]:
        for process in [one for one in self.there if one not in now]:
            joined = self.there.pop(process)
            cause = "it gave its slot back" if is_alive(joined.pid) else "its process has ended"
            yield Event(
                at, Kind.left, cause, joined.job, joined.pid, joined.started, joined.run_id, joined.uid
            )

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

    def promised(self, tenant: segment.Tenant, key: Key, lately: Lately, at: float) -> Iterator[Event]:
        kept = lately.promise_kept
        if kept is None:
            return
        last, times = self.verdicts.get(key, (kept, 0))
        times = times + 1 if last is kept else 1
        self.verdicts[key] = (kept, times)
        if times < SURE or kept is (key not in self.broken):
            return
        self.broken ^= {key}
        kind = Kind.promise_kept if kept else Kind.promise_broken
        yield about(tenant, at, kind, self.measured(tenant, key), key[2])

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
            cause = why.value if why else figures.EvictedFor.space.value
            yield about(now, at, Kind.evicted, f"{cause}: {size} went to the host")
    if not is_away and (was_away or has_gone):
        if before.paused:
            yield about(now, at, Kind.resumed, "asked by hand, and there was space for its memory")
        else:
            yield about(now, at, Kind.restored, "there was space for its memory")


def about(tenant: segment.Tenant, at: float, kind: Kind, cause: str, gpu: int | None = None) -> Event:
    return Event(at, kind, cause, tenant.job, tenant.pid, tenant.started, tenant.run_id, tenant.uid, gpu)
