"""guard's meter by its own figures: when a window is whole, what counts as alone, what is odd, and what a job's own CPU
takes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cotenant.classes import TenantClass
from cotenant.policies.guard.cost import Alone, Below, Meter, Part, Stretch, Window, times_us
from cotenant.policies.guard.position import SHUT, STRICT, TOLERANT
from cotenant.policies.interface import Tenant
from cotenant.policies.window import Growth

TICK_US = 10_000.0
NOBODY = Below(ran_us=0.0, floors=0.0, want=False, level=STRICT, duty=1.0, moves=False)
COMPANY = Below(ran_us=5_000.0, floors=0.0, want=True, level=STRICT, duty=1.0, moves=False)


def production(**about: Any) -> Tenant:
    return replace(Tenant(1, TenantClass.production), **about)


def window(cost: float, **about: Any) -> Window:
    return replace(Window(SHUT, cost, 1.0, 0.0, 8, 0.0), **about)


def alone(cost: float, **about: Any) -> Alone:
    return replace(Alone(cost, 0.0, spread=0.01, windows=4), **about)


class Metered:
    """A meter that is shown a job tick by tick, and when its windows ended."""

    def __init__(self) -> None:
        self.now_us, self.tenant = 0.0, production()
        self.meter = Meter.of(self.tenant, 0.0, lambda _: None)
        self.ended: list[tuple[int, Window]] = []  # the tick

    def ticks(self, count: int, below: Below, mhz: float = 0.0, **grown: Any) -> Metered:
        has_work = grown.pop("has_work", False)
        for _ in range(count):
            self.now_us += TICK_US
            counts = {name: getattr(self.tenant, name) + more for name, more in grown.items()}
            self.tenant = replace(self.tenant, has_work=has_work, **counts)
            found = self.meter.look(self.tenant, self.now_us, TICK_US, below, mhz)
            if found is not None:
                self.ended.append((round(self.now_us / TICK_US), found))
        return self

    @property
    def when(self) -> list[int]:
        return [tick for tick, _ in self.ended]

    @property
    def levels(self) -> list[float]:
        return [one.level for _, one in self.ended]


def test_a_window_is_whole_after_100_ms_at_work_and_8_bursts() -> None:
    whole = Metered().ticks(20, COMPANY, operations=10, bursts=1, busy_us=1_000.0)
    assert whole.when == [10, 20]
    # Every other tick is a pause: 10 ms at work of 20.
    metered = Metered()
    for _ in range(10):
        metered.ticks(1, COMPANY, operations=10, bursts=1, busy_us=1_000.0).ticks(1, COMPANY)
    assert metered.when == [19]
    # Bursts of 20 ms: 160 ms at work.
    metered = Metered()
    for _ in range(10):
        metered.ticks(1, COMPANY, operations=10, bursts=1, busy_us=1_000.0, has_work=True)
        metered.ticks(1, COMPANY, busy_us=1_000.0)
    assert metered.when == [16]


@pytest.mark.parametrize(("operations", "whole_after"), [(10, [20, 40]), (5, [40])])
def test_or_after_200_ms_at_work_and_200_operations(operations: int, whole_after: list[int]) -> None:
    """One burst that is never counted as ended: each tick ends without work."""
    metered = Metered().ticks(40, COMPANY, operations=operations, busy_us=1_000.0)
    assert metered.when == whole_after


@pytest.mark.parametrize(
    ("ran_us", "floors", "level"),
    [(0.0, 0.0, SHUT), (100.0, 0.0, SHUT), (150.0, 0.0, STRICT), (600.0, 0.05, SHUT), (650.0, 0.05, STRICT)],
)
def test_alone_is_with_one_percent_of_others_at_most_beside_their_floors(
    ran_us: float, floors: float, level: float
) -> None:
    below = replace(NOBODY, ran_us=ran_us, floors=floors)
    assert Metered().ticks(10, below, operations=10, bursts=1, busy_us=1_000.0).levels == [level]


def test_who_is_shut_may_want_as_it_likes() -> None:
    shut = replace(COMPANY, ran_us=0.0, level=SHUT)
    assert Metered().ticks(10, shut, operations=10, bursts=1, busy_us=1_000.0).levels == [SHUT]
    assert Metered().ticks(10, replace(shut, level=STRICT), operations=10, bursts=1, busy_us=1.0).levels == [
        STRICT
    ]


def test_it_is_alone_again_a_tenth_of_a_second_after_company() -> None:
    metered = Metered().ticks(10, COMPANY, operations=10, bursts=1, busy_us=1_000.0)
    metered.ticks(40, NOBODY, operations=10, bursts=1, busy_us=500.0)
    # 9 stretches begin within 100 ms of the last company, and one ends there.
    assert metered.levels[0] == STRICT and metered.levels[-1] == SHUT
    first_alone = next(one for _, one in metered.ended if one.level == SHUT)
    assert first_alone.began_us == 200_000.0


def test_a_job_that_is_never_idle_is_cut_every_100_ms_after_600_ms() -> None:
    metered = Metered().ticks(120, NOBODY, operations=100, busy_us=TICK_US, has_work=True)
    # The first cut is after more than 600 ms, and has all of that; then two cuts of 100 ms make 200 ms.
    assert metered.when == [61, 81, 101]


def test_memory_that_moves_is_left_out_until_the_job_was_idle() -> None:
    metered = Metered().ticks(1, COMPANY, operations=10, bursts=1, busy_us=100.0, has_work=True)
    metered.ticks(5, replace(COMPANY, moves=True), operations=10, busy_us=9_000.0, has_work=True)
    metered.ticks(5, COMPANY, operations=10, busy_us=9_000.0, has_work=True)
    assert metered.ticks(1, COMPANY, busy_us=9_000.0).ended == []
    metered.ticks(10, COMPANY, operations=10, bursts=1, busy_us=1_000.0)
    assert [one.cost for _, one in metered.ended] == pytest.approx([100.0])


def test_a_window_has_the_clock_that_its_work_was_done_at() -> None:
    metered = Metered().ticks(5, COMPANY, mhz=1980.0, operations=10, bursts=1, busy_us=1_000.0)
    metered.ticks(5, COMPANY, mhz=990.0, operations=10, bursts=1, busy_us=2_000.0)
    assert [one.mhz for _, one in metered.ended] == pytest.approx([(1980 * 5 + 990 * 10) / 15])


def test_the_share_of_a_window_is_the_part_of_its_busy_time_at_its_level() -> None:
    tolerated = replace(COMPANY, level=TOLERANT)
    metered = Metered()
    for _ in range(10):
        metered.ticks(1, tolerated, operations=10, bursts=1, busy_us=1_000.0, has_work=True)
        metered.ticks(1, replace(COMPANY, duty=0.5), operations=10, busy_us=3_000.0)
    assert metered.levels == [TOLERANT] and metered.ended[0][1].share == pytest.approx(0.25)


SEEN = Growth(
    operations=100, bursts=2, busy_us=100.0, gap_us=10.0, blocked_us=30.0, blocking_calls=2, own_cpu_us=45.0
)


@pytest.mark.parametrize(
    ("grown", "times"),
    [
        (SEEN, (75.0, 45.0)),
        # Less often than once a burst, or than once in 1000 operations, or never: only empty streams are known.
        (replace(SEEN, blocking_calls=1), (100.0, 10.0)),
        (replace(SEEN, operations=3000, bursts=1), (100.0, 10.0)),
        (Growth(operations=100, bursts=0, busy_us=100.0, gap_us=10.0), (100.0, 10.0)),
        (Growth(operations=100, bursts=0, busy_us=100.0, gap_us=120.0), (100.0, 100.0)),
    ],
)
def test_how_long_a_job_took_and_what_its_own_cpu_took_of_that(
    grown: Growth, times: tuple[float, float]
) -> None:
    assert times_us(grown) == times


def test_whoever_sleeps_is_believed_that_its_cpu_time_is_work_and_a_thread_that_may_spin_is_not() -> None:
    """Between bursts of 1 ms, 0.4 ms of which they wait for the GPU, threads are awake for 2 ms or asleep."""
    about = {"operations": 10, "bursts": 1, "busy_us": 1_000.0, "blocked_us": 400.0, "blocking_calls": 1}
    metered = Metered()
    metered.ticks(20, NOBODY, own_cpu_us=2_600.0, **about)
    assert {one.cost for _, one in metered.ended} == {100.0}
    # A tenth of that is enough.
    sleeping = Metered()
    sleeping.ticks(20, NOBODY, own_cpu_us=2_600.0, asleep_us=261.0, **about)
    assert [one.cost for _, one in sleeping.ended] == pytest.approx([300.0] * len(sleeping.ended))
    assert metered.ended and sleeping.ended


def test_what_was_learned_of_a_thread_that_sleeps_is_of_no_use_once_it_does_not() -> None:
    about = {"operations": 10, "bursts": 1, "busy_us": 1_000.0, "blocked_us": 400.0, "blocking_calls": 1}
    metered = Metered()
    metered.ticks(20, NOBODY, own_cpu_us=2_600.0, asleep_us=1_000.0, **about)
    metered.meter.learn(metered.ended[0][1], metered.now_us)
    # That takes a while.
    for ticks, is_known in ((40, True), (400, False)):
        metered.ticks(ticks, NOBODY, own_cpu_us=2_600.0, **about)
        assert (metered.meter.sleeps, metered.meter.alone is not None) == (is_known, is_known)


def test_a_window_is_a_mean_of_operations() -> None:
    part = Part()
    first = production()
    after = production(
        operations=50,
        bursts=4,
        busy_us=1_000.0,
        gap_us=100.0,
        blocked_us=400.0,
        blocking_calls=4,
        own_cpu_us=500.0,
    )
    stretch = Stretch(7.0, first, worked_us=2_000.0)
    stretch.at_us[STRICT], stretch.clocked = 250.0, 1e6
    part.add(stretch, stretch.grown(after), STRICT)
    assert part.window(STRICT) == Window(STRICT, 18.0, 0.25, 1_000.0, 4, 7.0, 10.0, 2.0)
    assert Part().window(STRICT) is None


@pytest.mark.parametrize(
    ("bursts", "operations", "enough"), [(3, 3, True), (2, 99, False), (2, 100, True), (0, 0, False)]
)
def test_a_calibration_ends_with_something(bursts: int, operations: int, enough: bool) -> None:
    assert Part(grown=Growth(operations=operations, bursts=bursts)).is_something == enough


# ---- the cost alone ----


def test_doubt_follows_its_formula() -> None:
    assert alone(100.0).doubt(4) == pytest.approx(0.01 * (1 / 4 + 1 / 4) ** 0.5)
    assert alone(100.0).doubt(0) == alone(100.0).doubt(1)


@pytest.mark.parametrize(("cost", "odd"), [(104.4, False), (104.6, True), (95.6, False), (95.4, True)])
def test_a_window_is_odd_beyond_four_spreads(cost: float, odd: bool) -> None:
    known = alone(100.0)  # whose doubt about one window is 1.12 %
    assert not known.learn(window(cost), 5.0)
    assert (known.odd is not None) == odd
    assert known.learned_us == 5.0
    assert known.cost == pytest.approx(100.0 if odd else 100.0 + (cost - 100.0) / 4)


@pytest.mark.parametrize(
    ("second", "changed"), [(160.0, True), (171.0, True), (172.0, False), (126.0, False)]
)
def test_two_odd_windows_are_alike_within_three_tenths(second: float, changed: bool) -> None:
    known = alone(100.0)
    assert not known.learn(window(150.0), 1.0)
    assert known.learn(window(second), 2.0) == changed
    assert not changed or (known.cost, known.windows) == (150.0, 2)


def test_the_spread_follows_differences_by_a_fifth() -> None:
    known = alone(100.0)
    known.saw_difference(-0.016)
    assert known.spread == pytest.approx(0.01 + 0.2 * (0.02 - 0.01))
    known.saw_difference(10.0)  # one is taken for three spreads at most
    assert known.spread == pytest.approx(0.012 + 0.2 * (0.036 - 0.012))
    for _ in range(50):
        known.saw_difference(0.0)
    assert known.spread == 0.005


@pytest.mark.parametrize(("exact", "spread", "most"), [(0.01, 0.01, 4), (0.01, 0.04, 16), (0.01, 0.5, 64)])
def test_the_mean_remembers_more_windows_the_noisier_they_are(exact: float, spread: float, most: int) -> None:
    known = alone(100.0, exact=exact)
    for _ in range(200):
        known.spread = spread / 0.8 if spread > 0.01 else spread  # that `include` takes to 0.8 of it
        known.include(known.cost)
    assert known.windows == most


@pytest.mark.parametrize(("promise", "exact"), [(None, 0.01), (0.05, 0.0025), (0.5, 0.01)])
def test_the_cost_is_to_be_known_to_a_twentieth_of_the_promise(promise: float | None, exact: float) -> None:
    meter = Meter.of(production(), 0.0, lambda _: None)
    meter.alone = alone(100.0)
    meter.be_exact(promise)
    assert meter.exact == meter.alone.exact == pytest.approx(exact)


def test_of_a_part_of_the_time_a_cost_slows_down_that_part() -> None:
    known = alone(100.0, part=0.25)
    assert known.slowdown(140.0) == pytest.approx(0.1)
    assert known.ratio(0.1) == pytest.approx(1.4)
    assert known.ratio(-1.0) == 0.01


# ---- a job that waits for its own CPU ----


def learned(*windows: Window) -> Meter:
    meter = Meter.of(production(), 0.0, lambda _: None)
    for one in windows:
        meter.learn(one, 0.0)
    return meter


@pytest.mark.parametrize(("host", "is_eager"), [(49.0, False), (51.0, True)])
def test_it_is_eager_when_its_cpu_takes_half(host: float, is_eager: bool) -> None:
    meter = learned(window(100.0, host=host))
    assert meter.is_eager == is_eager and meter.alone is not None
    assert meter.alone.cost == pytest.approx(100.0 - host if is_eager else 100.0)
    assert meter.alone.part == pytest.approx(0.49 if is_eager else 1.0)


@pytest.mark.parametrize(("host", "is_eager"), [(20.0, True), (10.0, False)])
def test_and_stays_eager_down_to_four_tenths(host: float, is_eager: bool) -> None:
    """The mean of 70 and 20 is 45 us, of 70 and 10 it is 40: of 125 us, and of 130."""
    meter = learned(window(100.0, host=70.0), window(100.0 - 15.0, host=host))
    assert meter.host == pytest.approx((70.0 + host) / 2)
    assert meter.is_eager == (meter.host / (85.0 - host + meter.host) > 0.4) == is_eager


def test_an_eager_job_is_judged_by_its_gpu_time_unless_that_hides_something_gross() -> None:
    meter = learned(window(100.0, host=60.0, gap=50.0))
    assert meter.judged(window(130.0, host=80.0, gap=70.0)).cost == pytest.approx(50.0)
    # 51 us more with streams that are not empty are gross; 49 are not.
    assert meter.judged(window(149.0, host=109.0, gap=50.0)).cost == pytest.approx(40.0)
    assert meter.judged(window(151.0, host=111.0, gap=50.0)).cost == pytest.approx(40.0 + 51.0)
    # Streams that are never empty any more cost nothing where it took no longer.
    assert meter.judged(window(110.0, host=60.0, gap=0.0)).cost == pytest.approx(50.0)
    assert meter.judged(window(149.0, host=60.0, gap=0.0)).cost == pytest.approx(89.0)
    assert meter.judged(window(151.0, host=100.0, gap=20.0)).cost == pytest.approx(40.0 + 51.0)
    plain = learned(window(100.0, host=10.0))
    assert plain.judged(window(300.0, host=200.0)).cost == 300.0


@pytest.mark.parametrize(("busy_us", "drags"), [(1_490.0, False), (1_510.0, True)])
def test_a_stretch_drags_on_before_it_has_ended(busy_us: float, drags: bool) -> None:
    meter = learned(window(100.0))
    assert not meter.drags_on(production(), 0.5)
    assert meter.drags_on(production(operations=10, busy_us=busy_us), 0.5) == drags


def test_only_the_levels_that_were_named_are_forgotten() -> None:
    metered = Metered()
    metered.ticks(5, NOBODY, operations=10, bursts=1, busy_us=1_000.0)
    metered.ticks(5, COMPANY, operations=10, bursts=1, busy_us=1_000.0)
    metered.meter.forget_parts(STRICT, TOLERANT)
    kept = {level: part.grown.operations for level, part in metered.meter.parts.items()}
    assert kept == {SHUT: 50, STRICT: 0, TOLERANT: 0}
    metered.meter.forget_parts()
    assert metered.meter.parts[SHUT].grown.operations == 0
