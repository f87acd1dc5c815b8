"""What holds for every published policy, whatever it is shown."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.classes import TenantClass
from cotenant.policies import border, registry
from cotenant.policies.interface import SMALLEST_RATE, Rule, Tenant, View
from cotenant.segment.wire import PARAMETERS

PUBLISHED = [name for name in registry.BUILT_IN if name not in ("guard", "strict", "fair", "none")]

shares = st.floats(0, 1)
tenants = st.builds(
    Tenant,
    id=st.integers(0, 5),
    tenant_class=st.sampled_from(TenantClass),
    weight=st.floats(0.1, 100),
    slowdown=st.none() | shares,
    floor=shares,
    share_request=shares,
    share_limit=shares,
    trains=st.booleans(),
    alone_us=st.floats(0, 1e6),
    persistent_bytes=st.integers(0, 2**36),
    ephemeral_bytes=st.integers(0, 2**36),
)
steps = st.lists(
    st.tuples(
        st.lists(tenants, max_size=4, unique_by=lambda tenant: tenant.id),
        st.floats(1, 1e7),  # how long it takes
        st.floats(0, 1),  # how much of that everybody had work
        st.integers(0, 10_000),  # operations in it
    ),
    min_size=1,
    max_size=12,
)
Story = list[tuple[list[Tenant], float, float, int]]


def views(story: Story, sms: int) -> Iterator[View]:
    """Tenants come and go; what is counted only grows."""
    now_us = busy_us = 0.0
    operations = 0
    for here, lasts_us, busy, more in story:
        now_us += lasts_us
        busy_us += lasts_us * busy
        operations += more
        grown = [
            replace(
                one,
                has_work=busy > 0.5,
                busy_us=busy_us,
                used_us=busy_us,
                sm_us=busy_us * sms,
                operations=operations,
                bursts=operations // 10,
                requests=operations // 10,
                request_us=busy_us,
            )
            for one in here
        ]
        yield View(now_us, grown, sms=sms, memory_bytes=sms * 2**30)


@pytest.mark.parametrize("name", PUBLISHED)
@settings(max_examples=30, deadline=None)
@given(story=steps, sms=st.sampled_from([0, 132]))
def test_knobs_make_sense_and_are_the_same_each_time(name: str, story: Story, sms: int) -> None:
    one, other = registry.find(name)(), registry.find(name)()
    for view in views(story, sms):
        knobs = one.tick(view)
        assert knobs == other.tick(view)
        here = {tenant.id for tenant in view.tenants}
        assert set(knobs.tenants) <= here
        assert len(knobs.parameters) <= PARAMETERS
        for tenant, set_to in knobs.tenants.items():
            assert set_to.rate is None or SMALLEST_RATE <= set_to.rate <= 1
            assert set_to.sm_share is None or 0 < set_to.sm_share <= 1
            assert one.explain(tenant)
            assert all(line.endswith(".") for line in one.explain(tenant))


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_who_has_left_leaves_nothing_behind(name: str) -> None:
    def size_after(comers: int) -> int:
        policy = registry.find(name)()
        for number in range(comers):
            here = [
                Tenant(0, TenantClass.production, has_work=True, busy_us=number * 5e5, operations=number),
                Tenant(1 + number, TenantClass.opportunistic, has_work=True, used_us=1.0, busy_us=1.0),
                Tenant(2 + number, TenantClass.opportunistic, has_work=True, used_us=2.0, busy_us=2.0),
            ]
            policy.tick(View(number * 1e6, here, sms=132, memory_bytes=2**36))
        policy.tick(View(1e9, [], sms=132, memory_bytes=2**36))
        policy.tick(View(2e9, [], sms=132, memory_bytes=2**36))
        return len(pickle.dumps(policy))

    assert abs(size_after(400) - size_after(200)) < 100


@pytest.mark.parametrize("name", PUBLISHED)
def test_it_is_called_what_it_is_found_by_and_states_its_formula(name: str) -> None:
    policy = registry.find(name)
    assert policy.name == name
    head = inspect.getdoc(inspect.getmodule(policy)) or ""
    assert head.startswith(f"{name}: ")
    assert any(line.startswith("    ") for line in head.splitlines()), "no formula"


@pytest.mark.parametrize("name", PUBLISHED)
def test_only_rules_that_processes_know_are_run_live(name: str) -> None:
    about = registry.about(registry.find(name))
    assert not about.runs_live or Rule[about.rule] in border.LIVE_RULES
    assert registry.find(name)().tick(View(0, [])).rule is Rule[about.rule]
