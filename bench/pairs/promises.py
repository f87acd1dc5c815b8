"""Promised slowdowns: are they kept in every window, and does the other job get what it could have within them?

    ratio of a window   mean service of the requests that ended in it / the same over all windows of the same process
                        with nobody beside it, just before: two equal processes may differ by more than a promise
    windows             of 4 s, from 2 s after the other job's arrival on
    alone again         a process that nobody ever joins, and so noise: beside each count of windows over a promise
                        stands how many are over it by more than the worst of these
    best constant duty  the most work of the other job at a constant rate whose mean ratio is within the promise, found
                        by a sweep in the same run, on a line between neighbouring rates

The sweep has processes and a segment of its own without a daemon, so that nobody but this program sets a rate.

At the end of each promise's window `cotenant explain` of the production job is kept, and what the policy said last is
printed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from catalogue import CONTROL, DUTIES, MODES, PROMISED, SOLO, UNSTEERED_OPPORTUNISTIC, Pair
from crew import Crew
from intervals import MET, MISSED, Estimate, of_ratios, of_shares, shown
from rounds import Narrate, Observation, Window, observe, plan, warm_up

from cotenant import segment
from cotenant.demo.opportunistic import steps_within
from cotenant.errors import Problem

SETTLING_SECONDS = 2.0
WINDOW_SECONDS = 4.0
LEAST_OF_BEST = 0.9
HELD_NS = 50 * 10**9  # a rate: longer than any window of one
TOLD = 3  # sentences of the policy that are printed


def set_rate(path: Path, pid: int, rate: float) -> None:
    """As a daemon would, on all GPUs; 0: next to nothing; 1: no limit."""
    memory = segment.FileSegment(path).writable()
    for at in range(segment.PLACE, segment.SEGMENT_BYTES, segment.PLACE):
        slot = segment.Slot.from_buffer(memory, at)
        if slot.pid == pid and segment.is_live(slot):
            for gpu in slot.gpus:
                gpu.rate = 0 if rate >= 1 else max(1, round(1000 * rate))
                gpu.rate_until_ns = segment.now_ns() + HELD_NS


def measure(
    crew: Crew, pair: Pair, modes: Sequence[str], rounds: int, seconds: float, narrate: Narrate
) -> dict[str, list[Observation]]:
    everything = [*modes, SOLO]
    baselines = {mode: alone_of(mode) for mode in modes if mode in PROMISED or mode in DUTIES}
    # Each way of starting once; guard meets the neighbour's arrival in the windows themselves.
    warm_up(crew, pair, ["alone", SOLO, *[mode for mode in modes if mode in PROMISED]])
    seen: dict[str, list[Observation]] = {mode: [] for mode in (*everything, *baselines.values())}
    for number, windows in enumerate(plan(everything, rounds, seconds), start=1):
        narrate(f"{pair.name}: round {number} of {rounds}: {', '.join(window.mode for window in windows)}")
        for planned in windows:
            window = planned
            baseline = baselines.get(planned.mode)
            if baseline and len(seen[baseline]) < number:
                observation = observe(crew, pair.production, None, planned)
                narrate(f"{pair.name}: {baseline}: {in_passing(observation)}")
                seen[baseline].append(observation)
            if planned.mode in DUTIES:
                worker = crew.worker(pair.opportunistic, UNSTEERED_OPPORTUNISTIC)
                try:
                    path = crew.segment_of(UNSTEERED_OPPORTUNISTIC)
                    set_rate(path, worker.pid, DUTIES[planned.mode])
                except (OSError, segment.BadSegment) as error:
                    raise Problem(f"no rate can be set: {error}") from None
                # A constant rate needs no time to be found: one window is enough.
                window = dataclasses.replace(planned, seconds=min(seconds, SETTLING_SECONDS + WINDOW_SECONDS))
            with unlimited_afterwards(crew, pair, window):
                observation = observe(crew, pair.production, pair.opportunistic, window)
            narrate(f"{pair.name}: {planned.mode}: {in_passing(observation)}")
            if planned.mode in PROMISED:
                explained = crew.explained(pair.production, MODES[planned.mode][0] or "")
                observation = dataclasses.replace(observation, explained=explained)
                for told in of_policy(explained):
                    narrate(f"{pair.name}: {planned.mode}: {told}")
            seen[planned.mode].append(observation)
    return seen


@contextlib.contextmanager
def unlimited_afterwards(crew: Crew, pair: Pair, window: Window) -> Iterator[None]:
    """One that stands at its gate would take minutes to end the step that it is in."""
    if DUTIES.get(window.mode) != 0:
        yield
        return
    worker = crew.worker(pair.opportunistic, UNSTEERED_OPPORTUNISTIC)
    path = crew.segment_of(UNSTEERED_OPPORTUNISTIC)
    timer = threading.Timer(crew.pace.notice + window.seconds, set_rate, (path, worker.pid, 1.0))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def alone_of(mode: str) -> str:
    """What the windows of the mode are compared with: where two modes have one process, the same."""
    return "alone" if mode == CONTROL else f"alone as {MODES[mode][0]}"


def of_policy(explained: Sequence[str]) -> list[str]:
    """What the policy said last, the newest first."""
    begins = next(
        (number for number, line in enumerate(explained) if line.startswith("policy ")), len(explained)
    )
    return [line.strip() for line in explained[begins + 1 :][:TOLD]]


def spans(seconds: float) -> list[tuple[float, float]]:
    """The windows of so many seconds; of too few for one, what there is after the first third."""
    count = int((seconds - SETTLING_SECONDS) / WINDOW_SECONDS + 1e-9)
    if count < 1:
        return [(min(SETTLING_SECONDS, seconds / 3), seconds)]
    first = SETTLING_SECONDS
    return [
        (first + WINDOW_SECONDS * number, first + WINDOW_SECONDS * (number + 1)) for number in range(count)
    ]


def mean_services(seen: Observation) -> list[float | None]:
    """Of each window; None: no request ended in it."""
    found = []
    for begin, end in spans(seen.samples.seconds):
        inside = [
            service
            for service, ended in zip(seen.samples.services_ms, seen.ended_s, strict=True)
            if begin <= ended < end
        ]
        found.append(statistics.fmean(inside) if inside else None)
    return found


def in_passing(seen: Observation) -> str:
    """What a run that is cut short has shown by then."""
    means = ", ".join("none" if one is None else f"{one:.3f}" for one in mean_services(seen))
    return f"mean service {means} ms, other job {work_rate(seen):.1f} steps/s"


def work_rate(seen: Observation) -> float:
    """Steps a second once it has settled."""
    begin, end = spans(seen.samples.seconds)[0][0], seen.samples.seconds
    return steps_within(seen.completions_s, begin, end) / (end - begin)


@dataclasses.dataclass(frozen=True)
class Kept:
    mode: str
    promised: float | None  # None: a constant duty, or nobody beside it
    windows: list[float]  # ratios
    service_mean: Estimate
    share: Estimate

    def over(self, noise: float = 1.0) -> int:
        """`noise`: what a window's ratio may come to with nobody there."""
        if self.promised is None:
            return 0
        return sum(ratio > (1 + self.promised) * noise for ratio in self.windows)

    @property
    def worst(self) -> float:
        return max(self.windows)


