"""What every published policy decides in lives that were drawn, as digests.

A life is a GPU on which tenants of all classes come, go, work at a pace that changes, and state what they like. What is
drawn does not depend on what a policy decides. Decisions count to six digits, and of explanations the numbers: words
may change. Who changes what a policy does on purpose puts the new digest here.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from cotenant.classes import TenantClass
from cotenant.policies import border, registry
from cotenant.policies.interface import Knobs, Tenant, TenantKnobs, View

LIVES, TICKS = 16, 240
CLASSES = tuple(TenantClass)
EXPECTED = {
    "antman": "11d9185b6d7469d7",
    "fair": "f7d9d6725721098c",
    "gemini": "91853a51e9beb726",
    "muxflow": "e745494f756e88ec",
    "orion": "1a89952d81afbfd8",
    "paella": "9111839263f66ce3",
    "salus-fair": "55b31efcf3eff688",
    "salus-fifo": "6a7e0d68320be831",
    "salus-pack": "fb195de4c40c55b1",
    "salus-rr": "a48a5c864bd5538e",
    "salus-srtf": "cbde946a2a9005be",
    "tgs": "1c3d3f967ee9e641",
}


class Drawn(random.Random):
    """Only from what every version of Python draws alike."""

    def of(self, *values: float) -> float:
        return values[int(self.random() * len(values))]

    def within(self, least: float, most: float) -> float:
        return least + (most - least) * self.random()


class Life:
    """One tenant: what it states, and its pace in operations a microsecond."""

    def __init__(self, draw: Drawn, number: int, now_us: float, sms: int) -> None:
        self.draw, self.sms = draw, sms
        self.pace = draw.within(0.001, 0.05)
        self.busy = draw.of(0.1, 0.4, 0.8, 0.92, 0.99)
        self.noise = draw.of(0.0, 0.01, 0.1)
        self.alone_us = draw.within(2_000, 40_000)
        self.is_simulated = sms > 0
        stated = Tenant(
            number,
            CLASSES[min(int(draw.random() * 4), 2)] if number > 1 else TenantClass.production,
            weight=draw.of(1, 1, 2, 0.5),
            slowdown=draw.of(0, 0, 0.05, 0.3) or None,
            floor=draw.of(0, 0, 0.1, 0.25),
            mps_daemon=int(draw.of(0, 7)),
        )
        self.now = stated
        if self.is_simulated:
            self.now = replace(
                stated,
                share_request=draw.of(0, 0, 0.3, 0.6),
                share_limit=draw.of(1, 1, 0.2, 0.05),
                alone_us=self.alone_us,
                remaining_us=draw.of(0, draw.within(1e6, 1e8)),
                arrived_us=now_us,
                trains=draw.random() < 0.5,
                persistent_bytes=int(draw.of(0.5, 1, 2, 30) * draw.within(0.9, 1.0) * 2**30),
                ephemeral_bytes=int(draw.of(1, 4, 9, 60) * draw.within(0.9, 1.0) * 2**30),
            )

    def work(self, step_us: float) -> Tenant:
        draw, was = self.draw, self.now
        if draw.random() < 0.02:
            self.pace *= draw.of(0.5, 0.85, 0.95, 1.04, 1.3)
        if draw.random() < 0.02:
            self.busy = draw.of(0.0, 0.3, 0.86, 0.97)
        off = 1 + self.noise * (draw.random() - 0.5)
        busy_us = min(self.busy * off, 1.0) * step_us
        requests = int(busy_us / self.alone_us / draw.of(1, 1, 1.05, 1.2)) if self.is_simulated else 0
        self.now = replace(
            was,
            has_work=draw.random() < self.busy,
            used_us=was.used_us + busy_us * draw.of(1, 0.9, 0.3),
            busy_us=was.busy_us + busy_us,
            operations=was.operations + round(self.pace * step_us * off * (self.busy > 0)),
            bursts=was.bursts + round(busy_us / self.alone_us),
            requests=was.requests + requests,
            request_us=was.request_us + requests * self.alone_us * draw.within(1.0, 1.25),
            sm_us=was.sm_us + busy_us * self.sms * draw.within(0.2, 1.0),
            remaining_us=max(was.remaining_us - busy_us, 0.0),
            profiled_kernels=was.profiled_kernels + int(draw.of(0, 0, 1)),
            unprofiled_kernels=was.unprofiled_kernels + int(draw.of(0, 0, 0, 1)),
        )
        return self.now


@cache
def lives() -> list[list[View]]:
    return [list(views(Drawn(number))) for number in range(LIVES)]


def views(draw: Drawn) -> Iterator[View]:
    sms = int(draw.of(0, 132))
    memory_bytes = int(draw.of(0, 12, 16, 80)) << 30
    step_us = draw.of(10_000, 100_000, 1_000_000, 1_000_000, 2_500_000)
    leaves = draw.of(0.0, 0.003, 0.02)
    now_us, number, here = 1e6, 0, list[Life]()
    for _ in range(TICKS):
        now_us += step_us
        here = [one for one in here if draw.random() >= leaves]
        if len(here) < 2 or (len(here) < 6 and draw.random() < 2 * leaves):
            number += 1
            here.append(Life(draw, number, now_us, sms))
        yield View(now_us, [one.work(step_us) for one in here], sms=sms, memory_bytes=memory_bytes)


def rounded(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


def in_short(knobs: Knobs) -> object:
    def of_one(one: TenantKnobs) -> object:
        return [
            rounded(value)
            for value in (
                one.shut,
                one.tolerant,
                one.rate,
                one.sm_share,
                one.time_slice_us,
                one.rank,
                one.lane,
            )
        ]

    of_all = [
        rounded(value)
        for value in (knobs.gate_every_us, knobs.in_flight_us, knobs.turn_us, *knobs.parameters)
    ]
    return knobs.rule.name, of_all, sorted((number, of_one(one)) for number, one in knobs.tenants.items())


@pytest.mark.parametrize("name", EXPECTED)
def test_a_policy_decides_in_drawn_lives_what_it_decided_before(name: str) -> None:
    digest = hashlib.blake2b(digest_size=8)
    for life in lives():
        policy = registry.find(name)()
        for place, view in enumerate(life):
            digest.update(repr(in_short(border.knobs(policy.tick(view)))).encode())
            if place % 8 == 0:
                said = [
                    re.findall(r"[-+.\d]+", one)
                    for tenant in view.tenants
                    for one in policy.explain(tenant.id)
                ]
                digest.update(repr(said).encode())
    assert digest.hexdigest() == EXPECTED[name]
