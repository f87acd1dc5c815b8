"""MuxFlow gives offline work what online work leaves, and takes all of it back from a GPU that is not well."""

from __future__ import annotations

import itertools

import pytest

from cotenant.classes import TenantClass
from cotenant.policies.interface import Knobs, Tenant, View
from cotenant.policies.muxflow import Health, HealthStates, MuxFlow

ONLINE, OFFLINE = 1, 2
SMS = 100


class Bench:
    def __init__(self, sees_sms: bool = True) -> None:
        self.policy = MuxFlow()
        self.sms = SMS if sees_sms else 0
        self.now_us = self.busy_us = self.sm_us = 0.0
        self.knobs = self.look(1)

    def look(self, offline: int) -> Knobs:
        online = Tenant(ONLINE, TenantClass.production, busy_us=self.busy_us, sm_us=self.sm_us)
        others = [Tenant(OFFLINE + i, TenantClass.opportunistic, has_work=True) for i in range(offline)]
        return self.policy.tick(View(self.now_us, [online, *others], sms=self.sms))

    def seconds(self, count: int, busy: float, activity: float = 0.0, offline: int = 1) -> Knobs:
        for _ in range(count):
            self.now_us += 1e6
            self.busy_us += 1e6 * busy
            self.sm_us += 1e6 * activity * SMS
            self.knobs = self.look(offline)
        return self.knobs


def test_offline_gets_the_sms_that_online_leaves() -> None:
    bench = Bench()
    assert bench.seconds(1, busy=0.5, activity=0.3).tenants[OFFLINE].sm_share == pytest.approx(0.65)
    assert bench.knobs.tenants[ONLINE].tolerant
    assert bench.knobs.tenants[OFFLINE].rate is None


def test_the_busiest_of_the_last_ten_seconds_counts() -> None:
    bench = Bench()
    bench.seconds(1, busy=0.5, activity=0.6)
    assert bench.seconds(9, busy=0.1, activity=0.1).tenants[OFFLINE].sm_share == pytest.approx(0.35)
    assert bench.seconds(1, busy=0.1, activity=0.1).tenants[OFFLINE].sm_share == pytest.approx(0.85)


def test_several_share_it_and_there_is_always_a_little() -> None:
    bench = Bench()
    knobs = bench.seconds(1, busy=0.5, activity=0.3, offline=2)
    assert [knobs.tenants[OFFLINE + i].sm_share for i in range(2)] == [pytest.approx(0.325)] * 2
    assert bench.seconds(1, busy=0.8, activity=0.8).tenants[OFFLINE].sm_share == pytest.approx(0.15)
    assert bench.seconds(1, busy=0.84, activity=0.84).tenants[OFFLINE].sm_share == pytest.approx(0.11)


def test_live_time_stands_for_sms() -> None:
    knobs = Bench(sees_sms=False).seconds(1, busy=0.3)
    assert knobs.tenants[OFFLINE].rate == pytest.approx(0.65)
    assert knobs.tenants[OFFLINE].sm_share is None


def test_an_unhealthy_gpu_lets_nobody_new_in_and_gives_no_more() -> None:
    bench = Bench()
    bench.seconds(1, busy=0.5, activity=0.5)
    bench.seconds(1, busy=0.9, activity=0.5)
    knobs = bench.seconds(1, busy=0.9, activity=0.1, offline=2)
    assert bench.policy.health.state is Health.unhealthy
    assert knobs.tenants[OFFLINE].sm_share == pytest.approx(0.45)
    assert knobs.tenants[OFFLINE + 1].shut


def test_what_an_unhealthy_gpu_took_it_gives_back_only_in_health() -> None:
    bench = Bench()
    bench.seconds(1, busy=0.5, activity=0.5)
    for _ in range(2):  # never calm for long enough
        bench.seconds(1, busy=0.9, activity=0.1)
        bench.seconds(4, busy=0.1, activity=0.1)
    assert bench.policy.health.state is Health.unhealthy
    assert bench.knobs.tenants[OFFLINE].sm_share == pytest.approx(0.45)
    assert bench.seconds(2, busy=0.1, activity=0.1).tenants[OFFLINE].sm_share == pytest.approx(0.85)


def test_an_overloaded_gpu_evicts_everybody_until_it_is_well_again() -> None:
    bench = Bench()
    assert not bench.seconds(1, busy=0.5).tenants[OFFLINE].shut
    assert bench.seconds(2, busy=0.99).tenants[OFFLINE].shut
    assert bench.seconds(10, busy=0.2).tenants[OFFLINE].shut
    assert not bench.seconds(1, busy=0.2).tenants[OFFLINE].shut


def test_without_online_work_nobody_is_limited() -> None:
    policy = MuxFlow()
    assert not policy.tick(View(0, [Tenant(OFFLINE, TenantClass.opportunistic)], sms=SMS)).tenants


def evictions_s(strain: float, seconds: int, health: HealthStates) -> list[float]:
    """When the state became evicted."""
    moments: list[float] = []
    for second in range(seconds):
        before = health.state
        health.see(second * 1e6, strain)
        if health.state is Health.evicted and before is not Health.evicted:
            moments.append(second)
    return moments


def test_each_eviction_lasts_twice_as_long_as_the_one_before() -> None:
    moments = evictions_s(0.99, 2000, HealthStates())
    pauses = [after - before for before, after in itertools.pairwise(moments)]
    # One second more: in between the GPU is looked at as unhealthy.
    assert pauses == [11, 21, 41, 81, 161, 321, 641, 641]


def test_strain_that_lasts_evicts_too() -> None:
    assert evictions_s(0.9, 60, HealthStates())[0] == 10


def test_a_minute_in_health_is_forgiven() -> None:
    health = HealthStates()
    for second in range(100):
        health.see(second * 1e6, 0.99)
    assert health.back_off_us > 10e6
    healthy, unforgiven = [], []
    for second in range(100, 400):
        health.see(second * 1e6, 0.1)
        healthy += [second] if health.state is Health.healthy else []
        unforgiven += [second] if health.back_off_us > 10e6 else []
    assert unforgiven[-1] + 1 - healthy[0] == 60


def test_it_says_why() -> None:
    bench = Bench()
    bench.seconds(1, busy=0.5, activity=0.3)
    assert "65% of the SMs" in bench.policy.explain(OFFLINE)[0]
    bench.seconds(2, busy=0.99)
    assert "evicted" in bench.policy.explain(OFFLINE)[0]
