"""Orion lets in beside production what wants another resource, little of it, and never much at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cotenant.classes import TenantClass
from cotenant.policies.interface import Rule, Tenant, View
from cotenant.policies.orion import Orion, Search
from tests.policies.conftest import Ask

COMPUTE, MEMORY, UNKNOWN = 1, 2, 0
COPY_TO_DEVICE = 2
PRODUCTION, OTHER = 1, 2


def beside(decide: Ask, bound: int, production: int, **more: float) -> str:
    """A small best-effort kernel while production runs one; thresholds: 40 SMs, 125 us outstanding."""
    moment = {
        "tenant_class": 2,
        "bound": bound,
        "sms": 20,
        "us": 50,
        "production_with_work": 1,
        "production_running": 1,
        "production_bound": production,
        "p0": 40,
        "p1": 125,
    }
    return decide(Rule.orion, **(moment | more))


def test_the_opposite_class_goes_and_the_same_waits(decide: Ask) -> None:
    assert beside(decide, COMPUTE, MEMORY) == "go"
    assert beside(decide, MEMORY, COMPUTE) == "go"
    assert beside(decide, COMPUTE, COMPUTE) == "wait"
    assert beside(decide, MEMORY, MEMORY) == "wait"


def test_an_unknown_class_is_no_obstacle(decide: Ask) -> None:
    assert beside(decide, UNKNOWN, COMPUTE) == "go"
    assert beside(decide, MEMORY, UNKNOWN) == "go"
    assert beside(decide, UNKNOWN, UNKNOWN) == "go"


def test_the_sm_threshold_counts_what_is_there_already(decide: Ask) -> None:
    assert beside(decide, COMPUTE, MEMORY, sms=40) == "go"
    assert beside(decide, COMPUTE, MEMORY, sms=41) == "wait"
    assert beside(decide, COMPUTE, MEMORY, below_sms=20) == "go"
    assert beside(decide, COMPUTE, MEMORY, below_sms=21) == "wait"


def test_while_production_is_idle_class_and_size_do_not_count(decide: Ask) -> None:
    assert beside(decide, COMPUTE, COMPUTE, sms=132, production_with_work=0, production_running=0) == "go"


def test_too_much_outstanding_holds_until_all_of_it_is_done(decide: Ask) -> None:
    idle = {"production_with_work": 0, "production_running": 0}
    assert beside(decide, COMPUTE, MEMORY, below_running=1, below_outstanding_us=125) == "go"
    assert beside(decide, COMPUTE, MEMORY, below_running=1, below_outstanding_us=126) == "wait"
    assert beside(decide, COMPUTE, MEMORY, below_running=1, below_outstanding_us=126, **idle) == "wait"
    assert beside(decide, COMPUTE, MEMORY, below_running=0, below_outstanding_us=126, **idle) == "go"


def test_copies_wait_for_production_s_copies_only(decide: Ask) -> None:
    assert beside(decide, MEMORY, MEMORY, kind=COPY_TO_DEVICE, sms=0) == "go"
    assert beside(decide, MEMORY, MEMORY, kind=COPY_TO_DEVICE, sms=0, production_copies=1) == "wait"


def test_production_never_waits(decide: Ask) -> None:
    crowded = {"sms": 132, "below_running": 3, "below_outstanding_us": 1e6, "production_copies": 1}
    assert beside(decide, COMPUTE, COMPUTE, tenant_class=0, **crowded) == "go"


def view(trains: bool, requests: int = 0, request_us: float = 0.0) -> View:
    production = Tenant(
        PRODUCTION,
        TenantClass.production,
        trains=trains,
        alone_us=5_000,
        requests=requests,
        request_us=request_us,
    )
    return View(0, [production, Tenant(OTHER, TenantClass.opportunistic)], sms=132)


def test_beside_inference_all_sms_and_a_fortieth_of_a_request(decide: Ask) -> None:
    assert Orion().tick(view(trains=False)).parameters == (132, 125)


def sm_threshold_found(tolerates: float) -> float:
    """A training job that is slowed down past its limit exactly when others may hold more than `tolerates` SMs."""
    orion = Orion()
    requests, request_us = 0, 0.0
    threshold = orion.tick(view(True)).parameters[0]
    assert threshold == 66
    for _ in range(10):
        requests += 10
        request_us += 10 * 5_000 * (1.2 if threshold > tolerates else 1.05)
        threshold = orion.tick(view(True, requests, request_us)).parameters[0]
    return threshold


@pytest.mark.parametrize("tolerates", [0, 17, 50, 131])
def test_beside_training_the_threshold_is_found_by_halving(tolerates: float) -> None:
    assert sm_threshold_found(tolerates) <= tolerates
    assert sm_threshold_found(tolerates) == pytest.approx(tolerates, abs=1.1)


def test_fewer_than_ten_iterations_say_nothing() -> None:
    orion = Orion()
    orion.tick(view(True))
    assert orion.tick(view(True, 9, 9 * 50_000)).parameters[0] == 66
    assert orion.tick(view(True, 10, 10 * 50_000)).parameters[0] == 33


def test_who_comes_begins_the_search_anew() -> None:
    orion = Orion()
    orion.tick(view(True))
    seen = view(True, 10, 10 * 50_000)
    assert orion.tick(seen).parameters[0] == 33
    more = [*seen.tenants, Tenant(OTHER + 5, TenantClass.opportunistic)]
    assert orion.tick(replace(seen, tenants=more)).parameters[0] == 66


def test_a_search_ends() -> None:
    search = Search(132)
    for _ in range(20):
        search.saw(False)
    assert search.is_over
    assert search.threshold == 0
    assert search.high <= 1


def test_it_says_what_it_found() -> None:
    orion = Orion()
    orion.tick(view(True))
    orion.tick(view(True, 10, 10 * 6_000))
    assert "33 SMs now (66 before)" in orion.explain(PRODUCTION)[0]
    assert "33 SMs" in orion.explain(OTHER)[0]


@pytest.mark.parametrize(
    ("own", "productions", "words"),
    [
        ((0, 3), (2, 0), "no profile tells which one its kernels want: any does"),
        ((3, 0), (0, 2), "no profile tells which one production's kernels want: any does"),
        ((3, 1), (2, 0), "by their profiles; a kernel without one may run beside any"),
        ((3, 0), (2, 1), "by their profiles; a kernel without one may run beside any"),
        ((3, 0), (2, 0), "by their profiles"),
    ],
)
def test_live_it_says_whether_profiles_tell_the_classes(
    own: tuple[int, int], productions: tuple[int, int], words: str
) -> None:
    policy = Orion()
    above, below = (
        Tenant(number, tenant_class, profiled_kernels=known, unprofiled_kernels=others)
        for number, tenant_class, (known, others) in (
            (PRODUCTION, TenantClass.production, productions),
            (OTHER, TenantClass.opportunistic, own),
        )
    )
    policy.tick(View(0, [above, below]))
    assert any(f"another resource ({words})," in sentence for sentence in policy.explain(OTHER))


def test_a_search_is_over_when_one_sm_is_left_and_stays_there() -> None:
    search = Search(8)
    for within, threshold in ((True, 6.0), (False, 5.0), (True, 5.0)):
        search.saw(within)
        assert search.threshold == threshold
    assert (search.low, search.high, search.is_over) == (5.0, 6.0, True)
    search.saw(True)
    search.saw(False)
    assert (search.low, search.high) == (5.0, 6.0)
