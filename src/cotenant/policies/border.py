"""The border between a policy and its caller, the daemon or the simulator: what crosses it is checked here.

In: a tenant writes its own slot, so its weight, promise and floor are brought into the ranges that `run` and `ctl`
allow. Out: anybody may write a policy, so its knobs and sentences are checked before they take effect.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from numbers import Real
from typing import TypeGuard

from cotenant import units
from cotenant.policies.interface import Knobs, Met, Pair, Rule, Said, TenantKnobs
from cotenant.segment.wire import FIRST_MODELLED, PARAMETERS
from cotenant.terminal import printable

LIVE_RULES = frozenset(rule for rule in Rule if rule < FIRST_MODELLED) | {Rule.orion, Rule.reef}
LARGEST = 2.0**32 - 1  # what a knob in shared memory can hold
MOST_SENTENCES, LONGEST_SENTENCE = 20, 500
LONGEST_FAILURE = 300


class BadAnswer(Exception):
    """What a policy answered cannot be used; the text says why."""


# ---- in: figures ----


@lru_cache(1024)
def weight(thousandths: int) -> float:
    return min(max(thousandths, units.LEAST_WEIGHT), units.MOST_WEIGHT) / 1000


@lru_cache(1024)
def slowdown(thousandths: int) -> float | None:
    """None: nothing was promised."""
    return min(thousandths, units.MOST_SLOWDOWN) / 1000 or None


@lru_cache(1024)
def floor(thousandths: int) -> float:
    return min(thousandths, units.MOST_FLOOR) / 1000


# ---- out: knobs, sentences and what is to be recalled ----


def knobs(answer: object, rules: Collection[Rule] = frozenset(Rule)) -> Knobs:
    """What a tick answered, where every knob can be turned so; raises BadAnswer where not."""
    if not isinstance(answer, Knobs):
        raise BadAnswer(f"tick answered {shown(answer)}, not Knobs")
    if not isinstance(answer.rule, int) or answer.rule not in rules:
        raise BadAnswer(
            f"the rule is {shown(answer.rule)}, not one of {', '.join(one.name for one in sorted(rules))}"
        )
    for name in ("gate_every_us", "in_flight_us", "turn_us"):
        check_amount(name, getattr(answer, name))
    if not isinstance(answer.parameters, Sequence) or len(answer.parameters) > PARAMETERS:
        raise BadAnswer(f"the parameters are {shown(answer.parameters)}, not at most {PARAMETERS} numbers")
    for value in answer.parameters:
        check_number("a parameter", value)
    if not isinstance(answer.tenants, Mapping):
        raise BadAnswer(f"tenants is {shown(answer.tenants)}, not knobs by a tenant's id")
    for wanted in answer.tenants.values():
        check_tenant(wanted)
    return answer


def check_tenant(wanted: object) -> None:
    if not isinstance(wanted, TenantKnobs):
        raise BadAnswer(f"a tenant's knobs are {shown(wanted)}, not TenantKnobs")
    for name in ("shut", "tolerant"):
        value = getattr(wanted, name)
        if value is not True and value is not False:
            raise BadAnswer(f"{name} is {shown(value)}, not True or False")
    if wanted.rate is not None:
        check_amount("rate", wanted.rate)
    if wanted.sm_share is not None:
        check_amount("sm_share", wanted.sm_share)
    if wanted.time_slice_us is not None:
        check_amount("time_slice_us", wanted.time_slice_us)
    if wanted.rank != 0.0:
        check_number("rank", wanted.rank)
    if type(wanted.lane) is not int or not 0 <= wanted.lane <= LARGEST:
        raise BadAnswer(f"lane is {shown(wanted.lane)}, not a whole number from 0")


def check_amount(name: str, value: object) -> None:
    if value is not None and not (is_number(value) and 0 <= value <= LARGEST):
        raise BadAnswer(f"{name} is {shown(value)}, not a number from 0 to {LARGEST:.0f}")


def check_number(name: str, value: object) -> None:
    if not is_number(value) or math.isnan(value):
        raise BadAnswer(f"{name} is {shown(value)}, not a number")


def is_number(value: object) -> TypeGuard[float]:
    return type(value) is float or (isinstance(value, Real) and not isinstance(value, bool))


def pairs(answer: object) -> dict[Pair, Met]:
    """What `learned` answered; raises BadAnswer where it is nothing that can be recalled."""
    if not isinstance(answer, Mapping):
        raise BadAnswer(f"learned answered {shown(answer)}, not what was met by pair")
    for pair, met in answer.items():
        if not isinstance(pair, Pair) or not all(isinstance(name, str) for name in pair[:2]):
            raise BadAnswer(f"learned has {shown(pair)}, not a Pair")
        if not isinstance(met, Met):
            raise BadAnswer(f"learned has {shown(met)}, not a Met")
        check_number("a slowdown", met.overlap)
        check_number("a slowdown", met.strict)
        check_amount("a share of the SMs", met.sm_share)
    return dict(answer)


def sentences(answer: object) -> list[str]:
    """What `explain` answered; raises BadAnswer where it is no list of sentences."""
    if not isinstance(answer, list | tuple) or not all(isinstance(one, str) for one in answer):
        raise BadAnswer(f"explain answered {shown(answer)}, not a list of sentences")
    return [sentence(one) for one in answer[:MOST_SENTENCES]]


def sentence(one: str) -> str:
    text = printable(one[:LONGEST_SENTENCE])
    about = getattr(one, "about", None)
    return Said(text, about) if type(about) is int else text


def shown(value: object) -> str:
    """In a few words, also where it cannot even say what it is."""
    try:
        if isinstance(value, BadAnswer):
            return str(value)
        return printable(repr(value)[:LONGEST_FAILURE])
    except BaseException:  # a policy's own class may do anything when it is asked
        return f"a {type(value).__name__}"
