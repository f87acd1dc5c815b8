"""What annotations of a running pod can change, and what they cannot, with the reason."""

from __future__ import annotations

import pytest

from cotenant.classes import TenantClass
from cotenant.kubernetes.claims import Given, Terms
from cotenant.kubernetes.node import changes
from cotenant.kubernetes.node.changes import Wanted
from cotenant.kubernetes.parameters import Parameters

MIB = 1 << 20


def terms(tenant_class: str, promise: str | None = None) -> Terms:
    given = Given("gpu", "node", "gpu-0", memory=64 * MIB, overflow=64 * MIB)
    return Terms("uid", "team", "mine", tenant_class, (given,), Parameters(promise=promise))


def wanted(claim: Terms, **annotations: str) -> tuple[Wanted, list[str]]:
    said = {f"cotenant.dev/{word}": text for word, text in annotations.items()} | {"other/class": "x"}
    return changes.wanted(said, claim, lambda: 256 * MIB)


def test_without_annotations_all_is_as_claimed() -> None:
    assert wanted(terms("production", "5%")) == (Wanted(TenantClass.production, 128 * MIB, 50), [])


def test_class_memory_and_promise_change_within_the_claim() -> None:
    claim = terms("production", "5%")
    said = {"class": "production", "memory": "32Mi", "slowdown": "10%"}
    assert wanted(claim, **said) == (Wanted(TenantClass.production, 32 * MIB, 100), [])
    assert wanted(claim, memory="25%") == (Wanted(TenantClass.production, 64 * MIB, 50), [])


def test_with_production_goes_its_promise() -> None:
    claim = terms("production", "5%")
    assert wanted(claim, **{"class": "opportunistic"})[0] == Wanted(TenantClass.opportunistic, 128 * MIB, 0)
    lower, refused = wanted(claim, **{"class": "standard", "slowdown": "5%"})
    assert (lower.tenant_class, lower.slowdown) == (TenantClass.standard, 0)
    assert refused == [
        "cotenant.dev/slowdown: 5%: a slowdown is promised to production, and the class is standard"
    ]


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [
        (
            {"class": "production"},
            "cotenant.dev/class: production: the claim mine is of class standard, and a change goes no higher;"
            " make a claim of production.cotenant.dev",
        ),
        ({"class": "standart"}, "cotenant.dev/class: standart: unknown class; did you mean 'standard'?"),
        (
            {"memory": "129Mi"},
            "cotenant.dev/memory: 129Mi: the claim mine has 128Mi, memory and overflow together; claim more",
        ),
        ({"memory": "9" * 5000}, f"cotenant.dev/memory: {'9' * 5000}: no quantity: "),
        ({"memory": "lots"}, "cotenant.dev/memory: lots: no quantity: 'lots'; give it as Kubernetes has it"),
        (
            {"memory": "20"},
            "cotenant.dev/memory: 20: no memory: '20'; the least is 1Mi; did you forget the unit?",
        ),
        ({"memory": ""}, "cotenant.dev/memory: : no quantity: ''"),
        ({"class": ""}, "cotenant.dev/class: : unknown class; known: production, standard, opportunistic"),
        ({"slowdown": "5%"}, "cotenant.dev/slowdown: 5%: a slowdown is promised to production"),
        ({"on-eviction": "stop"}, "cotenant.dev/on-eviction is pause or run"),
        (
            {"clas": "opportunistic"},
            "the annotation 'cotenant.dev/clas' is not known to Cotenant: did you mean",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_and_the_claim_holds(
    annotations: dict[str, str], reason: str
) -> None:
    made, [refused] = wanted(terms("standard"), **annotations)
    assert refused.startswith(reason)
    assert made == changes.claimed(terms("standard"))


def test_one_that_is_refused_takes_no_other_with_it() -> None:
    made, refused = wanted(terms("standard"), **{"class": "production", "memory": "16Mi"})
    assert (made.tenant_class, made.memory, len(refused)) == (TenantClass.standard, 16 * MIB, 1)


def test_a_change_is_said_by_what_differs() -> None:
    before = Wanted(TenantClass.production, 128 * MIB, 50)
    after = Wanted(TenantClass.opportunistic, 64 * MIB, 0)
    assert after.in_words(before) == "class opportunistic, memory up to 64Mi, no slowdown promised"
