"""Pausing by hand: what the command makes of how a tenant stands, one look after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant import segment
from cotenant.errors import Problem
from cotenant.segment import Tenant, Where
from cotenant.tenants import pausing

PID = 4711
NOW_NS = 1_000_000
DID_NOT_DRAIN = 2
TENANT = Tenant(
    pid=PID,
    uid=1000,
    started=1,
    program="finetune",
    tenant="",
    tenant_class=2,
    unknown_functions=0,
    time_slice_us=0,
    time_slice_refused=False,
    uses=(),
    where=Where.resident,
)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Tenant]]:
    """What the looks at the segment find, the last of them for ever; every request is taken at once."""
    found: list[Tenant] = []
    monkeypatch.setattr(segment, "ask", lambda path, pid, wanted: True)
    monkeypatch.setattr(segment, "now_ns", lambda: NOW_NS)
    monkeypatch.setattr(pausing, "tenants_of", lambda path: (found.pop(0) if len(found) > 1 else found[0],))
    yield found


def test_what_it_refused_before_it_was_asked_does_not_count(looks: list[Tenant]) -> None:
    earlier = replace(TENANT, refusal=DID_NOT_DRAIN, refused_ns=NOW_NS - 1)
    looks += [
        earlier,
        earlier,
        earlier,
        replace(earlier, where=Where.leaving),
        replace(TENANT, where=Where.away),
    ]
    assert pausing.pause(Path("segment"), PID).where == Where.away


def test_what_it_refuses_now_is_told(looks: list[Tenant]) -> None:
    looks += [TENANT, TENANT, replace(TENANT, refusal=DID_NOT_DRAIN, refused_ns=NOW_NS + 1)]
    with pytest.raises(Problem, match="its work on the GPU did not end in time"):
        pausing.pause(Path("segment"), PID)
