"""Tenants in containers whose clock is shifted (time namespaces) agree with all others on when things were."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from tests.interposer.namespaces import skip_unless_allowed
from tests.interposer.test_gates import OBEDIENT, order, ready, rested
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

SHIFTED = ["unshare", "--user", "--map-root-user", "--time", "--monotonic", "100000", "--fork"]


@pytest.fixture(autouse=True, scope="module")
def _allowed() -> None:
    skip_unless_allowed(SHIFTED, "time")


def test_the_segments_clock_is_the_machines() -> None:
    asking = [
        sys.executable,
        "-c",
        "import time; from cotenant import segment as s; print(s.now_ns(), time.monotonic_ns())",
    ]
    before = segment.now_ns()
    out = subprocess.run([*SHIFTED, *asking], capture_output=True, text=True, check=True).stdout
    inside, shifted = (int(word) for word in out.split())
    assert before < inside < segment.now_ns()
    assert shifted > inside + 99_000 * 10**9


def test_a_tenant_in_a_time_namespace_waits_for_a_busy_one_outside(
    tenant: Start, tenants_now: TenantsNow
) -> None:
    """By its own clock, production's heartbeat would be a day old: that of a process that was stopped."""
    high = rested(tenant("production", OBEDIENT))
    low = ready(tenant("opportunistic", [*SHIFTED, "--kill-child", sys.executable, "-u", "-c", OBEDIENT]))
    (inside,) = [seen for seen in tenants_now() if seen.tenant_class == 2]
    assert abs(inside.heartbeat_ns - segment.now_ns()) < 3600 * 10**9
    assert order(high, "begin") == "did begin"
    assert order(low, "queue 5") == "did queue"
    for _ in range(20):
        assert order(low, "done?") == "False"
    assert order(high, "end") == "did end"
    wait_for(lambda: order(low, "done?") == "True")
