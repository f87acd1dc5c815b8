"""Which jobs a user means by a name, an id or a PID; and that a command acts on all processes of a job."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from cotenant.errors import Problem
from cotenant.segment import Where, pids
from cotenant.tenants import jobs, sharing
from tests.segments import Written
from tests.test_figures import a_tenant

if TYPE_CHECKING:
    from tests.conftest import Run

ME, OTHER = os.geteuid(), os.geteuid() + 1
# Far above what Linux gives out: no process of the machine has it.
FIRST = 5_000_000


class Machine:
    """A segment with tenants that are no processes, unless a test says which."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = Written()

    def tenant(self, pid: int, job: str, run: str, uid: int = ME, started: int = 0) -> None:
        slot = self.written.tenant(len(self.written.slots), pid, b"python")
        slot.uid, slot.job, slot.started = uid, job.encode(), started or pid
        slot.run_id[:] = bytes.fromhex(run.ljust(32, "0"))

    def process(self, pid: int, job: str, run: str) -> None:
        self.tenant(pid, job, run, started=int(jobs.stat_of(pid)[19]))

    def pids(self, *words: str) -> list[list[int]]:
        self.written.to(self.path)
        return [job.pids for job in jobs.select(words, jobs.read(self.path))]

    def problem(self, word: str) -> Problem:
        with pytest.raises(Problem) as told:
            self.pids(word)
        assert told.value.status != 0
        return told.value


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """train.py has two processes, serve.py one."""
    made = Machine(tmp_path / "segment")
    made.tenant(FIRST + 2, "train.py", "abc1")
    made.tenant(FIRST, "serve.py", "abd2")
    made.tenant(FIRST + 1, "train.py", "abc1")
    return made


TRAIN, SERVE = [FIRST + 1, FIRST + 2], [FIRST]


@pytest.mark.parametrize(
    "word", ["train.py", "abc1" + "0" * 28, "abc", "ABC1", str(FIRST + 1), str(FIRST + 2)]
)
def test_a_job_is_meant_by_name_id_and_each_pid(machine: Machine, word: str) -> None:
    assert machine.pids(word) == [TRAIN]


def test_a_mistyped_pid_is_not_the_beginning_of_an_id(machine: Machine) -> None:
    machine.tenant(FIRST + 3, "other.py", "12345678")
    for word in ("1", "123", "1234567"):
        assert machine.problem(word).message == f"no job has the name, id or PID '{word}'"
    assert machine.pids("12345678") == [[FIRST + 3]]


def test_several_words_mean_several_jobs_each_once(machine: Machine) -> None:
    assert machine.pids("serve.py", str(FIRST + 1), "train.py", "abd") == [TRAIN, SERVE]


def test_the_beginning_of_two_ids_means_neither(machine: Machine) -> None:
    told = machine.problem("ab")
    assert told.message == "'ab' means 2 jobs"
    assert "abc10000 (train.py" in told.hint and "abd20000 (serve.py" in told.hint


def test_a_name_that_two_jobs_have_means_neither(machine: Machine) -> None:
    machine.tenant(FIRST + 3, "train.py", "ffff")
    told = machine.problem("train.py")
    assert told.message == "'train.py' means 2 jobs"
    assert "abc10000" in told.hint and "ffff0000" in told.hint
    assert machine.pids("ff") == [[FIRST + 3]]


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("trian.py", "did you mean 'train.py'?"),
        ("zzz", f"there are train.py ({FIRST + 1}, {FIRST + 2}), serve.py ({FIRST})"),
        ("", f"there are train.py ({FIRST + 1}, {FIRST + 2}), serve.py ({FIRST})"),
        (str(FIRST + 9), f"there are train.py ({FIRST + 1}, {FIRST + 2}), serve.py ({FIRST})"),
        ("1", f"there are train.py ({FIRST + 1}, {FIRST + 2}), serve.py ({FIRST})"),
        pytest.param(
            "9" * 5000, f"there are train.py ({FIRST + 1}, {FIRST + 2}), serve.py ({FIRST})", id="digits"
        ),
    ],
)
def test_who_means_nothing_is_told_the_nearest_name(machine: Machine, word: str, hint: str) -> None:
    told = machine.problem(word)
    assert (told.message, told.hint) == (f"no job has the name, id or PID '{word}'", hint)


