"""The daemon's loop: gives each GPU's controller a view of the tenants, and writes its knobs into shared memory.

    two tenants of a GPU at work    every `every_ms` of the policy, or less often: ticks take SHARE of a core at most
    one at work                     every CALM_MS, so that a policy knows what the job is like alone
    none at work                    no tick: the daemon sleeps until a tenant has work (Attachment.sleep)

A tenant is at work for ACTIVE_US after it last had work, or was seen to have done some. What holds for one tenant
(shut, tolerant) is written as a moment in the near future, so that it expires by itself if the daemon dies, but not
before the next tick but one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from cotenant.config.live import LiveSettings
from cotenant.daemon import lock
from cotenant.daemon.attachment import Attachment, Look
from cotenant.daemon.clocks import NOT_YET, ClockAtWork, Clocks, Reading
from cotenant.daemon.report import Report, Told
from cotenant.errors import Problem
from cotenant.events.watching import Watching
from cotenant.gpus import outsiders
from cotenant.mps import pairs
from cotenant.policies import border, registry
from cotenant.policies.interface import Knobs, Met, Pair, Policy, Said, TenantId, View
from cotenant.policies.patience import SECONDS, TooLong, end_the_wait, limited
from cotenant.policies.strict import Strict
from cotenant.tenants import jobs

CALM_MS = 100.0
LONGEST_SLEEP_MS, LONGEST_SLEEP_ALONE_MS = 5000, 500
SHORTEST_HOLD_MS = 100.0
HELD_TICKS = 3
ACTIVE_US = 1_000_000
SHARE = 0.06
LONGEST_PAUSE_MS = 250.0  # that the cost of ticks may lead to
WEIGHT_OF_NEW = 0.2  # in the running mean of what a tick costs
KEEP_SECONDS = 10.0  # from one writing of what was learned to the next
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Daemon:
    def __init__(
        self,
        attachment: Attachment,
        policy: str,
        linger_seconds: float,
        clocks: Clocks | None = None,
        settings: LiveSettings | None = None,
        events: Watching | None = None,
        pairs_file: Path | None = None,
        lock_file: int | None = None,
    ) -> None:
        """`policy` is for as long as the segment names none; `settings` change it and the time to linger. What a policy
        learns of pairs of programs is kept in `pairs_file`. `lock_file` is open, and holds the segment's lock."""
        self.attachment = attachment
        self.default_policy = policy
        self.linger_seconds = linger_seconds
        self.settings = settings
        self.events = events
        self.report = Report(attachment.path)
        self.clocks = clocks or Clocks()
        self.readings: Mapping[int, Reading] = {}  # at the last tick, by the GPU's number
        self.clock_at_work = ClockAtWork()
        self.listed: dict[int, tuple[int, ...]] = {}  # the processes of each GPU, as they were last weighed
        # What the segment named at the last tick, or the settings where it named none; how often it had been, and as
        # which file.
        self.wanted: str | None = None
        self.choices = 0
        self.source: object = None
        self.policy: type[Policy] = Strict
        self.about = registry.about(Strict)
        self.controllers: dict[int, Policy] = {}
        self.pairs_file = pairs_file
        self.lock_file = lock_file
        self.learned: dict[int, dict[Pair, Met]] = {}  # and not kept yet, by the GPU's number
        self.keep_at = 0.0
        self.problem = ""
        self.activity = Activity()
        self.cost_ms = 0.0  # of a tick, of late
        self.live = 0  # tenants at the last tick
        self.is_told = False  # the report has what was decided last
        self.patience_seconds = (
            0.0  # with a policy; 0: without end, where the process is not the daemon's own
        )
        self.needed_at = time.monotonic()  # when there last was a tenant
        self.under: int | None = None  # a process that was started for this segment

    def run(self) -> None:
        """Until a signal ends it, or no tenant has been there for the time to linger."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        signal.signal(signal.SIGALRM, end_the_wait)
        self.patience_seconds = SECONDS
        self.clocks.start()  # with these signals blocked
        cause, is_the_one = "no tenant was left", True
        try:
            next_tick = time.monotonic()
            while self.is_needed():
                if not (is_the_one := self.keeps_the_lock()):
                    break
                began = max(next_tick, time.monotonic())
                pause_ms = self.tick()
                next_tick = began + (pause_ms or 0) / 1000
                if self.rest(next_tick) if pause_ms else self.sleep():
                    cause = "a signal ended it"
                    break
        finally:
            self.keep_learned()
            if is_the_one:  # else all that is another daemon's now
                self.leave(cause)
            self.clocks.end()

    def leave(self, cause: str) -> None:
        if self.events is not None and self.attachment.is_current():
            self.events.look(is_news=True)
            self.events.ended(cause)
        self.attachment.reset()
        self.report.remove()
        if self.settings is not None and self.attachment.is_current():
            self.settings.end()

    def keeps_the_lock(self) -> bool:
        """A segment that was replaced has another lock."""
        if self.lock_file is None or not self.attachment.is_current():
            return True
        with contextlib.suppress(OSError, Problem):
            return lock.keep(self.attachment.path, self.lock_file)
        return True

    def rest(self, until: float) -> bool:
        """Whether a signal has ended it."""
        return signal.sigtimedwait(SIGNALS, max(0.0, until - time.monotonic())) is not None

    def sleep(self) -> bool:
        """While no tenant is at work. Returns whether a signal has ended it."""
        longest = LONGEST_SLEEP_MS if self.live else LONGEST_SLEEP_ALONE_MS
        return self.attachment.sleep(longest, self.choices, SIGNALS) != 0

    def tick(self) -> float | None:
        """Returns the milliseconds from its beginning to the next tick; None: no tenant is at work."""
        began = time.thread_time()
        self.follow_settings()
        is_new = self.follow_choice()
        look = self.attachment.look()
        if look.live:
            self.needed_at = time.monotonic()
        is_news, self.live = is_new or look.live != self.live, look.live
        at_work = self.activity.most_on_one_gpu(look)
        pause_ms = self.pause_ms(at_work)
        if at_work or is_new:
            hold_ms = max(HELD_TICKS * (pause_ms or CALM_MS), SHORTEST_HOLD_MS)
            self.readings = self.clocks.seen(self.attachment.uuids())
            self.clock_at_work.look(look.views, self.readings)
            decided = {gpu: self.decide(gpu, view) for gpu, view in look.views.items() if view.tenants}
            self.attachment.turn_all(decided.values())
            for gpu, knobs in decided.items():
                self.attachment.turn(gpu, look.places[gpu], knobs.tenants, round(hold_ms * 1e6))
            self.cost_ms += WEIGHT_OF_NEW * ((time.thread_time() - began) * 1000 - self.cost_ms)
        is_news |= self.watch(is_news)
        # While no tenant is at work nothing is decided, and the last report is complete.
        self.is_told &= not (at_work or is_news)
        if not self.is_told and self.report.is_due() and self.attachment.is_current():
            self.weigh_processes()
            self.show(look)
            self.is_told = True
        if time.monotonic() >= self.keep_at or not at_work:
            self.keep_learned()
        return pause_ms

    def pause_ms(self, at_work: int) -> float | None:
        every_ms = self.about.every_ms
        if not at_work:
            return None
        if at_work == 1:
            return max(every_ms, CALM_MS)
        return max(every_ms, min(self.cost_ms / SHARE, LONGEST_PAUSE_MS))

    def decide(self, gpu: int, view: View) -> Knobs:
        try:
            with self.patience():
                if gpu not in self.controllers:
                    self.controllers[gpu] = self.policy()
                    known = pairs.read(self.pairs_file)
                    self.controllers[gpu].recall(pairs.on_gpu(known, self.attachment.uuids()[gpu]))
                seen = replace(view, gpu=self.readings.get(gpu, NOT_YET).state)
                return border.knobs(self.controllers[gpu].tick(seen), border.LIVE_RULES)
        except BaseException as error:  # anybody may write a policy; the tenants must not suffer
            self.fall_back(f"the policy {self.about.name} failed ({border.shown(error)})")
            return Strict().tick(view)

    @contextlib.contextmanager
    def patience(self) -> Iterator[None]:
        """What a policy does in it ends after a while, also where it would not by itself."""
        if not self.patience_seconds:
            yield
            return
        with limited(self.patience_seconds):
            yield

    def follow_settings(self) -> None:
        """Files may have changed."""
        if self.settings is None or not self.attachment.is_current():
            return
        self.settings.follow(self.attachment.header, self.patience)
        self.default_policy = str(self.settings.wanted["policy"].value)
        self.linger_seconds = float(self.settings.wanted["linger"].value)

    def watch(self, is_news: bool) -> bool:
        """Writes down what has happened. Returns whether a promise has another verdict."""
        if self.events is None or not self.attachment.is_current():
            return False
        before = self.events.verdicts
        self.events.decides(self.about.name, self.problem, self.settings.problem if self.settings else "")
        self.events.look(is_news)
        return self.events.verdicts != before

    def follow_choice(self) -> bool:
        """Whether another policy takes over, or the same one starts anew."""
        # The count first: a name that is written meanwhile is read at the next tick.
        choices, name = self.attachment.choices, self.attachment.policy or self.default_policy
        is_named_again = name == self.wanted and choices != self.choices
        self.choices = choices
        # One that works keeps what it has learned, unless its file is another now.
        is_mended = is_named_again and (self.problem or registry.source_of(name) != self.source)
        if name == self.wanted and not is_mended:
            return False
        self.wanted = name
        self.controllers = {}
        try:
            self.source = registry.source_of(name)
            with self.patience():
                self.policy = registry.find_live(name, anew=is_named_again)
                self.about, self.problem = registry.about(self.policy), ""
        except Problem as problem:
            self.fall_back(problem.message)
        except BaseException as error:  # whatever its file does while it is loaded
            self.fall_back(f"the policy {name} cannot be loaded ({border.shown(error)})")
        return True

    def fall_back(self, problem: str) -> None:
        self.policy, self.about, self.controllers = Strict, registry.about(Strict), {}
        self.problem = f"{problem}: strict goes on in its place"

    def show(self, look: Look) -> None:
        began, lines, clocks = time.thread_time(), {}, {}
        for gpu, places in look.places.items():
            processes = {place.id: (place.row.pid, place.row.started) for place in places}
            for place in places:
                if gpu not in self.controllers:
                    break
                key = (place.row.pid, place.row.started, gpu)
                lines[key] = [told(one, processes) for one in self.explained(gpu, place.id)]
                if mhz := self.clock_at_work.mean_mhz.get((gpu, place.id)):
                    clocks[key] = mhz
        verdicts = self.events.verdicts if self.events else {}
        self.report.show(self.about.name, self.problem, lines, self.readings, clocks, verdicts)
        self.report.pause(time.thread_time() - began)

    def weigh_processes(self) -> None:
        """Each list once: what is written of it holds until the next."""
        for gpu, reading in self.readings.items():
            if reading.processes is self.listed.get(gpu):
                continue
            self.listed[gpu] = reading.processes
            with contextlib.suppress(Problem, OSError):
                found = outsiders.among(reading.processes, jobs.look(self.attachment.path).tenants) or ()
                self.attachment.note_outsiders(gpu, any(one.pid in reading.working for one in found))

    def explained(self, gpu: int, tenant: TenantId) -> list[str]:
        try:
            with self.patience():
                return border.sentences(self.controllers[gpu].explain(tenant))
        except TooLong as error:
            self.fall_back(f"the policy {self.about.name} failed ({error!r})")
            return []
        except BaseException as error:  # as above
            return [f"The policy {self.about.name} cannot say what it does: {border.shown(error)}."]

    def keep_learned(self) -> None:
        """For later runs: what the controllers have learned since this was last done."""
        self.keep_at = time.monotonic() + KEEP_SECONDS
        if self.pairs_file is None:
            return
        uuids = self.attachment.uuids()
        for gpu, controller in self.controllers.items():
            # Anybody may write a policy: one that cannot say what it has learned is not remembered.
            with contextlib.suppress(Exception, TooLong), self.patience():
                self.learned.setdefault(gpu, {}).update(border.pairs(controller.learned()))
        for gpu, learned in self.learned.items():
            if learned and gpu in uuids and pairs.keep(self.pairs_file, uuids[gpu], learned):
                self.learned[gpu] = {}

    def is_needed(self) -> bool:
        if self.live or time.monotonic() - self.needed_at < self.linger_seconds:
            return True
        # A job that has not used its GPU yet is no tenant.
        if self.attachment.is_current():
            path = self.attachment.path
            self.under = self.under if self.under and is_under(path, self.under) else somebody_under(path)
            if self.under:
                self.needed_at = time.monotonic()
                return True
        return False


def told(sentence: str, processes: Mapping[TenantId, tuple[int, int]]) -> Told:
    """With the process that it is about, where that is another than the one asked about."""
    return Told(sentence, processes.get(sentence.about) if isinstance(sentence, Said) else None)


class Activity:
    """Who is at work."""

    def __init__(self) -> None:
        self.operations: dict[tuple[int, TenantId], int] = {}  # at the last look
        self.worked_us: dict[tuple[int, TenantId], float] = {}  # when it last had work

    def most_on_one_gpu(self, look: Look) -> int:
        """How many tenants are at work on the GPU that most are on."""
        before, self.operations = self.operations, {}
        worked, self.worked_us = self.worked_us, {}
        most = 0
        for gpu, view in look.views.items():
            count = 0
            for tenant in view.tenants:
                key = (gpu, tenant.id)
                self.operations[key] = tenant.operations
                works = tenant.has_work or tenant.operations != before.get(key, tenant.operations)
                last_us = view.now_us if works else worked.get(key)
                if last_us is not None and view.now_us - last_us < ACTIVE_US:
                    self.worked_us[key] = last_us
                    count += 1
            most = max(most, count)
        return most


def somebody_under(path: Path) -> int | None:
    """A process that was started for this segment, by `run` or by one that `run` started."""
    numbers = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return next((pid for pid in numbers if is_under(path, pid)), None)


def is_under(path: Path, pid: int) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    mark = os.fsencode(f"COTENANT_SEGMENT={path}")
    return mark in environment and any(one.startswith(b"COTENANT_RUN_ID=") for one in environment)
