"""Tenants in containers whose clock is shifted (time namespaces) agree with all others on when things were."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from cotenant.traces import read
from tests.interposer.conftest import PROGRAMS
from tests.interposer.namespaces import skip_unless_allowed
from tests.interposer.test_gates import OBEDIENT, order, ready, rested
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run
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


def test_a_trace_has_the_times_between_operations(
    cotenant: Run, softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    """Though the job's own clock is a day ahead."""
    program = """
import time; from soft import Gpu
gpu = Gpu(); kernel = gpu.kernel('empty'); stream = gpu.stream()
for _ in range(3): gpu.launch(kernel, stream); gpu.synchronize(); time.sleep(0.02)
"""
    path = tmp_path / "job.trace"
    words = ["record", "-o", str(path), "--", *SHIFTED, sys.executable, "-c", program]
    folders = os.pathsep.join([str(PROGRAMS), softgpu_env["PYTHONPATH"]])
    done = cotenant(*words, env=softgpu_env | {"PYTHONPATH": folders})
    assert done.returncode == 0, done.stderr
    recorded = read(path).operations
    assert sum(recorded.gap_us > 20_000) == 2 and recorded.time_us[-1] > 2 * 20_000


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
