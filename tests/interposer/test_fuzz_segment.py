"""Whatever is written into the segment while jobs run, they end with the right results.

COTENANT_FUZZ_SECONDS says for how long; `make fuzz-segment` takes an hour. COTENANT_FUZZ_SEED repeats what was written.
"""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from tests.interposer.conftest import PROGRAMS

if TYPE_CHECKING:
    from tests.conftest import Run

SECONDS = float(os.environ.get("COTENANT_FUZZ_SECONDS", "4"))
SEED = int(os.environ.get("COTENANT_FUZZ_SEED", str(time.time_ns() % 2**32)))
ROUND_SECONDS = 4.0
# A job waits for others at most; nothing makes it wait for ever.
LONGEST_END = 180.0
JOBS: tuple[tuple[str, dict[str, str]], ...] = (
    ("production", {}),
    ("production", {"CHECKED_JOB_LANE": "1"}),
    ("standard", {}),
    ("opportunistic", {}),
    ("opportunistic", {"COTENANT_OVERSUBSCRIBE": "1"}),
)
WRITTEN_BYTES = max(ctypes.sizeof(segment.Header), ctypes.sizeof(segment.Slot))

pytestmark = pytest.mark.timeout(SECONDS + LONGEST_END + 120)


class Vandal:
    """Writes nonsense where tenants read; the header becomes what it was now and then."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.random = path, random.Random(seed)
        self.header = self.file_of(None).read_bytes()[: segment.PLACE]

    def file_of(self, index: int | None) -> Path:
        if not self.path.is_dir():
            return self.path
        return self.path / "header" if index is None else self.path / "slots" / str(index)

    def put(self, index: int | None, at: int, content: bytes) -> None:
        if not self.path.is_dir() and index is not None:
            at += segment.PLACE * (1 + index)
        with suppress(FileNotFoundError), self.file_of(index).open("r+b") as file:
            file.seek(at)
            file.write(content)

    def nonsense(self, size: int) -> bytes:
        kind = self.random.randrange(5)
        return (
            self.random.randbytes(size) if kind == 0 else bytes([(0x00, 0x01, 0x3F, 0xFF)[kind - 1]]) * size
        )

    def strike(self) -> None:
        which = self.random.choice((None, 0, 1, 2, 3, 4, 5, 6, self.random.randrange(segment.SLOTS)))
        kind = self.random.random()
        if kind < 0.1:
            self.put(which, 0, self.nonsense(WRITTEN_BYTES))
        else:
            size = self.random.choice((1, 4, 8, 64))
            self.put(which, self.random.randrange(0, WRITTEN_BYTES - size, size), self.nonsense(size))
        if self.random.random() < 0.02:
            self.put(None, 0, self.header)


def start(env: dict[str, str], tenant_class: str, extra: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", str(PROGRAMS / "checked_job.py"), str(ROUND_SECONDS)],
        env=env | extra | {"COTENANT_CLASS": tenant_class},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_all(jobs: list[subprocess.Popen[str]]) -> list[str]:
    for job in jobs:
        job.kill()
    return [job.communicate()[1] for job in jobs]


def fuzz(path: Path, env: dict[str, str]) -> None:
    vandal = Vandal(path, SEED)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        jobs = [start(env, tenant_class, extra) for tenant_class, extra in JOBS]
        try:
            for job in jobs:
                line = job.stdout.readline() if job.stdout else ""
                assert line == "began\n", job.communicate()[1]
            shown = {tenant.pid for tenant in segment.read(path).tenants}
            missing = [job for job in jobs if job.poll() is None and job.pid not in shown]
            assert not missing, (SEED, shown, [job.pid for job in jobs], kill_all(jobs))
            deadline = time.monotonic() + LONGEST_END
            while any(job.poll() is None for job in jobs):
                vandal.strike()
                time.sleep(0.002)
                assert time.monotonic() < deadline, f"a job waits for ever (COTENANT_FUZZ_SEED={SEED})"
            for job in jobs:
                out, errors = job.communicate()
                assert job.returncode == 0 and out.startswith("right "), (SEED, job.returncode, out, errors)
        finally:
            kill_all(jobs)
        vandal.put(None, 0, vandal.header)


@pytest.fixture
def env(preloaded: dict[str, str], native: Path) -> dict[str, str]:
    return preloaded | {"COTENANT_DRIVER": str(native / "softgpu" / "libcuda.so.1")}


@pytest.fixture
def folder(softgpu_env: dict[str, str], cotenant: Run) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cotenant-test-") as beside:
        made = Path(beside) / "segment"
        done = cotenant("segment", "create", made, env=softgpu_env)
        assert done.returncode == 0, done.stderr
        yield made


def test_jobs_survive_any_content_of_a_segment(env: dict[str, str]) -> None:
    fuzz(Path(env["COTENANT_SEGMENT"]), env)


def test_jobs_survive_any_content_of_an_administrators_segment(env: dict[str, str], folder: Path) -> None:
    fuzz(folder, env | {"COTENANT_SEGMENT": str(folder)})
