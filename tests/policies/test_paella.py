"""Paella sends the shortest rest first, when it fits, unless somebody was neglected for too long."""

from __future__ import annotations

from cotenant.classes import TenantClass
from cotenant.policies.interface import Rule, Tenant, View
from cotenant.policies.paella import Paella
from tests.policies.conftest import Ask

SHORT, LONG = 1, 2


def asks(decide: Ask, number: int, deficit: float = 0, **more: float) -> str:
    """SHORT's request has least left, LONG has the lowest rank; 50 of 132 SMs are free."""
    moment = {
        "number": number,
        "sms": 50,
        "gpu_sms": 132,
        "gpu_free_sms": 50,
        "gpu_least_left_waiting": SHORT,
        "gpu_lowest_rank_waiting": LONG,
        "gpu_least_left_tenant": SHORT,
        "gpu_lowest_rank_tenant": LONG,
        "gpu_squeezed": 2,
        "p0": 2,
        "p1": deficit,
    }
    return decide(Rule.paella, **(moment | more))


def test_the_shortest_rest_goes_and_the_other_waits(decide: Ask) -> None:
    assert asks(decide, SHORT) == "go"
    assert asks(decide, LONG) == "wait"


def test_a_deficit_turns_the_order_round(decide: Ask) -> None:
    assert asks(decide, LONG, deficit=1) == "go"
    assert asks(decide, SHORT, deficit=1) == "wait"


def test_only_what_fits_is_sent_plus_two(decide: Ask) -> None:
    assert Paella().tick(View(0, [])).parameters == (2, 0)
    assert asks(decide, SHORT, sms=51) == "wait"
    assert asks(decide, SHORT, sms=51, gpu_squeezed=1) == "go"
    assert asks(decide, SHORT, sms=10_000, gpu_free_sms=132) == "go"


def test_while_the_shortest_runs_another_goes_beside_it_but_not_ahead(decide: Ask) -> None:
    runs = {"gpu_least_left_waiting": LONG, "gpu_squeezed": 0}
    assert asks(decide, LONG, **runs) == "go"
    assert asks(decide, LONG, sms=51, **runs) == "wait"


def test_who_is_starved_by_short_requests_is_put_first_in_the_end() -> None:
    paella = Paella(threshold_ms=50)
    overridden_at_us = None
    for tick in range(40):
        now_us = tick * 10_000.0
        tenants = [
            Tenant(SHORT, TenantClass.standard, has_work=True, used_us=now_us),
            Tenant(LONG, TenantClass.standard, has_work=True, used_us=0),
        ]
        knobs = paella.tick(View(now_us, tenants))
        if knobs.parameters[1]:
            overridden_at_us = now_us
            break
    # Half of the time is due to each: the deficit is over 50 ms after a little more than 100 ms.
    assert overridden_at_us == 110_000
    assert list(knobs.tenants) == [LONG]
    assert knobs.tenants[LONG].rank < 0
    assert "55 ms short" in paella.explain(LONG)[0]


def test_weights_count() -> None:
    paella = Paella()
    for now_us in (0.0, 40_000.0):
        tenants = [
            Tenant(SHORT, TenantClass.standard, weight=3, has_work=True),
            Tenant(LONG, TenantClass.standard, weight=1, has_work=True),
        ]
        paella.tick(View(now_us, tenants))
    assert paella.deficits_us == {SHORT: 30_000, LONG: 10_000}


def test_a_deficit_is_paid_back_and_ends_with_the_work() -> None:
    paella = Paella()

    def tick(now_us: float, used_us: float, has_work: bool = True) -> float:
        tenant = Tenant(SHORT, TenantClass.standard, has_work=has_work, used_us=used_us)
        paella.tick(View(now_us, [tenant]))
        return paella.deficits_us.get(SHORT, 0.0)

    tick(0, 0)
    assert tick(60_000, 0) == 60_000
    assert tick(70_000, 50_000) == 20_000
    assert tick(80_000, 90_000) == 0
    tick(140_000, 90_000)
    assert tick(150_000, 90_000, has_work=False) == 0


def test_who_is_over_fifty_milliseconds_short_goes_first() -> None:
    policy = Paella()
    tenants = [Tenant(number, TenantClass.standard, has_work=True) for number in (SHORT, LONG)]
    first = []
    for ms in (0, 50, 99, 101):
        used = Tenant(SHORT, TenantClass.standard, has_work=True, used_us=ms * 1000.0)
        first.append(list(policy.tick(View(ms * 1000.0, [used, tenants[1]])).tenants))
    assert first == [[], [], [], [LONG]]  # half of each millisecond was its own
