"""AntMan stretches best-effort work as far as production needs it, and no further."""

from __future__ import annotations

import pytest

from cotenant.classes import TenantClass
from cotenant.policies.antman import AntMan
from cotenant.policies.interface import Knobs, Tenant, View

PRODUCTION, OTHER = 1, 2


class Bench:
    """Production is slowed down by `harm` for each percent of the speed that the other has."""

    def __init__(self, harm: float, promise: float | None = None) -> None:
        self.policy = AntMan()
        self.harm, self.promise = harm, promise
        self.now_us = self.busy_us = self.other_us = 0.0
        self.operations = 0
        self.knobs = self.look()

    def look(self, production: bool = True) -> Knobs:
        tenants = [Tenant(OTHER, TenantClass.opportunistic, has_work=True, busy_us=self.other_us)]
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
            self.other_us += 1e6 * other_busy
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
    bench.seconds(10)
    assert bench.policy.p == 40
    assert bench.knobs.tenants[OTHER].rate == pytest.approx(0.2)


def test_without_production_nobody_is_stretched() -> None:
    bench = Bench(harm=0.01)
    bench.seconds(5)
    bench.seconds(1, production=False)
    assert OTHER not in bench.knobs.tenants


def test_it_says_what_it_saw() -> None:
    bench = Bench(harm=0.01)
    bench.seconds(4)
    assert "5 % of their speed now (10 % before)" in bench.policy.explain(PRODUCTION)[0]
    assert bench.policy.explain(OTHER)[0] == "It is stretched to 5 % of its own speed."
