"""TGS finds how much best-effort work production does not notice: quickly at first, then carefully."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cotenant.classes import TenantClass
from cotenant.policies.interface import Knobs, Tenant, View
from cotenant.policies.tgs import Tgs

PRODUCTION, OTHER = 1, 2
WINDOW_US = 5e6


class Job:
    """A production job whose launches in each window the test chooses."""

    def __init__(self, policy: Tgs) -> None:
        self.policy = policy
        self.now_us = 0.0
        self.operations = 0
        self.knobs = self.look()

    def look(self, others: int = 1) -> Knobs:
        tenants = [
            Tenant(PRODUCTION, TenantClass.production, has_work=True, operations=self.operations),
            *(Tenant(OTHER + i, TenantClass.opportunistic, has_work=True) for i in range(others)),
        ]
        return self.policy.tick(View(self.now_us, tenants))

    def window(self, launches: int, others: int = 1) -> Knobs:
        self.now_us += WINDOW_US
        self.operations += launches
        self.knobs = self.look(others)
        return self.knobs


@pytest.fixture
def job() -> Job:
    """One that has been watched for five windows: its best is 10,000."""
    job = Job(Tgs())
    for _ in range(5):
        job.window(10_000)
    return job


def limits(job: Job, *launches: int) -> list[float]:
    after = []
    for count in launches:
        job.window(count)
        after.append(job.policy.limit)
    return after


def test_the_others_are_shut_until_the_best_is_learned() -> None:
    job = Job(Tgs())
    for _ in range(4):
        assert job.window(10_000).tenants[OTHER].shut
        assert job.policy.best is None
    job.window(10_000)
    assert job.policy.best == 10_000


def test_slow_start_multiplies_while_nothing_is_noticed(job: Job) -> None:
    assert limits(job, 10_000, 9_990, 9_800, 10_000) == [1, 2.5, 4.75, 8.125]


def test_slow_start_ends_at_the_first_that_is_noticed_and_goes_on_by_addition(job: Job) -> None:
    job.policy.limit = 300_000
    assert limits(job, 9_600) == [200_000]
    assert not job.policy.slow_start
    assert limits(job, 10_000, 10_000) == [201_000, 202_000]


def test_avoidance_takes_back_eight_percent(job: Job) -> None:
    job.policy.limit, job.policy.slow_start = 200_000, False
    assert limits(job, 9_500) == [184_000]
    job.policy.limit = 5_000
    assert limits(job, 9_500) == [4_000]  # at least 1000


def test_much_too_much_divides_by_ten_and_starts_slowly_again(job: Job) -> None:
    job.policy.limit, job.policy.slow_start = 200_000, False
    assert limits(job, 9_000) == [18_400]  # the eight percent, too
    assert job.policy.slow_start
    assert limits(job, 10_000) == [27_601]


def test_the_limit_is_the_others_share_of_time_and_production_keeps_nobody_waiting(job: Job) -> None:
    job.policy.limit, job.policy.slow_start = 399_000, False
    knobs = job.window(10_000)
    assert knobs.tenants[OTHER].rate == pytest.approx(0.4)
    assert knobs.tenants[PRODUCTION].tolerant
    knobs = job.window(10_000, others=2)
    assert [knobs.tenants[OTHER + i].rate for i in range(2)] == [pytest.approx(0.2005)] * 2


def test_less_than_a_rate_can_say_is_shut_and_not_unlimited(job: Job) -> None:
    assert job.policy.limit == 0
    knobs = job.window(10_000)
    assert knobs.tenants[OTHER].shut
    assert knobs.tenants[OTHER].rate is None


def test_the_step_up_is_the_same_whatever_the_best_is() -> None:
    # In TGS's unit it may be 0.025 % of the best; in ours that is always less than 1000.
    job = Job(Tgs())
    for _ in range(5):
        job.window(100_000_000)
    job.policy.limit, job.policy.slow_start = 200_000, False
    assert limits(job, 100_000_000) == [201_000]


def test_a_best_that_is_never_reached_again_is_lowered(job: Job) -> None:
    for _ in range(19):
        job.window(8_500)
    assert job.policy.best == 10_000
    job.policy.limit, job.policy.slow_start = 200_000, False
    job.window(8_500)
    assert job.policy.best == 8_000
    assert job.policy.limit == 9_200  # less 8 %, a tenth, a half
    assert job.policy.slow_start


def test_only_twenty_in_a_row_lower_the_best(job: Job) -> None:
    for _ in range(3):
        for _ in range(19):
            job.window(8_500)
        job.window(9_500)
    assert job.policy.best == 10_000


def test_a_best_is_lowered_again_where_it_is_still_not_reached(job: Job) -> None:
    for launches, best in ((8_100, 8_000), (6_800, 6_400)):
        for _ in range(20):
            job.window(launches)
        assert job.policy.best == pytest.approx(best)


def test_a_best_that_is_a_little_exceeded_stays(job: Job) -> None:
    for _ in range(10):
        job.window(10_800)
    assert job.policy.best == 10_000


@pytest.mark.parametrize(("launches", "windows"), [(12_500, 2), (7_900, 5), (2_000, 4)])
def test_a_job_that_does_something_else_is_learned_again(job: Job, launches: int, windows: int) -> None:
    job.policy.limit = 500_000
    bests = []
    for _ in range(windows + 5):
        job.window(launches)
        bests.append(job.policy.best)
    assert bests == [*[10_000] * (windows - 1), *[None] * 5, launches]
    assert job.policy.limit == 0
    assert job.knobs.tenants[OTHER].shut


def test_one_window_that_is_far_off_is_no_other_job(job: Job) -> None:
    for launches in (12_500, 10_000, 2_000, 10_000):
        job.window(launches)
        assert job.policy.best == 10_000


def test_another_production_job_is_learned_by_itself(job: Job) -> None:
    # What the one before launched does not count for it.
    other = Tenant(PRODUCTION + 5, TenantClass.production, has_work=True)
    job.policy.tick(View(job.now_us, [other]))
    for _ in range(7):
        job.now_us += WINDOW_US
        other = replace(other, operations=other.operations + 100)
        job.policy.tick(View(job.now_us, [other]))
    assert job.policy.best == 100


def test_after_an_idle_production_job_the_next_one_is_learned_with_the_others_shut(job: Job) -> None:
    assert OTHER not in job.window(0).tenants
    tenants = [
        Tenant(PRODUCTION + 5, TenantClass.production, has_work=True),
        Tenant(OTHER, TenantClass.opportunistic, has_work=True),
    ]
    assert job.policy.tick(View(job.now_us, tenants)).tenants[OTHER].shut


def test_without_production_nobody_is_limited(job: Job) -> None:
    other = Tenant(OTHER, TenantClass.opportunistic, has_work=True)
    assert OTHER not in job.policy.tick(View(job.now_us, [other])).tenants


def test_an_idle_production_job_limits_nobody_and_is_not_forgotten(job: Job) -> None:
    job.policy.limit = 300_000
    assert OTHER not in job.window(0).tenants
    assert job.policy.best == 10_000
    assert job.window(10_000).tenants[OTHER].rate is not None


def test_it_says_what_it_saw(job: Job) -> None:
    job.policy.limit, job.policy.slow_start = 200_000, False
    job.window(9_000)
    assert "10.0% off its best" in job.policy.explain(PRODUCTION)[0]
    assert "1.84% of the GPU now (20.00% before)" in job.policy.explain(PRODUCTION)[0]
    assert "1.8% of the GPU's time" in job.policy.explain(OTHER)[0]
