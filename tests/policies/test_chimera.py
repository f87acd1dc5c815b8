"""Chimera stops what is in production's way in the way that is cheapest."""

from __future__ import annotations

import pytest

from cotenant.policies.chimera import Chimera
from cotenant.policies.interface import Rule, View
from tests.policies.conftest import Ask

LATENCY_US = float(Chimera().tick(View(0, [])).parameters[0])


def way(preempt: Ask, left_us: float, **more: float) -> str:
    """Production's request of 1 ms wants 132 SMs, all there are; `left_us` of another's kernel is left there."""
    moment = {
        "us": 20,
        "remaining_us": 1000,
        "sms": 132,
        "running_sms": 132,
        "running_left_us": left_us,
        "gpu_sms": 132,
        "gpu_memory_gbps": 4800,
        "gpu_cut_us": 150,
        "p0": LATENCY_US,
    }
    return preempt(Rule.chimera, **(moment | more))


def test_a_kernel_about_to_end_is_drained_and_one_that_just_began_is_cut(preempt: Ask) -> None:
    assert way(preempt, left_us=5) == "drain"
    assert way(preempt, left_us=149) == "drain"
    assert way(preempt, left_us=151) == "cut"
    assert way(preempt, left_us=10_000) == "cut"


def test_a_kernel_that_is_not_in_the_way_is_left_running(preempt: Ask) -> None:
    assert way(preempt, left_us=10_000, running_sms=32, sms=100) == "let_run"
    assert way(preempt, left_us=5, running_sms=32, sms=100) == "let_run"


def test_two_that_fill_the_memory_bandwidth_are_in_each_other_s_way(preempt: Ask) -> None:
    beside = {"running_sms": 32, "sms": 100, "gbps": 3000}
    assert way(preempt, left_us=10_000, running_gbps=1800, **beside) == "let_run"
    assert way(preempt, left_us=10_000, running_gbps=3000, **beside) == "cut"


def test_a_kernel_that_is_a_little_in_the_way_is_left_running_while_that_costs_less_than_a_cut(
    preempt: Ask,
) -> None:
    # 10 of 132 SMs are missing for at most 1 ms: 76 us.
    assert way(preempt, left_us=10_000, running_sms=10) == "let_run"
    assert way(preempt, left_us=10_000, running_sms=10, gpu_cut_us=70) == "cut"


@pytest.mark.parametrize("cut_us", [1, 10])
def test_within_the_latency_what_loses_no_work_is_preferred_to_a_quicker_cut(
    preempt: Ask, cut_us: float
) -> None:
    assert way(preempt, left_us=14, gpu_cut_us=cut_us) == "drain"
    assert way(preempt, left_us=16, gpu_cut_us=cut_us) == "cut"


def test_below_starts_only_on_free_sms_while_production_works(decide: Ask) -> None:
    busy = {"tenant_class": 2, "production_with_work": 1, "production_running": 1, "gpu_sms": 132}
    assert decide(Rule.chimera, sms=20, gpu_free_sms=20, **busy) == "go"
    assert decide(Rule.chimera, sms=21, gpu_free_sms=20, **busy) == "wait"
    assert decide(Rule.chimera, sms=500, gpu_free_sms=132, **busy) == "go"
    assert decide(Rule.chimera, sms=500, gpu_sms=132, tenant_class=2) == "go"


def test_its_contexts_run_at_once() -> None:
    """As on Chimera's GPU: SMs that production leaves free are for the others."""
    assert Chimera.sharing == "together" and Chimera.priorities
