"""What the agent does for the tenants of its pods, at each look: it tells their story in events, puts live changes into
effect, pauses pods that are about to be evicted, and finds devices on which a promise is broken and processes that work
past it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cotenant import segment, units
from cotenant.classes import TenantClass
from cotenant.errors import Problem, narrate
from cotenant.events.kinds import Event, Kind
from cotenant.events.observer import Observer
from cotenant.events.watching import is_alive
from cotenant.kubernetes.inventory import STEP, Device
from cotenant.kubernetes.node import changes, durable, evictions, outsiders
from cotenant.kubernetes.node.changes import Wanted
from cotenant.kubernetes.node.pods import Finder, Place, Pods, Process, Resident
from cotenant.kubernetes.node.preparing import Claims
from cotenant.kubernetes.node.story import REASONS, WARNING, About, Story
from cotenant.metrics import containers
from cotenant.segment import Where
from cotenant.tenants import jobs
from cotenant.tenants.lately import place_of

OBSERVE_SECONDS = 1.0
PATIENCE_SECONDS = 10.0  # with a process that shall change
KNOWN_SECONDS = 60.0  # in which the API server tells of a container that has started
OUTSIDERS_SECONDS = 10.0
TAINTED_SECONDS = 10.0  # after the promise was last broken


@dataclass
class Asked:
    """Of a process."""

    wanted: Wanted
    before: Wanted
    is_open: bool  # it has not changed yet
    until: float  # by then it should have changed
    is_told: bool = False  # that it does not answer


@dataclass
class Pause:
    """Of a process, before an eviction."""

    why: str
    is_told: bool = False


class Tending:
    def __init__(
        self,
        shared: Path,
        state: Path,
        claims: Claims,
        devices: Sequence[Device],
        pods: Pods,
        story: Story,
        finder: Finder | None = None,
        on_gpus: Callable[[], Mapping[tuple[str, int], int]] = dict,
    ) -> None:
        """`on_gpus`: which processes NVML knows, by GPU and PID, with their bytes."""
        self.shared, self.claims, self.pods, self.story = shared, claims, pods, story
        self.devices = {device.name: device for device in devices}
        self.by_uuid = {device.uuid.replace("MIG-", "GPU-", 1): device.name for device in devices}
        self._there = state / "tenants.json"  # of whom it was told that they have joined
        self.observer = Observer(told_before(self._there))
        self.finder = finder or Finder()
        self.homes: dict[Process, Place] = {}
        self.untold: list[tuple[float, Event]] = []
        self.asked: dict[Process, Asked] = {}
        self.on_gpus = on_gpus
        self.warned: set[tuple[str, str]] = set()  # a pod's UID, and what it was told
        self._pauses = state / "paused.json"  # the next agent ends them, where the eviction is called off
        self.paused = paused_before(self._pauses)
        self.faults: dict[str, str] = {}  # by the device's name; new ones, of which nobody was told
        self.broken_until: dict[str, float] = {}  # by the device's name
        self.names: containers.Names = {}
        self.next_observation = self.next_outsiders = 0.0

    def look(self, now: float) -> None:
        """`now` is by a clock that nobody sets."""
        try:
            seen = segment.read(self.shared)
        except (OSError, segment.BadSegment):
            return
        places = self.pods.places()
        self.write_names(places)
        residents = self.finder.residents(seen, places, self.claims.all())
        self.homes |= {one.process: one.place for one in residents}
        if now >= self.next_observation:
            self.next_observation = now + OBSERVE_SECONDS
            self.observe(seen, residents, now)
        self.tell_what_happened(now)
        self.tell_faults()
        self.mind_changes(residents, now)
        self.mind_evictions(residents)
        if now >= self.next_outsiders:
            self.next_outsiders = now + OUTSIDERS_SECONDS
            self.mind_outsiders(seen, places)
        self.forget({(one.pid, one.started) for one in seen.tenants})

    def write_names(self, places: Mapping[str, Place]) -> None:
        """For `cotenant metrics`."""
        found = {one: place.labels() for one, place in places.items()}
        if found != self.names:
            with contextlib.suppress(OSError):  # a full /dev/shm: the labels are those from before
                containers.write_names(self.shared, found)
                self.names = found

    def forget(self, there: set[Process]) -> None:
        for process in self.asked.keys() - there:
            del self.asked[process]
        if gone := self.paused.keys() - there:
            for process in gone:
                del self.paused[process]
            self.keep_pauses()
        # That it has left is yet to be told.
        for process in self.homes.keys() - there - self.observer.there.keys():
            del self.homes[process]
        uids = {pod["metadata"]["uid"] for pod in self.pods.all()}
        self.warned = {one for one in self.warned if one[0] in uids}

    # -- what happened ------------------------------------------------------------------------------------

    def observe(self, seen: segment.Snapshot, residents: Sequence[Resident], now: float) -> None:
        known = set(self.observer.there)
        events = self.observer.look(seen, time.time(), segment.now_ns(), is_alive)
        self.untold += [(now + KNOWN_SECONDS, event) for event in events if event.kind in REASONS]
        if known != set(self.observer.there):
            with contextlib.suppress(OSError):
                told = [event.record() for event in self.observer.there.values()]
                durable.write(self._there, json.dumps(told))
        verdicts = self.observer.verdicts.now()
        for one in residents:
            # A tenant writes its own slot: only what was claimed is a promise of ours.
            if not (one.terms.parameters.promise or one.terms.floor):
                continue
            for use in one.tenant.uses:
                verdict = verdicts.get(place_of(one.tenant, use))
                device = self.by_uuid.get(use.uuid)
                if device and verdict and not verdict.kept:
                    self.broken_until[device] = now + TAINTED_SECONDS
        self.broken_until = {device: end for device, end in self.broken_until.items() if end > now}

    def broken(self) -> frozenset[str]:
        """The devices on which a promise is broken."""
        return frozenset(self.broken_until)

    def tell_what_happened(self, now: float) -> None:
        """A process may be there before the API server tells of its container. One in no pod is nobody's news here."""
        left = []
        for until, event in self.untold:
            process = (event.pid, event.started)
            place = self.homes.get(process)
            if place is None:
                if now < until:
                    left.append((until, event))
            elif not self.tells_itself(event.kind, process):
                reason, kind = REASONS[event.kind]
                self.story.tell(About.of(place.pod), reason, self.message(event, place), kind)
        self.untold = left

    def tells_itself(self, kind: Kind, process: Process) -> bool:
        """What the agent has asked for is told with the agent's reason."""
        return (kind is Kind.class_changed and process in self.asked) or (
            kind is Kind.paused and process in self.paused
        )

    def message(self, event: Event, place: Place) -> str:
        cause = event.cause
        if event.kind is Kind.promise_broken:
            cause += "; the GPU takes no new claims until it is kept again"
        where = "" if event.gpu is None else f" on GPU {event.gpu}"
        return f"container {place.container}, process {event.pid}{where}: {cause}"

    def tell_faults(self) -> None:
        """To the pods that have such a device; it is tainted, and they will be evicted."""
        problems, self.faults = self.faults, {}
        if not problems:
            return
        claims = {(terms.namespace, terms.name): terms for terms in self.claims.all()}
        for pod in self.pods.all():
            for terms in evictions.claims_of(pod, claims):
                for given in terms.devices:
                    if problem := problems.get(given.device):
                        message = f"{given.device}: {problem}; pods that do not tolerate it are evicted"
                        self.story.tell(About.of(pod), "DeviceFault", message, WARNING)

    # -- live changes -------------------------------------------------------------------------------------

    def mind_changes(self, residents: Iterable[Resident], now: float) -> None:
        for one in residents:
            if one.tenant.lane:
                continue  # it follows its process
            try:
                self.mind_annotations(one, now)
            except Exception as error:
                # Annotations as nobody foresaw them must not keep the node's other pods from theirs.
                self.warn(one.place, "ChangeRefused", f"the annotations: {type(error).__name__}: {error}")

    def mind_annotations(self, one: Resident, now: float) -> None:
        wanted, refused = changes.wanted(one.place.annotations, one.terms, lambda: self.gpu_bytes(one))
        for why in refused:
            self.warn(one.place, "ChangeRefused", why)
        self.mind_change(one, wanted, now)

    def gpu_bytes(self, one: Resident) -> int:
        device = self.devices.get(one.terms.devices[0].device)
        if device is None:
            raise Problem("the GPU of the claim is lost")
        return device.memory_bytes // STEP * STEP

    def mind_change(self, one: Resident, wanted: Wanted, now: float) -> None:
        claimed = changes.claimed(one.terms)
        asked = self.asked.get(one.process)
        if asked is None:
            # It has begun as claimed, or was there before this agent.
            earlier = self.claims.changed(one.terms.uid)
            is_new = wanted != claimed or earlier is not None
            before = Wanted(**earlier) if earlier and wanted == claimed else claimed
            asked = Asked(wanted, before, is_new and not wanted.is_of(one.tenant), now + PATIENCE_SECONDS)
        elif wanted != asked.wanted:
            asked = Asked(wanted, asked.wanted, True, now + PATIENCE_SECONDS)
        self.asked[one.process] = asked
        self.claims.note_change(one.terms.uid, wanted.requests() if wanted != claimed else None)
        if asked.is_open:
            self.go_on_with(one, asked, now)

    def go_on_with(self, one: Resident, asked: Asked, now: float) -> None:
        about, tenant = About.of(one.place.pod), one.tenant
        if asked.wanted.is_of(tenant) and not tenant.asked:
            asked.is_open = False
            words = asked.wanted.in_words(asked.before)
            self.story.tell(about, "Changed", f"container {one.place.container}: {words}, as annotated")
            return
        if not tenant.asked:
            # Again where it was spoilt: two who ask at once may do that.
            self.ask(one, asked.wanted.requests())
        if now > asked.until and not asked.is_told:
            asked.is_told = True
            why = f"process {tenant.pid} does not answer; if it is stopped, it changes when it runs on"
            self.story.tell(about, "ChangePending", f"container {one.place.container}: {why}", WARNING)

    def ask(self, one: Resident, requests: Mapping[str, int]) -> bool:
        try:
            jobs.ask(self.shared, {one.tenant.pid: requests})
        except (Problem, OSError) as error:
            narrate(f"{one.place.namespace}/{one.place.name}: {error}")
            return False
        return True

    def warn(self, place: Place, reason: str, message: str) -> None:
        """Once."""
        key = (place.pod["metadata"]["uid"], message)
        if key not in self.warned:
            self.warned.add(key)
            self.story.tell(About.of(place.pod), reason, message, WARNING)

    # -- evictions ----------------------------------------------------------------------------------------

    def mind_evictions(self, residents: Iterable[Resident]) -> None:
        for one in residents:
            why = evictions.reason(one.place.pod)
            paused = self.paused.get(one.process)
            if why and not paused and not one.tenant.paused:
                self.pause(one, why)
            elif paused and not why:
                if self.ask(one, {"pause": 0}):
                    del self.paused[one.process]
                    self.keep_pauses()
            elif paused and not paused.is_told and one.tenant.where == Where.evicted:
                paused.is_told = True
                self.keep_pauses()
                size = units.size_shown(one.tenant.host_bytes)
                who = f"container {one.place.container}, process {one.tenant.pid}"
                message = f"{who}: {paused.why}: {size} went to the host"
                self.story.tell(About.of(one.place.pod), REASONS[Kind.paused][0], message)

    def pause(self, one: Resident, why: str) -> None:
        if one.tenant.tenant_class != TenantClass.opportunistic:
            return
        if one.tenant.where == Where.pinned:
            size = units.size_shown(sum(use.memory_bytes for use in one.tenant.uses))
            message = f"process {one.tenant.pid} was not paused before its eviction: its {size} cannot move"
            self.warn(one.place, "NotPaused", message)
        else:
            # Kept before it is asked for: a pause that no agent knows of would never end.
            self.paused[one.process] = Pause(why)
            self.keep_pauses()
            if not self.ask(one, {"pause": 1}):
                del self.paused[one.process]
                self.keep_pauses()

    def keep_pauses(self) -> None:
        with contextlib.suppress(OSError):
            kept = [[*process, pause.why, pause.is_told] for process, pause in self.paused.items()]
            durable.write(self._pauses, json.dumps(kept))

    # -- work past us -------------------------------------------------------------------------------------

    def mind_outsiders(self, seen: segment.Snapshot, places: Mapping[str, Place]) -> None:
        claims = {(terms.namespace, terms.name): terms for terms in self.claims.all()}
        tenants = {one.pid for one in seen.tenants}
        for one in outsiders.among(self.on_gpus(), tenants, places):
            if evictions.claims_of(one.place.pod, claims):
                self.warn(one.place, REASONS[Kind.escaped][0], one.in_words())


def told_before(file: Path) -> list[Event]:
    """What an earlier agent has told; nothing where that cannot be read."""
    try:
        return [Event.of(one) for one in json.loads(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, KeyError):
        return []


def paused_before(file: Path) -> dict[Process, Pause]:
    """What an earlier agent has paused; nothing where that cannot be read."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        return {
            (int(pid), int(started)): Pause(str(why), bool(is_told)) for pid, started, why, is_told in kept
        }
    except (OSError, ValueError, TypeError):
        return {}
