"""SMs that are kept free for production beside a job in MPS (native/tenant/detour.h)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from cotenant.tenants import sm_limit
from tests.mps.conftest import Job
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run

PROGRAMS = Path(__file__).parents[1] / "interposer" / "programs"
SMS, HALF = 132, 64
US = 5000
# Both keep two kernels queued, and write down when they ran: `more` lets another ten of them run.
PROGRAM = f"""
import sys, json
import detours
from detours import *
detours.clock = check(driver.cuModuleGetFunction(
    check(driver.cuModuleLoadData(b'softgpu 1\\nkernel clock function=clock sms=' + sys.argv[1].encode())), b'clock'))
stream, clocks = gpu.stream(), Clocks(10, us={US})
ran = []
while say(json.dumps(ran)) == 'more':
    for i in range(10): clocks.launch(i, stream)
    ran = clocks.read()
"""


@pytest.fixture
def begin(mps_env: dict[str, str]) -> Iterator[Callable[[str, str], Job]]:
    """Jobs that nobody makes take turns."""
    path = Path(mps_env["COTENANT_SEGMENT"])
    segment.ensure(path)
    with path.open("r+b") as file:
        file.seek(segment.Header.knobs.offset + segment.Knobs.rule.offset)
        file.write((0).to_bytes(4, "little"))  # admission::none
    env = mps_env | {
        "COTENANT_NO_DAEMON": "1",
        "COTENANT_SOFTGPU": "h200",
        "PYTHONPATH": f"{PROGRAMS}:{mps_env.get('PYTHONPATH', '')}",
    }
    jobs: list[Job] = []

    def begin(tenant_class: str, sms: str) -> Job:
        run = [sys.executable, "-m", "cotenant", "run", "--require", "--share", "spatial"]
        command = [*run, "--class", tenant_class, "--", sys.executable, "-u", "-c", PROGRAM, sms]
        jobs.append(Job(command, env))
        assert jobs[-1].hear() == "[]"
        return jobs[-1]

    yield begin
    for job in jobs:
        job.process.kill()
        job.process.communicate()


Stretch = tuple[float, float]


def together(one: Job, other: Job) -> tuple[list[Stretch], list[Stretch]]:
    """When the kernels of each ran, at the same time or not."""
    for job in (one, other):
        assert job.process.stdin
        job.process.stdin.write("more\n")
        job.process.stdin.flush()
    mine, theirs = (json.loads(job.hear()) for job in (one, other))
    return mine, theirs


def beside(stretches: list[Stretch], others: list[Stretch]) -> list[float]:
    """How long those lasted that ran while one of the others did."""
    return [
        end - begin
        for begin, end in stretches
        if any(begin < their_end and their_begin < end for their_begin, their_end in others)
    ]


def test_kernels_of_both_run_as_if_they_were_alone(
    begin: Callable[[str, str], Job], cotenant: Run, mps_env: dict[str, str]
) -> None:
    production, other = begin("production", str(SMS - HALF)), begin("opportunistic", "all")

    def wait_until_beside(wanted: Callable[[list[float], list[float]], bool]) -> None:
        def seen() -> bool:
            mine, theirs = together(production, other)
            return wanted(beside(mine, theirs), beside(theirs, mine))

        wait_for(seen)

    # With all SMs for both there are not enough.
    wait_until_beside(lambda mine, theirs: any(took > 1.2 * US for took in (*mine, *theirs)))
    done = cotenant("ctl", str(other.pid), "--sms", "50%", env=mps_env)
    assert done.returncode == 0 and "turns" not in done.stderr, done.stderr
    alone = US * SMS / HALF
    wait_until_beside(
        lambda mine, theirs: (
            bool(mine and theirs)
            and all(took == pytest.approx(US, rel=1e-3) for took in mine)
            and all(took == pytest.approx(alone, rel=1e-3) for took in theirs)
        )
    )


def test_a_share_from_the_start_stays(
    start: Callable[..., Job], cotenant: Run, mps_env: dict[str, str]
) -> None:
    job = start("--share", "spatial", "--sms", "25%").begin()
    job.say("timed 1000")
    (tenant,) = segment.read(Path(mps_env["COTENANT_SEGMENT"])).tenants
    assert tenant.sms == 250
    for sms in ("50%", "all"):
        done = cotenant("ctl", str(job.pid), "--sms", sms, env=mps_env)
        assert done.returncode == 1
        assert "its SMs were given to it at its start" in done.stderr
    assert "get 25% of the SMs, since its start" in cotenant("explain", str(job.pid), env=mps_env).stdout


POLICY = """
from cotenant.policies.interface import Knobs, Policy, Rule, TenantKnobs

class Half(Policy):
    name, title, every_ms, rule = "half", "half of the SMs for every tenant", 10, Rule.none

    def tick(self, view):
        return Knobs(rule=self.rule, tenants={one.id: TenantKnobs(sm_share=0.5) for one in view.tenants})
"""


def test_the_daemon_writes_what_a_policy_gives_and_a_dead_one_limits_nobody(
    begin: Callable[[str, str], Job], cotenant: Run, mps_env: dict[str, str], tmp_path: Path
) -> None:
    production, other = begin("production", "all"), begin("opportunistic", "all")
    file = tmp_path / "half.py"
    file.write_text(POLICY)

    def alone_us(job: Job) -> list[float]:
        return [end - begin for begin, end in json.loads(job.say("more"))]

    def is_limited() -> bool:
        return alone_us(other) == pytest.approx([US * SMS / HALF] * 10, rel=1e-3)

    def use() -> segment.Use:
        tenants = segment.read(Path(mps_env["COTENANT_SEGMENT"])).tenants
        return next(one for one in tenants if one.pid == other.pid).uses[0]

    assert not is_limited()
    command = [sys.executable, "-m", "cotenant", "daemon", "--policy", str(file)]
    with subprocess.Popen(command, env=mps_env) as daemon:
        try:
            wait_for(is_limited)
            assert alone_us(production) == pytest.approx([US] * 10, rel=1e-3)
            wait_for(lambda: is_limited() and use().sms == 500)
            assert use().detours > 0
            # What the job itself is told holds where it is less.
            assert cotenant("ctl", str(other.pid), "--sms", "25%", env=mps_env).returncode == 0
            wait_for(lambda: alone_us(other) == pytest.approx([US * SMS / 32] * 10, rel=1e-3))
            assert cotenant("ctl", str(other.pid), "--sms", "all", env=mps_env).returncode == 0
            wait_for(is_limited)
        finally:
            daemon.kill()
    wait_for(lambda: alone_us(other) == pytest.approx([US] * 10, rel=1e-3))


@pytest.mark.parametrize(("told", "less"), [(0.0, ""), (0.9, ", less than the 90% of --sms"), (0.5, "")])
def test_explain_says_who_gave_a_job_fewer_sms(told: float, less: str) -> None:
    gpu = {"gpu": 1, "sms_by_policy": 0.75, "sms_now": 96, "detours": 7, "undetoured": 0}
    about = {"sms": told, "sms_refused": None, "policy": {"name": "guard"}, "gpus": [gpu]}
    said = list(sm_limit.in_words(about, "train (7)"))
    assert said == [
        f"the policy guard gives train (7)'s kernels 75% of GPU 1's SMs{less}",
        "train (7)'s kernels get 96 SMs of GPU 1: 7 did",
    ]
