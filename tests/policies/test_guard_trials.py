"""In one MPS daemon guard tries overlap within seconds also beside a job whose cost varies from window to window, or
falls as it warms up: turns tell what it costs, and a trial lasts as long as its windows are unclear."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from itertools import groupby
from statistics import fmean
from typing import Any

import pytest

from cotenant.policies.guard.cost import Alone
from cotenant.policies.guard.policy import Guard
from cotenant.policies.guard.position import STRICT, TOLERANT
from cotenant.policies.interface import TenantKnobs
from tests.policies.bench import NEIGHBOUR, PRODUCTION, TICK_US, Plant
from tests.policies.test_guard_job import SECOND_US, known_job, production, window

SWING_US = 300_000.0  # about a window
# A job's first second on an H200, and later: microseconds of its GPU and of its CPU for an operation.
WARMS_UP = ((0.0, 69.0, 5.0), (1.2, 11.6, 58.0), (3.0, 6.6, 58.0))


@dataclass
class Swinging(Plant):
    """Requests come by chance, and what an operation takes on the GPU is another from window to window."""

    mps_daemon: int = 7
    overlap: float = 0.95
    every_us: float = 25_000.0
    swing: float = 0.0  # sigma
    warms_up: tuple[tuple[float, float, float], ...] = ()
    tolerated: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.chance = random.Random(self.seed + 1000)
        self.base = (self.operation_us, self.host_us)
        self.factor, self.swings_us = 1.0, 0.0

    def launch(self) -> None:
        if self.now_us >= self.swings_us:
            self.factor = self.chance.lognormvariate(0, self.swing)
            self.swings_us = self.now_us + SWING_US
        phases = [phase[1:] for phase in self.warms_up if self.now_us >= phase[0] * 1e6]
        run_us, self.host_us = phases[-1] if phases else self.base
        self.operation_us = run_us * self.factor
        before = self.launched
        super().launch()
        if self.launched != before:
            self.next_us = self.now_us + self.every_us * min(self.chance.expovariate(1.0) + 0.05, 4.0)

    def advance(self, until_us: float) -> None:
        production = self.knobs.tenants.get(PRODUCTION, TenantKnobs())
        neighbour = self.knobs.tenants.get(NEIGHBOUR, TenantKnobs())
        self.tolerated.append(production.tolerant and not neighbour.shut)
        super().advance(until_us)

    @property
    def overlapped(self) -> float:
        return sum(self.tolerated) / len(self.tolerated)

    @property
    def first_s(self) -> float:
        return self.tolerated.index(True) * TICK_US / 1e6

    @property
    def longest_s(self) -> float:
        return max(len(list(run)) for is_on, run in groupby(self.tolerated) if is_on) * TICK_US / 1e6


def eager(whole: float = 1.0, **about: Any) -> Swinging:
    """Nine tenths of its time are its CPU's; overlap makes all of it `whole` times as long."""
    harm = (whole - 1) * (6.6 + 58.0) / 6.6
    return Swinging(
        operations=122,
        operation_us=6.6,
        host_us=58.0,
        host_noise=0.15,
        noise=0.1,
        tolerant_slowdown=harm,
        **about,
    )


def dense(whole: float = 1.0, **about: Any) -> Swinging:
    return Swinging(operations=50, operation_us=100.0, tolerant_slowdown=whole - 1, **about)


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: eager(warms_up=WARMS_UP, swing=0.1, seed=seed),
        lambda seed: eager(warms_up=WARMS_UP, swing=0.3, seed=seed),
        lambda seed: eager(swing=0.3, seed=seed),
        lambda seed: dense(swing=0.1, seed=seed),
    ],
    ids=["warms up", "warms up and varies", "varies", "without a CPU"],
)
def test_overlap_that_costs_a_noisy_job_nothing_is_found_within_seconds(make: Any) -> None:
    at_first, then = [], []
    for seed in range(1, 5):
        plant, guard = make(seed), Guard()
        plant.play(guard, 10)
        assert plant.first_s < 3
        at_first.append(plant.overlapped)
        plant.tolerated = []
        plant.play(guard, 10)
        then.append(plant.overlapped)
    # Chance may end one of them for some seconds.
    assert fmean(at_first) > 0.5 and fmean(then) > 0.7


@pytest.mark.parametrize("overlap", [0.95, 0.1])
@pytest.mark.parametrize("every_us", [0.0, 7_000.0])
def test_beside_a_job_without_pauses_overlap_is_tried_too(every_us: float, overlap: float) -> None:
    """In turns nobody would ever run."""
    plant, guard = eager(every_us=every_us, overlap=overlap), Guard()
    plant.play(guard, 10)
    assert plant.first_s < 3 and plant.overlapped > 0.7
    harmed, guard = eager(3.0, every_us=every_us), Guard()
    assert harmed.play(guard, 10).slowdown < 0.08


