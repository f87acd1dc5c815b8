"""AntMan stretches best-effort work as far as production needs it, and no further."""

from __future__ import annotations

import pytest

from cotenant.classes import TenantClass
from cotenant.policies.antman import AntMan
from cotenant.policies.interface import Knobs, Tenant, TenantKnobs, View

PRODUCTION, OTHER = 1, 2


class Bench:
    """Production is slowed down by `harm` for each percent of the speed that the other has."""

    def __init__(self, harm: float, promise: float | None = None) -> None:
        self.policy = AntMan()
        self.harm, self.promise = harm, promise
        self.now_us = self.busy_us = self.other_us = self.other_used_us = 0.0
        self.operations = 0
        self.knobs = self.look()

    def look(self, production: bool = True) -> Knobs:
        tenants = [
            Tenant(
                OTHER,
                TenantClass.opportunistic,
                has_work=True,
                busy_us=self.other_us,
                used_us=self.other_used_us,
            )
        ]
        if production:
            tenants.append(
                Tenant(
                    PRODUCTION,
                    TenantClass.production,
                    slowdown=self.promise,
                    has_work=True,
                    busy_us=self.busy_us,
                    operations=self.operations,
                )
            )
        return self.policy.tick(View(self.now_us, tenants))

    def seconds(self, count: int, production: bool = True, other_busy: float = 1.0) -> list[float]:
        """p after each second."""
        course = []
        for _ in range(count):
            self.now_us += 1e6
            self.busy_us += 1e6
            knobs = self.knobs.tenants.get(OTHER, TenantKnobs())
            rate = 0.0 if knobs.shut else 1.0 if knobs.rate is None else knobs.rate
            # A step of `other_busy` and the rest of a second, stretched until it uses `rate` of the time.
            used = min(rate, other_busy)
            idle = used * (1 - other_busy) / other_busy if other_busy else 1.0
            self.other_us += 1e6 * (1 - idle)
            self.other_used_us += 1e6 * used
            self.operations += round(10_000 / (1 + self.harm * self.policy.p))
            self.knobs = self.look(production)
            course.append(self.policy.p)
        return course


def test_the_other_is_shut_until_it_is_known_what_production_costs_alone() -> None:
    bench = Bench(harm=0)
    assert bench.knobs.tenants[OTHER].shut
    bench.seconds(1)
    assert bench.policy.alone_us == pytest.approx(100)


def test_harmless_work_is_let_go_at_full_speed_in_the_end() -> None:
    bench = Bench(harm=0)
    assert bench.seconds(22)[1:] == [*range(5, 101, 5), 100]
    assert bench.knobs.tenants[OTHER].rate == 1
    assert bench.knobs.tenants[PRODUCTION].tolerant


def test_harmful_work_is_stretched_until_production_is_well() -> None:
    course = Bench(harm=0.002).seconds(200)  # 5 % at p = 25
    assert max(course) == 30
    assert min(course[10:]) == 15
    assert 15 < sum(course[50:]) / len(course[50:]) < 26


def test_a_stated_promise_counts_instead() -> None:
    assert max(Bench(harm=0.002, promise=0.10).seconds(100)) == pytest.approx(55, abs=0.1)


def test_a_job_that_uses_half_of_the_time_by_itself_gets_p_percent_of_that() -> None:
    bench = Bench(harm=0)
    bench.seconds(2, production=False, other_busy=0.5)
    bench.seconds(10, other_busy=0.5)
    assert bench.policy.p == 40
    assert bench.knobs.tenants[OTHER].rate == pytest.approx(0.2)


def test_what_a_job_uses_by_itself_is_seen_while_it_is_stretched() -> None:
    # It had all of the time before production came, and then pauses as long as it computes.
    bench = Bench(harm=0)
    bench.seconds(2, production=False)
    bench.seconds(10, other_busy=0.5)
    assert bench.knobs.tenants[OTHER].rate == pytest.approx(0.4 * 0.5)


def test_one_that_was_idle_when_production_came_is_not_starved() -> None:
    bench = Bench(harm=0)
    bench.seconds(3, production=False, other_busy=0.0)
    bench.seconds(3)
    assert bench.policy.p == 5
    assert bench.knobs.tenants[OTHER].rate == pytest.approx(0.05)


def test_a_pause_says_nothing_of_what_it_uses_afterwards() -> None:
    bench = Bench(harm=0)
    bench.seconds(2, production=False, other_busy=0.5)
    bench.seconds(5, other_busy=0.0)
    assert bench.policy.rate(OTHER) == pytest.approx(bench.policy.p / 100 * 0.5)


def two_promises(*promises: float | None) -> str:
    """What is said to be tolerated beside production jobs with these."""
    policy = AntMan()
    for second in range(3):
        production = [
            Tenant(
                10 + i,
                TenantClass.production,
                slowdown=promise,
                has_work=True,
                busy_us=second * 1e6,
                operations=second * 100,
            )
            for i, promise in enumerate(promises)
        ]
        policy.tick(View(second * 1e6, [*production, Tenant(OTHER, TenantClass.opportunistic)]))
    return policy.explain(10)[0]


@pytest.mark.parametrize(
    ("promises", "tolerated"),
    [
        ((0.2, 0.02), 2),
        ((0.02, 0.2), 2),
        ((0.2, None), 5),
        ((None, 0.2), 5),
        ((0.3, 0.2), 20),
        ((None, None), 5),
    ],
)
def test_of_several_promises_the_least_counts(promises: tuple[float | None, ...], tolerated: int) -> None:
    assert f"{tolerated}% is tolerated" in two_promises(*promises)


def test_another_production_job_is_learned_with_the_others_shut() -> None:
    bench = Bench(harm=0)
    assert bench.seconds(5)[-1] == 20
    tenants = [
        Tenant(PRODUCTION + 5, TenantClass.production, has_work=True),
        Tenant(OTHER, TenantClass.opportunistic, has_work=True),
    ]
    assert bench.policy.tick(View(bench.now_us, tenants)).tenants[OTHER].shut
    assert (bench.policy.p, bench.policy.alone_us) == (0, None)


def test_without_production_nobody_is_stretched() -> None:
    bench = Bench(harm=0.01)
    bench.seconds(5)
    bench.seconds(1, production=False)
    assert OTHER not in bench.knobs.tenants


@pytest.mark.parametrize(("operations", "busy_us"), [(100, 0.0), (0, 1e6)])
def test_a_window_without_launches_or_without_work_says_nothing(operations: int, busy_us: float) -> None:
    policy = AntMan()
    for second in range(4):
        production = Tenant(
            PRODUCTION, TenantClass.production, operations=second * operations, busy_us=second * busy_us
        )
        policy.tick(View(second * 1e6, [production, Tenant(OTHER, TenantClass.opportunistic)]))
    assert (policy.alone_us, policy.p) == (None, 0)


def test_it_says_what_it_saw() -> None:
    bench = Bench(harm=0.01)
    bench.seconds(4)
    assert "5 % of their speed now (10 % before)" in bench.policy.explain(PRODUCTION)[0]
    assert bench.policy.explain(OTHER)[0] == "It is stretched to 5 % of its own speed."