def kept(mode: str, seen: Mapping[str, Sequence[Observation]]) -> Kept:
    above, below, shares = [], [], []
    for ours, alone, solo in zip(seen[mode], seen[alone_of(mode)], seen[SOLO], strict=True):
        means, bases = ([one for one in mean_services(run) if one is not None] for run in (ours, alone))
        if bases:
            above += means
            below += [statistics.fmean(bases)] * len(means)
        shares.append(work_rate(ours) / solo.samples.steps_per_second)
    if not above:
        raise Problem(f"no request was answered in a window of {mode}: give more --seconds")
    ratios = [one / base for one, base in zip(above, below, strict=True)]
    return Kept(mode, PROMISED.get(mode), ratios, of_ratios(above, below), of_shares(shares))


def best_constant(sweep: Sequence[Kept], promised: float) -> float:
    """The most work within the promise: nothing at all is always within it."""
    limit = 1.0 + promised
    points = sorted((one.share.value, one.service_mean.value) for one in sweep)
    best, before = 0.0, (0.0, 1.0)
    for share, ratio in points:
        if ratio <= limit:
            best = max(best, share)
        elif before[1] <= limit:
            part = (limit - before[1]) / (ratio - before[1])
            best = max(best, before[0] + part * (share - before[0]))
        before = (share, ratio)
    return best


def figures(pair: Pair, seen: Mapping[str, Sequence[Observation]]) -> dict[str, Any]:
    found = [kept(mode, seen) for mode in seen if mode in PROMISED or mode in DUTIES or mode == CONTROL]
    sweep = [one for one in found if one.mode in DUTIES]
    noise = next((max(1.0, one.worst) for one in found if one.mode == CONTROL), None)
    rows, misses = [], []
    for one in found:
        row: dict[str, Any] = {
            **dataclasses.asdict(one),
            "over": one.over(),
            "over_noise": None if noise is None else one.over(noise),
            "worst": one.worst,
            "best": None,
            "of_best": None,
        }
        rows.append(row)
        if one.promised is None:
            continue
        verdict = MISSED if one.over() else one.service_mean.at_most(1 + one.promised)
        if verdict != MET:
            misses.append(
                f"{one.mode}: service mean {shown(one.service_mean)} x alone, "
                f"{one.over()} of {len(one.windows)} windows over, the worst {one.worst:.2f}: {verdict}"
            )
        if sweep:
            row["best"] = best_constant(sweep, one.promised)
            row["of_best"] = one.share.value / row["best"] if row["best"] else None
            if row["of_best"] is not None and row["of_best"] < LEAST_OF_BEST:
                misses.append(
                    f"{one.mode}: work {row['of_best']:.2f} of the best constant duty, "
                    f"wanted {LEAST_OF_BEST:.2f}: {MISSED}"
                )
    return {"pair": pair.name, "rows": rows, "misses": misses}


def in_words(found: Mapping[str, Any]) -> Iterator[str]:
    """A line for each mode."""
    for row in found["rows"]:
        over = "" if row["promised"] is None else f", {row['over']} of {len(row['windows'])} windows over"
        best = "" if row["of_best"] is None else f", {row['of_best']:.2f} of the best constant duty"
        mean, share = row["service_mean"]["value"], row["share"]["value"]
        yield f"{found['pair']}: {row['mode']:12} service mean {mean:.3f}x{over}, other job {share:.0%}{best}"