@pytest.mark.parametrize(("mps_daemon", "stays"), [(7, True), (0, False)])
def test_overlap_that_is_harmless_stays_whatever_it_brings(mps_daemon: int, stays: bool) -> None:
    plant, guard = dense(overlap=0.05, mps_daemon=mps_daemon), Guard()
    plant.play(guard, 70)  # elsewhere the first try comes after a minute
    assert any(plant.tolerated)
    plant.tolerated = []
    plant.play(guard, 10)
    assert (plant.overlapped > 0.9) is stays


@pytest.mark.parametrize("whole", [1.3, 3.0, 69.0])
@pytest.mark.parametrize(
    "make",
    [
        lambda whole: eager(whole, warms_up=WARMS_UP, swing=0.3),
        lambda whole: eager(whole, swing=0.3),
        lambda whole: dense(whole, swing=0.1),
    ],
    ids=["warms up", "eager", "without a CPU"],
)
def test_overlap_that_harms_a_noisy_job_is_ended_within_half_a_second(make: Any, whole: float) -> None:
    plant, guard = make(whole), Guard()
    assert plant.play(guard, 10).slowdown < 0.08
    assert plant.longest_s < 0.5
    assert plant.play(guard, 5).slowdown < 0.03


@pytest.mark.parametrize("strict", [1.0, 2.0])
def test_turns_that_make_a_noisy_job_several_times_as_slow_keep_the_neighbour_off(strict: float) -> None:
    """They are not taken for what it costs alone."""
    for seed in range(1, 4):
        plant, guard = dense(2.0, strict_slowdown=strict, swing=0.3, seed=seed), Guard()
        plant.play(guard, 10)
        assert plant.play(guard, 10).slowdown < 0.2


def together(**about: Any) -> Any:
    job = known_job(**about)
    job.go_together(True)
    job.trials.shared_us = 2 * SECOND_US
    return job


def test_turns_tell_that_a_job_costs_less_than_was_known_and_nobody_is_shut_for_that() -> None:
    job = together()
    job.meet(window(50.0), SECOND_US, TOLERANT)
    assert job.alone.cost == 100.0 and job.position == STRICT  # chance, perhaps
    job.meet(window(54.0), 2 * SECOND_US, TOLERANT)
    assert job.alone.cost == pytest.approx(52.0)
    # One window is not trusted, and no longer asks for more than turns can tell.
    job.meet(window(52.0), 3 * SECOND_US, TOLERANT)
    assert job.alone.windows == 2 and not job.needs_calibration(3 * SECOND_US)


def test_a_job_that_is_faster_beside_others_than_alone_asks_turns_once() -> None:
    job = together()
    job.trials.tolerate(is_trial=True)
    job.meet(window(90.0, TOLERANT), SECOND_US, TOLERANT)
    assert job.position == STRICT and job.alone.cost == 100.0
    assert not job.trials.back_off.holds(job.trials.shared_us)
    job.meet(window(100.0), 2 * SECOND_US, TOLERANT)
    assert job.position == TOLERANT
    for number in range(4):
        job.meet(window(90.0, TOLERANT), (3 + number) * SECOND_US, TOLERANT)
    assert job.position == TOLERANT and not job.trials.is_on_trial


@pytest.mark.parametrize(
    ("costs", "is_kept_off"),
    [([260.0], True), ([220.0], False), ([220.0, 220.0], True), ([160.0] * 2, False), ([160.0] * 3, True)],
)
def test_the_grosser_turns_are_the_fewer_windows_keep_the_neighbour_off(
    costs: list[float], is_kept_off: bool
) -> None:
    job = together()
    for number, cost in enumerate(costs):
        assert job.position == STRICT
        job.meet(window(cost), number * SECOND_US, TOLERANT)
    assert (job.position < STRICT) is is_kept_off


def test_what_is_gross_on_trial_is_over_what_windows_vary_by() -> None:
    for spread, becomes in ((0.02, STRICT), (0.1, TOLERANT)):
        job = together(spread=spread)
        job.trials.tolerate(is_trial=True)
        part = job.meter.parts[TOLERANT]
        part.grown = replace(part.grown, operations=10, bursts=2, busy_us=1_300.0)
        job.end_gross_company(production(), 0.0)
        assert job.position == becomes


def test_a_cost_alone_that_turns_cannot_tell_apart_from_theirs_is_known_better_by_them() -> None:
    noisy, quiet = Alone(100.0, 0.0, spread=0.1, windows=2), Alone(100.0, 0.0, spread=0.01, windows=2)
    for alone, cost in ((noisy, 103.0), (quiet, 100.0)):
        job = together()
        job.meter.alone = alone
        job.trials.back_off.until_us = 10 * SECOND_US
        job.meet(window(109.0), SECOND_US, TOLERANT)
        assert alone.cost == pytest.approx(cost)
