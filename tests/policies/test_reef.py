"""REEF kills what is below when production comes, and pads what production leaves."""

from __future__ import annotations

from cotenant.classes import TenantClass
from cotenant.policies.interface import Rule, Tenant, View
from cotenant.policies.reef import FROM_PROFILE, LEARNED, Reef
from tests.policies.conftest import Ask

AHEAD = float(Reef().tick(View(0, [])).parameters[0])


def pad(decide: Ask, us: float, sms: float, **more: float) -> str:
    """A best-effort kernel beside one of production that has 100 us to go and leaves 32 SMs of 132."""
    moment = {
        "tenant_class": 2,
        "us": us,
        "sms": sms,
        "production_with_work": 1,
        "production_running": 1,
        "production_left_us": 100,
        "gpu_sms": 132,
        "gpu_free_sms": 32,
        "p0": AHEAD,
    }
    return decide(Rule.reef, **(moment | more))


def test_the_padding_ends_no_later_than_what_it_pads(decide: Ask) -> None:
    assert pad(decide, us=100, sms=32) == "go"
    assert pad(decide, us=101, sms=32) == "wait"


def test_a_wide_kernel_is_judged_by_how_long_it_takes_on_the_free_sms(decide: Ask) -> None:
    assert pad(decide, us=25, sms=128) == "go"
    assert pad(decide, us=26, sms=128) == "wait"


def test_nothing_pads_a_kernel_that_fills_the_gpu(decide: Ask) -> None:
    assert pad(decide, us=1, sms=1, gpu_free_sms=0) == "wait"
    # Nor one that leaves less than an SM.
    assert pad(decide, us=1, sms=1, gpu_free_sms=0.9) == "wait"
    assert pad(decide, us=1, sms=1, gpu_free_sms=1) == "go"


def test_production_s_pauses_within_a_request_are_not_padded(decide: Ask) -> None:
    assert pad(decide, us=1, sms=1, production_running=0, production_left_us=0, gpu_free_sms=132) == "wait"


def test_at_most_two_are_ahead_even_when_production_is_away(decide: Ask) -> None:
    away = {"production_with_work": 0, "production_running": 0, "gpu_free_sms": 132}
    assert pad(decide, us=1e6, sms=132, below_running=1, **away) == "go"
    assert pad(decide, us=1, sms=1, below_running=2, **away) == "wait"


def test_production_goes_at_once(decide: Ask) -> None:
    assert pad(decide, us=1e6, sms=132, tenant_class=0, below_running=2) == "go"


def test_a_new_request_kills_and_the_next_kernel_of_it_does_not(preempt: Ask) -> None:
    assert preempt(Rule.reef, begins_request=1, running_left_us=500) == "kill"
    assert preempt(Rule.reef, begins_request=0, running_left_us=5) == "let_run"


def test_where_kernels_cannot_be_killed_they_run_on(preempt: Ask) -> None:
    assert preempt(Rule.reef, begins_request=1, running_left_us=500, p1=1) == "let_run"


def test_only_the_simulator_kills_and_live_one_is_told_where_its_times_come_from() -> None:
    reef = Reef()
    tenants = [
        Tenant(1, TenantClass.production, profiled_kernels=3),
        Tenant(2, TenantClass.standard, profiled_kernels=1),
        Tenant(3, TenantClass.opportunistic),
    ]
    assert reef.tick(View(0, tenants, sms=132)).parameters == (AHEAD, 0.0)
    for one in tenants:
        (said,) = reef.explain(one.id)
        assert "is killed" in said
    assert reef.tick(View(0, tenants)).parameters == (AHEAD, 1.0)
    assert [reef.explain(one.id)[1:] for one in tenants] == [[], [FROM_PROFILE], [LEARNED]]
    assert "nothing can be killed" in reef.explain(2)[0]
