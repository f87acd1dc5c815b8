"""none, strict and fair: the rule does it all, whatever there is to see."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.classes import TenantClass
from cotenant.policies.fair import Fair
from cotenant.policies.interface import Policy, Rule, Tenant, View
from cotenant.policies.journal import KEPT, Journal
from cotenant.policies.none import NoPolicy
from cotenant.policies.strict import Strict

tenants = st.builds(
    Tenant,
    id=st.integers(1, 9),
    tenant_class=st.sampled_from(TenantClass),
    weight=st.floats(0.1, 100),
    has_work=st.booleans(),
    used_us=st.floats(0, 1e12),
)
views = st.builds(View, st.floats(0, 1e15), st.lists(tenants, unique_by=lambda one: one.id))


@settings(max_examples=50)
@given(view=views)
@pytest.mark.parametrize(
    ("policy", "rule"), [(NoPolicy, Rule.none), (Strict, Rule.strict), (Fair, Rule.fair)]
)
def test_it_names_its_rule_and_holds_nobody_back_by_itself(
    policy: type[Policy], rule: Rule, view: View
) -> None:
    controller = policy()
    knobs = controller.tick(view)
    assert knobs.rule is rule and not knobs.tenants
    assert knobs == policy().tick(view)
    for tenant in view.tenants:
        assert all(controller.explain(tenant.id))


def test_fair_says_who_is_due_what() -> None:
    def tenant(number: int, weight: float, used_us: float, has_work: bool = True) -> Tenant:
        return Tenant(number, TenantClass.standard, weight=weight, used_us=used_us, has_work=has_work)

    fair = Fair()
    fair.tick(View(0, [tenant(1, 3, 60.0), tenant(2, 1, 20.0), tenant(3, 1, 20.0, has_work=False)]))
    assert "75% of the GPU" in fair.explain(1)[0] and "60%" in fair.explain(1)[0]
    assert "25% of the GPU" in fair.explain(2)[0]
    assert "no work" in fair.explain(3)[0]


@settings(max_examples=50)
@given(view=views)
def test_fairs_shares_are_whole(view: View) -> None:
    fair = Fair()
    fair.tick(view)
    if fair.shares:
        assert sum(due for due, _ in fair.shares.values()) == pytest.approx(1)


def test_a_journal_has_the_last_sentences_of_those_who_are_there() -> None:
    journal = Journal()
    for number in range(KEPT + 2):
        journal.note(1, f"sentence {number}")
    journal.note(1, f"sentence {KEPT + 1}")
    journal.note(2, "another's")
    assert journal.of(1) == [f"sentence {KEPT + 1 - number}" for number in range(KEPT)]
    journal.keep_only([2, 3])
    assert journal.of(1, "nothing") == ["nothing"] and journal.of(2) == ["another's"]
    journal.note(1, "anew")
    assert journal.of(1) == ["anew"]
