"""`cotenant ctl`: what it cannot do is said; what it can is seen in the tenant's slot and, for the class, in
tests/interposer/test_gates.py."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from cotenant import classes, segment
from cotenant.commands import ctl
from cotenant.errors import Problem
from cotenant.segment import Where
from cotenant.tenants import jobs, sm_limit
from tests.segments import Written
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run


@pytest.fixture
def env(plain_env: dict[str, str]) -> dict[str, str]:
    written = Written()
    written.tenant(3, pid=4711, name=b"finetune")
    written.tenant(5, pid=4712, owner=segment.OWNER_DIED | 4712)
    written.to(Path(plain_env["COTENANT_SEGMENT"]))
    return plain_env


@pytest.mark.parametrize("pid", ["1", "4712"])
def test_a_process_that_is_no_tenant(cotenant: Run, env: dict[str, str], pid: str) -> None:
    done = cotenant("ctl", pid, "--class", "standard", env=env)
    assert done.returncode == 1
    assert done.stderr == f"error: no job has the name, id or PID '{pid}'\nhint: there are finetune (4711)\n"


def test_a_foreign_segment_is_left_alone(cotenant: Run, plain_env: dict[str, str]) -> None:
    path = Path(plain_env["COTENANT_SEGMENT"])
    path.write_bytes(b"something else" * 100)
    done = cotenant("ctl", "1", "--class", "standard", env=plain_env)
    assert done.returncode == 1 and "not a Cotenant segment" in done.stderr
    assert path.read_bytes() == b"something else" * 100


def test_a_tenant_that_does_not_answer(cotenant: Run, env: dict[str, str]) -> None:
    done = cotenant("ctl", "4711", "--class", "production", env=env)
    assert done.returncode == 1 and "does not answer" in done.stderr


def test_a_request_is_taken_when_the_tenant_has_cleared_it(env: dict[str, str]) -> None:
    path, wanted = Path(env["COTENANT_SEGMENT"]), {"time_slice_us": 2000}  # which no figure shows at once
    assert segment.ask(path, 4711, wanted)
    (waiting,) = segment.read(path).tenants
    taken = replace(waiting, asked=())
    assert not ctl.has_taken(waiting, wanted) and ctl.has_taken(taken, wanted)
    assert not ctl.has_taken(taken, {"weight": 2000}) and ctl.has_taken(taken, {"weight": taken.weight})


JOB = """
import sys
sys.path.insert(0, sys.argv[1])
from soft import Gpu
gpu = Gpu(); gpu.launch(gpu.kernel('empty')); gpu.synchronize()
print('ready', flush=True); input()
"""


@pytest.fixture
def job(softgpu_env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A real tenant of the class opportunistic, at rest."""
    pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    programs = Path(__file__).parent / "interposer" / "programs"
    command = [
        sys.executable,
        "-m",
        "cotenant",
        "run",
        "--require",
        "--class",
        "opportunistic",
        "--weight",
        "2",
    ]
    with subprocess.Popen(
        [*command, "--floor", "0.1", "--", sys.executable, "-c", JOB, str(programs)],
        env=softgpu_env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        yield process
        process.communicate("end\n", timeout=60)


def test_a_running_tenant_takes_all_that_it_is_asked(
    cotenant: Run, job: subprocess.Popen[str], softgpu_env: dict[str, str]
) -> None:
    def seen() -> segment.Tenant:
        (only,) = segment.read(Path(softgpu_env["COTENANT_SEGMENT"])).tenants
        return only

    def change(*arguments: str) -> str:
        done = cotenant("ctl", str(job.pid), *arguments, env=softgpu_env)
        assert done.returncode == 0, done.stderr
        return done.stderr

    # What `run` was told has arrived.
    assert (seen().weight, seen().floor, seen().slowdown) == (2000, 100, 0)
    line = change("--weight", "0.5", "--floor", "5%", "--time-slice", "2ms")
    assert line == f"python-code ({job.pid}): weight 0.5, floor 5%, time slice 2000 us\n"
    assert (seen().weight, seen().floor, seen().asked) == (500, 50, ())
    # A promise that `run` forbids in the new class is taken back with the old class.
    line = change("--class", "production", "--slowdown", "0.02", "--time-slice", "default")
    assert "no floor promised" in line
    assert (seen().tenant_class, seen().slowdown, seen().floor) == (0, 20, 0)
    assert "no slowdown promised" in change("--class", "opportunistic")
    assert (seen().tenant_class, seen().slowdown) == (2, 0)
    change("--floor", "5%")
    change("--floor", "none")
    assert seen().floor == 0


def test_what_nobody_has_sealed_is_dropped_and_the_next_request_is_taken(
    cotenant: Run, job: subprocess.Popen[str], softgpu_env: dict[str, str]
) -> None:
    path = Path(softgpu_env["COTENANT_SEGMENT"])
    with path.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    places = range(segment.PLACE, segment.SEGMENT_BYTES, segment.PLACE)
    (slot,) = (one for at in places if segment.is_live(one := segment.Slot.from_buffer(memory, at)))
    for floor in (51, 52):
        slot.asked.floor = floor
        wait_for(lambda: slot.asked.floor == 0)
        assert slot.floor == 100
    done = cotenant("ctl", str(job.pid), "--floor", "5%", env=softgpu_env)
    assert (done.returncode, slot.floor) == (0, 50), done.stderr


def test_the_policy_is_named_in_the_segment(cotenant: Run, env: dict[str, str], tmp_path: Path) -> None:
    path = Path(env["COTENANT_SEGMENT"])
    done = cotenant("ctl", "--policy", "fair", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "the policy is fair now\n")
    assert segment.read(path).policy == "fair"
    for wrong in ("nosuch", str(tmp_path / "gone.py")):
        assert cotenant("ctl", "--policy", wrong, env=env).returncode == 2
    source = (
        "class Mine:\n    name, title, every_ms = 'mine', 'mine', 10\n"
        "    def tick(self, view): ...\n    def explain(self, tenant): ...\n"
    )
    deep = tmp_path.joinpath(*["x" * 200] * 3)
    deep.mkdir(parents=True)
    (deep / "mine.py").write_text(source)
    done = cotenant("ctl", "--policy", str(deep / "mine.py"), env=env)
    assert done.returncode == 2 and "shorter" in done.stderr
    assert segment.read(path).policy == "fair"
    # The daemon works in another folder: it is told the whole path.
    (tmp_path / "mine.py").write_text(source)
    assert cotenant("ctl", "--policy", os.path.relpath(tmp_path / "mine.py"), env=env).returncode == 0
    assert segment.read(path).policy == str(tmp_path / "mine.py")


def test_a_policy_file_whose_path_is_no_text_is_refused(
    cotenant: Run, env: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    (folder / "mine.py").write_text("")
    for arguments in (("ctl",), ("run", "true")):
        done = cotenant(arguments[0], "--policy", folder / "mine.py", *arguments[1:], env=env)
        assert (done.returncode, done.stderr.splitlines()) == (
            2,
            [f"error: {tmp_path}/?/mine.py is not UTF-8", "hint: put the file where its path is"],
        )


def test_a_policy_needs_a_segment(cotenant: Run, plain_env: dict[str, str]) -> None:
    done = cotenant("ctl", "--policy", "fair", env=plain_env)
    assert done.returncode == 1 and "there is no segment" in done.stderr


def test_a_policy_needs_a_segment_that_is_one(
    cotenant: Run, plain_env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "segment").write_bytes(b"something else" * 1000)
    done = cotenant("ctl", "--policy", "fair", "--segment", tmp_path / "segment", env=plain_env)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["error", "hint"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["4711"], "give one of --class"),
        (["4711", "--class", "prodution"], "did you mean 'production'?"),
        (["--class", "standard"], "cotenant ctl JOB"),
        (["finetune"], "give one of --class"),
        (["4711", "--policy", "fair"], "leave the job out"),
        (["4711", "--weight", "0"], "0.1 to 100"),
        (["4711", "--weight", "5%"], "0.1 to 100"),
        (["4711", "--weight", "101"], "0.1 to 100"),
        (["4711", "--floor", "91%"], "from 0% to 90%"),
        (["4711", "--floor", "much"], "from 0% to 90%"),
        (["4711", "--slowdown", "2000%"], "from 0.1% to 1000%"),
        (["4711", "--class", "production", "--slowdown", "5"], "did you mean 5%?"),
        (["4711", "--floor", "5"], "did you mean 5%?"),
        (["4711", "--slowdown", "5%"], "--class production"),
        (["4711", "--class", "production", "--floor", "5%"], "standard and opportunistic"),
        (["4711", "--time-slice", "2"], "50us or 2ms"),
        (["4711", "--time-slice", "11s"], "50us or 2ms"),
        (["4711", "--time-slice", "0ms"], "50us or 2ms"),
    ],
)
def test_bad_words(cotenant: Run, env: dict[str, str], arguments: list[str], hint: str) -> None:
    done = cotenant("ctl", *arguments, env=env)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and hint in done.stderr
    assert not [name for one in segment.read(Path(env["COTENANT_SEGMENT"])).tenants for name in one.asked]


