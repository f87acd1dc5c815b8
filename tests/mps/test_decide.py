"""How `auto` decides, and what it remembers of a job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.mps import last_runs
from cotenant.mps.decide import AUTO, LONGEST_REST_US, SPATIAL, TURNS, Known, Profiled, decide
from cotenant.profile import store
from cotenant.profile.job import Job as ProfiledJob
from tests.conftest import Run
from tests.mps.conftest import Job, Start

LOW, HIGH = TenantClass.opportunistic, TenantClass.production
LIGHT, HEAVY = Known(0.2), Known(0.9)
SHORT, LONG = Known(0.9, rest_us=200.0), Known(0.2, rest_us=5000.0)


@pytest.mark.parametrize(
    ("known", "company", "tenant_class", "share"),
    [
        (None, False, HIGH, TURNS),
        (LIGHT, False, HIGH, SPATIAL),
        (HEAVY, False, HIGH, TURNS),
        (Known(0.2, harmless=False), False, HIGH, TURNS),
        (Known(0.9, harmless=True), False, LOW, SPATIAL),
        # MPS cuts no kernel: production would wait for the end of a long one.
        (None, True, LOW, TURNS),
        (HEAVY, True, LOW, TURNS),
        (SHORT, True, LOW, SPATIAL),
        (LONG, True, LOW, TURNS),
        (LONG, False, LOW, TURNS),
        (LONG, False, HIGH, SPATIAL),
        (Known(0.9, harmless=False), True, LOW, TURNS),
        (HEAVY, True, HIGH, TURNS),
    ],
)
def test_auto_goes_by_the_last_run_and_the_company(
    known: Known | None, company: bool, tenant_class: TenantClass, share: str
) -> None:
    chosen, reason = decide(AUTO, tenant_class, False, True, known, company)
    assert chosen == share and reason


@pytest.mark.parametrize(
    ("known", "profile", "share", "why"),
    [
        (None, Profiled(0.9, 0.2), SPATIAL, "by its profile its kernels fill 20% of the SMs"),
        (None, Profiled(0.2, 0.9), SPATIAL, "by its profile it waits for its own CPU 80%"),
        (None, Profiled(0.9, 0.9), TURNS, "by its profile its kernels fill 90% of the SMs"),
        (None, Profiled(None, None), TURNS, "nothing is known"),
        # What the last run showed of the CPU is newer; of the SMs it says nothing.
        (HEAVY, Profiled(0.2, 0.9), TURNS, "in its last run"),
        (HEAVY, Profiled(0.2, 0.2), SPATIAL, "by its profile its kernels fill"),
        (Known(0.9, harmless=False), Profiled(0.2, 0.2), TURNS, "slowed production down"),
    ],
)
def test_a_profile_tells_before_the_first_run(
    known: Known | None, profile: Profiled, share: str, why: str
) -> None:
    chosen, reason = decide(AUTO, HIGH, False, True, known, False, profile)
    assert (chosen, why in reason) == (share, True), reason


def test_a_profile_tells_how_long_kernels_are_before_the_first_run() -> None:
    long, short = Profiled(0.9, 0.2, rest_us=6000.0), Profiled(0.9, 0.9, rest_us=40.0)
    assert decide(AUTO, LOW, False, True, None, True, long) == (
        TURNS,
        "by its profile its kernels had 6.0 ms left in the mean; MPS cuts none",
    )
    assert decide(AUTO, LOW, False, True, None, True, short)[0] == SPATIAL
    # What the last run measured is newer; nobody waits for production's own kernels.
    assert decide(AUTO, LOW, False, True, Known(0.9, rest_us=40.0), True, long)[0] == SPATIAL
    assert decide(AUTO, HIGH, False, True, None, False, long)[0] == SPATIAL


def test_what_was_asked_for_comes_first_and_isolation_before_it() -> None:
    assert decide(SPATIAL, LOW, False, True, HEAVY, False)[0] == SPATIAL
    assert decide(TURNS, LOW, False, True, LIGHT, True)[0] == TURNS
    assert decide(SPATIAL, LOW, True, True, LIGHT, True)[0] == TURNS
    assert decide(AUTO, LOW, False, False, LIGHT, True) == (TURNS, "there is no MPS control program here")


def test_the_newest_run_counts_and_of_it_the_process_with_the_most_work(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    assert last_runs.read(environment, "train.py") is None
    file = last_runs.prepare(environment, "train.py")
    assert file is not None
    file.write_text(
        "run aa 100.0 90.0 0\nrun bb 5.0 4.0 9\nrun bb 10.0 3.0 250.5\nrun bb 2.0 2.0 1\nrun cc 0.1 0.1 0\n"
        "garbage\nrun x y z 0\nrun dd 90.0 3.0\n"
    )
    assert last_runs.read(environment, "train.py") == Known(0.3, rest_us=250.5)
    file.write_text("run aa 10.0 5.0 0\n" * 5000)
    assert last_runs.prepare(environment, "train.py") == file
    assert file.stat().st_size < last_runs.LONGEST_BYTES
    assert last_runs.read(environment, "train.py") == Known(0.5)


def test_a_light_job_overlaps_from_its_second_run_on_and_explain_says_why(
    start: Start, tenant: Callable[[Job], segment.Tenant], mps_env: dict[str, str], cotenant: Run
) -> None:
    first = start("--name", "light").begin()
    assert tenant(first).mps_daemon == 0
    said = cotenant("explain", str(first.pid), env=mps_env).stdout
    assert "takes turns: nothing is known of an earlier run" in said
    assert first.end()[0] == 0
    written = last_runs.file_for(mps_env, "light")
    assert written is not None and written.read_text().startswith("run ")
    # As if it had lasted for long enough to tell.
    written.write_text("run 00 60.0 6.0 0\n")
    second = start("--name", "light").begin()
    assert tenant(second).mps_daemon
    said = cotenant("explain", str(second.pid), env=mps_env).stdout
    assert (
        "overlaps with others in MPS: in its last run it waited for its own CPU 90% of its time at work"
        in said
    )


def test_a_profiled_job_overlaps_in_its_first_run_and_explain_says_why(
    start: Start, tenant: Callable[[Job], segment.Tenant], mps_env: dict[str, str], cotenant: Run
) -> None:
    light = ProfiledJob(9.0, 0.9, 0.25, 1 << 30, 1 << 30, {}, 0.0)
    store.add_job(mps_env, "small", "Cotenant Software GPU", light)
    store.add_job(mps_env, "elsewhere", "NVIDIA H200", light)
    first = start("--name", "small").begin()
    assert tenant(first).mps_daemon
    said = cotenant("explain", str(first.pid), env=mps_env).stdout
    assert "overlaps with others in MPS: by its profile its kernels fill 25% of the SMs" in said
    other = start("--name", "elsewhere").begin()  # on another model of GPU it may be otherwise
    assert tenant(other).mps_daemon == 0


def test_a_run_keeps_how_long_its_kernels_were(start: Start, mps_env: dict[str, str]) -> None:
    job = start("--name", "long", "--class", "opportunistic").begin()
    for _ in range(12):
        job.say("timed 30000")
    assert job.end()[0] == 0
    written = last_runs.file_for(mps_env, "long")
    assert written is not None
    assert float(written.read_text().split()[4]) > LONGEST_REST_US