def test_no_name_takes_a_job_from_its_user(machine: Machine) -> None:
    """Others may choose the name and even write the id of one's job into their slots."""
    machine.tenant(FIRST + 3, "train.py", "eee", uid=OTHER)
    machine.tenant(FIRST + 4, "train.py", "abc1", uid=OTHER)
    machine.tenant(FIRST + 5, "theirs.py", "fff", uid=OTHER)
    assert machine.pids("train.py") == [TRAIN]
    assert machine.pids("abc1") == [TRAIN]
    assert machine.pids(str(FIRST + 4)) == [[FIRST + 4]]
    assert machine.pids("theirs.py") == [[FIRST + 5]]


def test_tenants_without_a_run_are_a_job_each(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "segment")
    for pid in (FIRST, FIRST + 1):
        machine.tenant(pid, "", "")
    assert machine.pids(str(FIRST)) == [[FIRST]]
    assert machine.problem("python").message == "'python' means 2 jobs"
    assert machine.problem("0").message == "no job has the name, id or PID '0'"


def test_where_one_process_is_not_ones_own_none_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, dict[str, int]]] = []

    def ask(path: Path, pid: int, wanted: dict[str, int]) -> bool:
        asked.append((pid, dict(wanted)))
        if pid == FIRST + 1:
            raise segment.BadSegment("not writable")
        return True

    monkeypatch.setattr(segment, "ask", ask)
    with pytest.raises(Problem, match="not writable"):
        jobs.ask(Path("segment"), {FIRST: {"pause": 1}, FIRST + 1: {"pause": 1}})
    assert not any(wanted for _, wanted in asked)


@pytest.fixture
def launcher() -> Iterator[tuple[int, list[int]]]:
    """A shell and two processes that it has started."""
    source = "sleep 600 & echo $!; sleep 600 & echo $!; wait"
    with subprocess.Popen(["sh", "-c", source], stdout=subprocess.PIPE, text=True, process_group=0) as shell:
        assert shell.stdout
        yield shell.pid, [int(shell.stdout.readline()) for _ in range(2)]
        os.killpg(shell.pid, signal.SIGKILL)


def test_a_launcher_means_the_job_that_it_has_started(
    machine: Machine, launcher: tuple[int, list[int]]
) -> None:
    above, (first, second) = launcher
    machine.process(first, "launched.py", "eee")
    machine.process(second, "launched.py", "eee")
    (found,) = machine.pids(str(above))
    assert sorted(found) == sorted([first, second])


def test_a_launcher_of_two_jobs_means_neither(machine: Machine, launcher: tuple[int, list[int]]) -> None:
    above, (first, second) = launcher
    machine.process(first, "one.py", "eee")
    machine.process(second, "two.py", "fff")
    assert machine.problem(str(above)).message == f"'{above}' means 2 jobs"


def test_who_only_claims_to_be_a_process_has_no_launcher(
    machine: Machine, launcher: tuple[int, list[int]]
) -> None:
    above, (first, _) = launcher
    machine.tenant(first, "liar.py", "eee", started=1)
    assert machine.problem(str(above)).message == f"no job has the name, id or PID '{above}'"


def test_a_process_of_the_run_that_uses_no_gpu_means_its_job(machine: Machine) -> None:
    env = os.environ | {"COTENANT_RUN_ID": "abc1" + "0" * 28}
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env=env) as loader:
        assert machine.pids(str(loader.pid)) == [TRAIN]
        loader.communicate()


def test_the_id_of_another_users_job_in_ones_environment_means_no_job(machine: Machine) -> None:
    machine.tenant(FIRST + 3, "theirs.py", "eee", uid=OTHER)
    env = os.environ | {"COTENANT_RUN_ID": "eee" + "0" * 29}
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env=env) as process:
        assert machine.problem(str(process.pid)).message.startswith("no job has")
        process.communicate()


def test_a_launcher_has_started_no_lane(machine: Machine, launcher: tuple[int, list[int]]) -> None:
    above, (first, second) = launcher
    machine.process(first, "serve.py", "eee")
    machine.process(second, "serve.py/side", "fff")
    machine.written.slots[len(machine.written.slots) - 1].lane = 1
    assert machine.pids(str(above)) == [[first]]


