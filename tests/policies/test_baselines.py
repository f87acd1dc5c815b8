"""What every paper compares itself with holds nobody back."""

from __future__ import annotations

import pytest

from cotenant.classes import TenantClass
from cotenant.policies.interface import Policy, Rule, Tenant, View
from cotenant.policies.mps import Mps
from cotenant.policies.timeslice import TimeSlice

VIEW = View(0, [Tenant(1, TenantClass.production), Tenant(2, TenantClass.opportunistic)])


@pytest.mark.parametrize("policy", [Mps(), TimeSlice()])
def test_nobody_is_held(policy: Policy) -> None:
    knobs = policy.tick(VIEW)
    assert knobs.rule is Rule.none
    assert not any(one.shut or one.rate for one in knobs.tenants.values())


def test_all_classes_have_the_driver_s_slice() -> None:
    assert {one.time_slice_us for one in TimeSlice().tick(VIEW).tenants.values()} == {2048}


def test_under_mps_contexts_run_together() -> None:
    assert Mps.sharing == "together"
    assert TimeSlice.sharing == "timeslice"
