"""Jobs of `cotenant run` on the software GPU, with a stand-in for NVIDIA's MPS daemon on the PATH."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cotenant import segment
from cotenant.mps.control import PROGRAM, Control, NoMps
from cotenant.mps.place import Place
from tests.waiting import wait_for

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def job_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler")
    output = tmp_path_factory.mktemp("mps") / "job"
    subprocess.run(
        [compiler, "-O1", "-w", str(HERE / "job.c"), "-o", str(output), "-ldl", "-pthread"], check=True
    )
    return output


class Job:
    """tests/mps/job.c under `cotenant run`, or without it."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def say(self, line: str) -> str:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.hear()

    def hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def begin(self) -> Job:
        assert self.hear() == "ready 0", self.end()
        return self

    def end(self) -> tuple[int, str]:
        """Its stdin is closed; its status, and what it said on stderr."""
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors

    def kill(self, number: int) -> tuple[int, str]:
        self.process.send_signal(number)
        return self.end()


class Mps:
    """The user's own daemons, in a folder of the test's."""

    def __init__(self, folder: Path, program: Path) -> None:
        self.folder = folder
        self.place = Place(folder)
        self.program = str(program)

    @property
    def control(self) -> Control:
        generation = self.place.current
        assert generation is not None, "no daemon runs"
        return generation.control(self.program)

    def wait_for_a_server(self) -> None:
        """On a starved machine the daemon may not answer in time; then it is asked again."""

        def has_one() -> bool:
            with contextlib.suppress(NoMps):
                return bool(self.control.servers())
            return False

        wait_for(has_one)

    def wait_until_gone(self) -> None:
        wait_for(lambda: not self.place.has_keeper() and not self.place.generations())


@pytest.fixture
def mps() -> Iterator[Mps]:
    # Not in tmp_path: a socket's path may have 107 characters only.
    with tempfile.TemporaryDirectory(prefix="cotenant-mps-") as name:
        programs = Path(name, "bin")
        programs.mkdir()
        program = programs / PROGRAM
        program.symlink_to(HERE / "stand_in.py")
        folder = Path(name, "own")
        yield Mps(folder, program)
        for generation in Place(folder).generations() if folder.is_dir() else ():
            generation.control(str(program)).kill()
        for pid in processes_naming(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def processes_naming(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.fsencode(folder) in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


@pytest.fixture
def mps_env(softgpu_env: dict[str, str], mps: Mps, tmp_path: Path) -> dict[str, str]:
    return softgpu_env | {
        "PATH": os.pathsep.join((str(Path(mps.program).parent), softgpu_env.get("PATH", os.defpath))),
        "COTENANT_MPS_DIR": str(mps.folder),
        "COTENANT_MPS_LINGER": "0",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }


Start = Callable[..., Job]


@pytest.fixture
def start(mps_env: dict[str, str], job_program: Path) -> Iterator[Start]:
    """`start("--share", "spatial", env={...})`: a job of `cotenant run` with these options."""
    jobs: list[Job] = []

    def run(*options: str, env: dict[str, str] | None = None) -> Job:
        command = [sys.executable, "-m", "cotenant", "run", "--require", *options, "--", str(job_program)]
        jobs.append(Job(command, mps_env | (env or {})))
        return jobs[-1]

    yield run
    for job in jobs:
        if job.process.poll() is None:
            job.process.kill()
        job.process.communicate()


@pytest.fixture
def tenant(mps_env: dict[str, str]) -> Callable[[Job], segment.Tenant]:
    """What the job's slot says."""

    def look(job: Job) -> segment.Tenant:
        tenants = segment.read(Path(mps_env["COTENANT_SEGMENT"])).tenants
        return next(one for one in tenants if one.pid == job.pid)

    return look