def test_every_process_of_a_job_is_checked_before_any_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written()
    for pid in (1, 2):
        written.tenant(pid, pid).sms_refused = 2 * (pid == 2)
    job = jobs.Job(segment.read(written.to(tmp_path / "segment")).tenants)
    with pytest.raises(Problem, match="its driver makes no green contexts"):
        sm_limit.check(job, {"sms": 500})
    there = SimpleNamespace(best_class_of=lambda pid: pid - 1)  # the second may be standard at most
    monkeypatch.setattr(segment, "open", lambda path: there)
    monkeypatch.setattr(jobs, "ask", lambda path, requests: pytest.fail("it was asked"))
    with pytest.raises(Problem, match="tenant 2 may be standard at most"):
        ctl.change(tmp_path, {1: {"tenant_class": 0}, 2: {"tenant_class": 0}})
    ctl.check_against_grants(tmp_path, 2, {"tenant_class": 1})


def test_what_a_change_cannot_do_is_said_with_it(tmp_path: Path) -> None:
    written = Written()
    for pid in (1, 2):
        written.tenant(pid, pid).residence.where = (Where.resident, Where.pinned)[pid - 1]
    job = jobs.Job(segment.read(written.to(tmp_path / "segment")).tenants)
    lowered = {"tenant_class": classes.TenantClass.opportunistic}
    assert "its memory stays on the GPU" in ctl.stays(job, lowered)
    assert ctl.stays(job, {"tenant_class": classes.TenantClass.standard}) == ctl.stays(job, {}) == ""
    assert ctl.stays(jobs.Job(job.tenants[:1]), lowered) == ""
    assert "it takes turns" in ctl.in_turns(job, {"sms": 500})
    assert ctl.in_turns(job, {"sms": 0}) == ctl.in_turns(job, {"weight": 1}) == ""
    overlapping = jobs.Job((job.tenants[0], replace(job.tenants[1], mps_daemon=7)))
    assert ctl.in_turns(overlapping, {"sms": 500}) == ""
