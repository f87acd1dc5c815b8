"""What crosses the border between a policy and its caller: every field of an answer is checked, and every figure of a
slot is brought into its range."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from cotenant.policies import border
from cotenant.policies.border import BadAnswer
from cotenant.policies.interface import Knobs, Met, Pair, Rule, Said, TenantKnobs

MOST = 2.0**32 - 1
NAN, INF = math.nan, math.inf
AMOUNTS: tuple[Any, ...] = (None, 0, 0.0, 1.5, MOST)
NO_AMOUNTS: tuple[Any, ...] = (-0.001, MOST + 1, NAN, INF, "1", True, (1,))
FIELDS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "shut": ((True, False), (None, 0, 1, "no")),
    "tolerant": ((True, False), (None, 0, 1, "no")),
    "rate": (AMOUNTS, NO_AMOUNTS),
    "sm_share": (AMOUNTS, NO_AMOUNTS),
    "time_slice_us": (AMOUNTS, NO_AMOUNTS),
    "rank": ((0.0, -3, INF, -INF), (None, NAN, "1", True)),
    "lane": ((0, 7, int(MOST)), (None, -1, 1.0, int(MOST) + 1, True, NAN)),
}
PAIR, MET = Pair("serve", "train", False), Met(1.1, 1.0)


def of_tenant(**wanted: Any) -> Knobs:
    return Knobs(tenants={7: TenantKnobs(), 8: replace(TenantKnobs(), **wanted)})


def of_gpu(**wanted: Any) -> Knobs:
    return replace(Knobs(), **wanted)


@pytest.mark.parametrize("name", FIELDS)
def test_every_knob_of_a_tenant_has_its_range(name: str) -> None:
    right, wrong = FIELDS[name]
    for value in right:
        answer = of_tenant(**{name: value})
        assert border.knobs(answer) is answer
    for value in wrong:
        with pytest.raises(BadAnswer, match=f"^{name} is "):
            border.knobs(of_tenant(**{name: value}))


@pytest.mark.parametrize("name", ["gate_every_us", "in_flight_us", "turn_us"])
def test_every_knob_of_a_gpu_has_its_range(name: str) -> None:
    for value in AMOUNTS:
        border.knobs(of_gpu(**{name: value}))
    for value in NO_AMOUNTS:
        with pytest.raises(BadAnswer, match=f"^{name} is "):
            border.knobs(of_gpu(**{name: value}))


def test_what_is_no_answer_of_a_tick() -> None:
    wrong: list[tuple[Any, str]] = [
        (None, "tick answered None"),
        (of_gpu(rule="strict"), "the rule is 'strict'"),
        (of_gpu(rule=max(Rule) + 1), "the rule is "),
        (of_gpu(parameters=5), "the parameters are 5"),
        (of_gpu(parameters=(0.0,) * 9), "not at most 8 numbers"),
        (of_gpu(parameters=(0.0, NAN)), "a parameter is nan"),
        (of_gpu(tenants=[7]), "not knobs by a tenant's id"),
        (of_gpu(tenants={7: None}), "a tenant's knobs are None"),
    ]
    for answer, why in wrong:
        with pytest.raises(BadAnswer, match=why):
            border.knobs(answer)
    border.knobs(Knobs(parameters=(INF,) * 8))
    with pytest.raises(BadAnswer, match="not one of strict"):
        border.knobs(Knobs(rule=Rule.reef), {Rule.strict})


def test_what_a_policy_has_learned_can_be_recalled() -> None:
    assert border.pairs({PAIR: MET}) == {PAIR: MET} and border.pairs({}) == {}
    number: Any = 3
    wrong: list[Any] = [
        None,
        [PAIR],
        {("serve", "train", False): MET},
        {PAIR._replace(beside=number): MET},
        {PAIR: (1.1, 1.0)},
        {PAIR: replace(MET, overlap=NAN)},
        {PAIR: replace(MET, strict=NAN)},
    ]
    for answer in wrong:
        with pytest.raises(BadAnswer, match=r"learned|a slowdown"):
            border.pairs(answer)


def test_sentences_are_few_short_and_printable() -> None:
    said = border.sentences(("one\x1b[2J", Said("two", 7), "x" * 501, *"abcdefghijklmnopqrst"))
    assert said[0].startswith("one") and "\x1b" not in said[0]
    assert [getattr(one, "about", None) for one in said[:3]] == [None, 7, None]
    assert (len(said), len(said[2])) == (20, 500)
    for answer in (None, "one", ["one", 2], {"one": 1}):
        with pytest.raises(BadAnswer, match="explain answered"):
            border.sentences(answer)


def test_a_sentence_is_about_a_tenant_or_about_nobody() -> None:
    class Own(str):
        about = "tenant 7"

    (said,) = border.sentences([Own("one")])
    assert type(said) is str and not isinstance(said, Said)


def test_who_cannot_say_what_it_is() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise SystemExit

    assert border.shown(Odd()) == "a Odd"
    assert len(border.shown("y" * 1000)) == 300
    assert border.shown(BadAnswer("z" * 400)) == "z" * 400


def test_figures_of_a_slot_are_brought_into_their_ranges() -> None:
    assert [border.weight(one) for one in (0, 99, 100, 1500, 100_000, 2**32 - 1)] == [
        *(0.1, 0.1, 0.1, 1.5),
        *(100.0, 100.0),
    ]
    assert [border.slowdown(one) for one in (0, 1, 50, 10_000, 2**32 - 1)] == [None, 0.001, 0.05, 10.0, 10.0]
    assert [border.floor(one) for one in (0, 1, 900, 901, 2**32 - 1)] == [0.0, 0.001, 0.9, 0.9, 0.9]
