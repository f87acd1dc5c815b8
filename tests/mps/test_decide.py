"""How `auto` decides, and what it remembers of a job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.config import files
from cotenant.mps import last_runs
from cotenant.mps.decide import (
    AUTO,
    LONGEST_REST_US,
    SMS_OF_LONG_KERNELS,
    SPATIAL,
    TURNS,
    Decision,
    Known,
    Profiled,
    decide,
)
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
    decision = decide(AUTO, tenant_class, False, True, known, company)
    assert decision.share == share and decision.reason and decision.sms is None


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
    decision = decide(AUTO, HIGH, False, True, known, False, profile)
    assert (decision.share, why in decision.reason) == (share, True), decision


def test_a_profile_tells_how_long_kernels_are_before_the_first_run() -> None:
    long, short = Profiled(0.9, 0.2, rest_us=6000.0), Profiled(0.9, 0.9, rest_us=40.0)
    assert decide(AUTO, LOW, False, True, None, True, long) == Decision(
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
    assert decide(AUTO, LOW, False, False, LIGHT, True) == Decision(
        TURNS, "there is no MPS control program here"
    )


@pytest.mark.parametrize(
    ("known", "profile", "tenant_class", "asked", "sms"),
    [
        (LONG, None, LOW, None, SMS_OF_LONG_KERNELS),
        (LONG, None, TenantClass.standard, None, SMS_OF_LONG_KERNELS),
        (None, Profiled(0.9, 0.9, rest_us=6000.0), LOW, None, SMS_OF_LONG_KERNELS),
        # Overlap that was harmless may have been so because of the share.
        (Known(0.9, harmless=True, rest_us=5000.0), None, LOW, None, SMS_OF_LONG_KERNELS),
        # Nobody waits for production's kernels; what was asked for counts; others' kernels end soon, or nobody knows.
        (LONG, None, HIGH, None, None),
        (LONG, None, LOW, "100%", None),
        (LONG, None, LOW, "50%", None),
        (SHORT, None, LOW, None, None),
        (SHORT, Profiled(0.9, 0.9, rest_us=6000.0), LOW, None, None),
        (HEAVY, None, LOW, None, None),
        (None, None, LOW, None, None),
    ],
)
def test_long_kernels_that_shall_overlap_get_a_share_of_the_sms(
    known: Known | None,
    profile: Profiled | None,
    tenant_class: TenantClass,
    asked: str | None,
    sms: str | None,
) -> None:
    decision = decide(SPATIAL, tenant_class, False, True, known, False, profile, asked)
    assert (decision.share, decision.sms) == (SPATIAL, sms)
    assert ("ms left in the mean" in decision.reason) == (sms is not None)
    assert decide(TURNS, tenant_class, False, True, known, False, profile, asked).sms is None


@pytest.mark.parametrize(
    ("company", "asked", "share"),
    [
        (True, "80%", SPATIAL),
        (True, "25%", SPATIAL),
        (True, None, TURNS),  # fewer SMs may change results: nobody has asked for that
        (True, "81%", TURNS),
        (True, "100%", TURNS),
        (True, "many%", TURNS),
        (False, "80%", TURNS),
    ],
)
def test_auto_lets_long_kernels_overlap_where_fewer_sms_were_asked_for(
    company: bool, asked: str | None, share: str
) -> None:
    decision = decide(AUTO, LOW, False, True, LONG, company, None, asked)
    assert (decision.share, decision.sms) == (share, None)
    assert "5.0 ms left in the mean" in decision.reason


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
    file.write_text("run aa 10.0 5.0 0\n" * 5000 + "run bb 10.0 2.0 0\n")
    assert last_runs.prepare(environment, "train.py") == file
    assert file.stat().st_size < last_runs.LONGEST_BYTES
    assert last_runs.read(environment, "train.py") == Known(0.2)


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


def test_long_kernels_overlap_with_fewer_sms_from_the_second_run_on_and_explain_says_why(
    start: Start, tenant: Callable[[Job], segment.Tenant], mps_env: dict[str, str], cotenant: Run
) -> None:
    options = ("--name", "long", "--class", "opportunistic", "--share", "spatial")
    written = last_runs.prepare(mps_env, "long")
    assert written is not None
    first = start(*options).begin()
    assert tenant(first).sms == 0
    assert "SMs" not in first.end()[1]
    written.write_text("run 00 60.0 60.0 5000\n")
    second = start(*options).begin()
    assert tenant(second).sms == 800
    said = cotenant("explain", str(second.pid), env=mps_env).stdout
    assert "in its last run its kernels had 5.0 ms left in the mean" in said
    assert "kernels get 80% of the SMs, since its start" in said
    written.write_text("run 00 60.0 60.0 5000\n")
    assert "so they get 80% of the SMs; hint: --sms all gives them all" in second.end()[1]
    for sms in ("all", "100%"):
        written.write_text("run 00 60.0 60.0 5000\n")
        whole = start(*options, "--sms", sms).begin()
        seen = tenant(whole)
        assert seen.mps_daemon and seen.sms == 0 and not seen.sms_refused
        assert "SMs" not in whole.end()[1]
    # The user's own share stays.
    written.write_text("run 00 60.0 60.0 5000\n")
    own = start(*options, env={"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}).begin()
    assert tenant(own).sms == 500


def test_auto_lets_long_kernels_overlap_with_a_share_from_the_file(
    start: Start, tenant: Callable[[Job], segment.Tenant], mps_env: dict[str, str], tmp_path: Path
) -> None:
    start("--class", "production", "--share", "spatial", "--name", "serve").begin()
    written = last_runs.prepare(mps_env, "long")
    assert written is not None
    written.write_text("run 00 60.0 60.0 5000\n")
    turns = start("--name", "long", "--class", "opportunistic").begin()
    assert tenant(turns).mps_daemon == 0
    file = tmp_path / "config.toml"
    file.write_text('[run]\nsms = "75%"\n')
    held = start("--name", "long", "--class", "opportunistic", env={files.USER_VARIABLE: str(file)}).begin()
    assert tenant(held).mps_daemon and tenant(held).sms == 750


def test_few_sms_let_no_unknown_kernels_overlap() -> None:
    """That they are few is a reason for long kernels only: how long these are is not known."""
    found = decide(AUTO, TenantClass.standard, False, True, None, True, None, "10%")
    assert (found.share, "is not known" in found.reason) == (TURNS, True)