def completed(env: dict[str, str], line: str, position: int) -> list[str]:
    asked = {"_COTENANT_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(position)}
    command = [sys.executable, "-m", "cotenant"]
    done = subprocess.run(command, env=env | asked, capture_output=True, text=True, check=False)
    return [one.partition(",")[2] for one in done.stdout.splitlines() if one]


def test_completion_offers_names_and_ids(machine: Machine, plain_env: dict[str, str]) -> None:
    machine.written.to(Path(plain_env["COTENANT_SEGMENT"]))
    for command in ("ctl", "pause", "resume", "explain", "status"):
        assert completed(plain_env, f"cotenant {command} ", 2) == [
            "train.py",
            "serve.py",
            "abc10000",
            "abd20000",
        ]
    assert completed(plain_env, "cotenant pause serve.py tr", 3) == ["train.py"]
    Path(plain_env["COTENANT_SEGMENT"]).unlink()
    assert completed(plain_env, "cotenant pause ", 2) == []


PROCESS = """
import signal, sys
from soft import Gpu
gpu = Gpu(); gpu.launch(gpu.kernel('empty')); gpu.synchronize()
print('ready', flush=True); signal.pause()
"""


@pytest.fixture
def pair(softgpu_env: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A shell under `cotenant run` and two tenants that it has started."""
    pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    programs = Path(__file__).parent / "interposer" / "programs"
    script = tmp_path / "pair.sh"
    script.write_text(f'{sys.executable} -c "$1" & {sys.executable} -c "$1" & wait')
    run = [sys.executable, "-m", "cotenant", "run", "--require", "--class", "opportunistic", "--"]
    env = softgpu_env | {"PYTHONPATH": os.pathsep.join([str(programs), softgpu_env["PYTHONPATH"]])}
    with subprocess.Popen(
        [*run, "sh", str(script), PROCESS], env=env, stdout=subprocess.PIPE, text=True, process_group=0
    ) as process:
        assert process.stdout
        try:
            assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_commands_act_on_all_processes_of_a_job(
    cotenant: Run, pair: subprocess.Popen[str], softgpu_env: dict[str, str]
) -> None:
    def tenants() -> tuple[segment.Tenant, ...]:
        return segment.read(Path(softgpu_env["COTENANT_SEGMENT"])).tenants

    def command(*words: str) -> str:
        done = cotenant(*words, env=softgpu_env)
        assert done.returncode == 0, done.stderr
        return done.stdout or done.stderr

    (run_id,) = {one.run_id for one in tenants()}
    pids = sorted(one.pid for one in tenants())
    # GIVEN a job of two processes, WHEN it is named by its launcher, THEN both change
    line = command("ctl", str(pair.pid), "--weight", "3", "--memory", "1G")
    assert line.startswith("pair.sh (") and all(str(pid) in line for pid in pids)
    assert {(one.weight, one.memory_limit) for one in tenants()} == {(3000, 1 << 30)}
    # by its name, both leave the GPU and come back
    assert command("pause", "pair.sh").count("is paused") == 2
    assert {(one.where, one.paused) for one in tenants()} == {(Where.evicted, True)}
    assert command("resume", run_id[:8]).count("runs on") == 2
    assert {(one.where, one.paused) for one in tenants()} == {(Where.resident, False)}
    # and each is explained, as a part of the job that was started.
    about = json.loads(command("explain", run_id[:8], "-o", "json"))["tenants"]
    assert sorted(one["pid"] for one in about) == pids
    assert {one["job"] for one in about} == {"pair.sh"}
    (shown,) = {one["command"] for one in about}
    assert shown.startswith("sh ") and "pair.sh" in shown
    rows = command("status", "pair.sh").splitlines()
    assert [row.split()[1:3] for row in rows[1:]] == [[str(pid), "pair.sh"] for pid in pids]


def test_a_jobs_command_and_beginning_are_those_of_its_process() -> None:
    began = pids.start_time(os.getpid())
    mine = a_tenant(pid=os.getpid(), process=os.getpid(), started=began, uid=os.getuid(), run_id=jobs.NO_RUN)
    assert jobs.first_process(mine) == os.getpid()
    assert "python" in (jobs.command_line(mine) or "") and jobs.began_at(mine)
    another = dataclasses.replace(mine, started=mine.started + 1)
    assert (jobs.first_process(another), jobs.command_line(another), jobs.began_at(another)) == (
        0,
        None,
        None,
    )


def test_how_a_tenant_shares() -> None:
    assert sharing.of(a_tenant(pid=2**22 + 1, mps_daemon=0, mps_fault=0)) == {
        "share": "turns", "reason": None, "fault": None,
    }  # fmt: skip
    assert sharing.of(a_tenant(pid=2**22 + 1))["share"] == "spatial"
