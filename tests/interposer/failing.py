"""Jobs on a driver that fails, or kills them, at a call that the test chooses (programs/failing_driver.c)."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import select
import shutil
import signal
import subprocess
import time
from ctypes import c_uint8, c_uint32, c_uint64
from enum import IntEnum
from pathlib import Path

import pytest

from cotenant import segment
from tests.compiling import cuda_headers
from tests.waiting import wait_for

PROGRAMS = Path(__file__).parent / "programs"
FUNCTIONS = re.findall(r"^    CALL\((\w+)\)", (PROGRAMS / "failing_driver.c").read_text(), re.MULTILINE)
ANSWER_SECONDS = 60.0
MiB = 1 << 20


class Manner(IntEnum):
    instead = 0  # an error, and nothing done
    after = 1  # an error, though it was done
    killed_before = 2
    killed_after = 3


class PinnedBy(ctypes.Structure):
    _fields_ = [("pid", c_uint32), ("unused", c_uint32), ("pinned", c_uint64)]


class Faults(ctypes.Structure):
    """As in programs/faults.h."""

    _fields_ = [
        ("armed", c_uint32),
        ("pid", c_uint32),
        ("function", c_uint32),
        ("occurrence", c_uint32),
        ("manner", c_uint32),
        ("lasting", c_uint32),
        ("unwatched", c_uint32),
        ("wanted_checks", c_uint32),
        ("calls", c_uint32),
        ("calls_of_function", c_uint32),
        ("fired", c_uint32),
        ("checks", c_uint32),
        ("torn", c_uint32),
        ("streams", c_uint32),
        ("event_queries", c_uint64),
        ("used", c_uint64),
        ("most_used", c_uint64),
        ("most_pinned", c_uint64),
        ("jobs", PinnedBy * 16),
        ("trace", c_uint8 * 8192),
    ]

    def arm(
        self, function: str = "", occurrence: int = 1, manner: Manner = Manner.instead, lasting: bool = False
    ) -> None:
        """The nth call of this function from now on, by the thread that moves memory; of none, only counts."""
        self.armed = 0
        self.function = FUNCTIONS.index(function) if function else len(FUNCTIONS)
        self.occurrence, self.manner, self.lasting = occurrence, manner, int(lasting)
        self.calls = self.calls_of_function = self.fired = 0
        self.armed = 1

    def what(self) -> str:
        """What is armed, in words."""
        function = FUNCTIONS[self.function] if self.function < len(FUNCTIONS) else "none"
        which = f"{self.occurrence} and later" if self.lasting else str(self.occurrence)
        return f"{function} {which} {Manner(self.manner).name}, fired {self.fired}, of {self.calls} calls"

    def called(self) -> list[str]:
        """The functions, in the order in which that thread has called them since it was armed."""
        return [FUNCTIONS[index] for index in self.trace[: self.calls]]

    def pinned(self) -> int:
        return sum(int(job.pinned) for job in self.jobs)


class Built:
    """The failing driver and its job, made once."""

    def __init__(self, folder: Path, native: Path) -> None:
        compiler = shutil.which("gcc") or shutil.which("cc")
        if not compiler:
            pytest.skip("no C compiler")
        self.shim = native / "shim" / "libcuda.so.1"
        self.softgpu = (native / "softgpu" / "libcuda.so.1").resolve()
        self.driver, self.job = folder / "failing_driver.so", folder / "moving_job"
        # By its name alone it would be the interposer.
        self.by_another_name, stub = folder / "software_gpu.so", folder / "stub.so"
        self.by_another_name.symlink_to(self.softgpu)
        link = [compiler, "-O1", "-fPIC", "-Wall", "-Wextra", "-Wl,--no-as-needed", f"-I{cuda_headers()}"]

        def run(*options: str | Path) -> None:
            subprocess.run([*link, *map(str, options)], check=True)

        run("-shared", "-x", "c", os.devnull, f"-Wl,-soname,{self.softgpu}", "-o", stub)
        run("-shared", PROGRAMS / "failing_driver.c", "-o", self.driver, stub, "-ldl", "-pthread")
        run(PROGRAMS / "moving_job.c", "-o", self.job, self.softgpu, "-pthread")


class Job:
    """programs/moving_job.c as a tenant; answers come in the order of what it was told."""

    def __init__(self, built: Built, env: dict[str, str], tenant_class: str, faults: Path) -> None:
        self.path = Path(env["COTENANT_SEGMENT"])
        self.process = subprocess.Popen(
            [str(built.job)],
            env=env
            | {
                "LD_PRELOAD": str(built.shim),
                "COTENANT_DRIVER": str(built.driver),
                "COTENANT_FAILING_DRIVER_OF": str(built.by_another_name),
                "COTENANT_FAULTS": str(faults),
                "COTENANT_CLASS": tenant_class,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.heard = b""
        assert self.hear() == "ready"

    @property
    def pid(self) -> int:
        return self.process.pid

    def say(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line.encode() + b"\n")

    def hear(self, seconds: float = ANSWER_SECONDS) -> str | None:
        """The next answer; None: it has not come in time."""
        assert self.process.stdout
        deadline = time.monotonic() + seconds
        while b"\n" not in self.heard:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                return None
            read = self.process.stdout.read(4096)
            if not read:
                pytest.fail(f"the job ended with {self.process.wait()}")
            self.heard += read
        line, self.heard = self.heard.split(b"\n", 1)
        return line.decode()

    def tell(self, line: str, answer: str) -> None:
        self.say(line)
        heard = self.hear()
        assert heard == answer, f"{line}: {heard}"

    def seen_if_there(self) -> segment.Tenant | None:
        """A program becomes a tenant when it first uses the GPU."""
        return next((one for one in segment.read(self.path).tenants if one.pid == self.pid), None)

    def seen(self) -> segment.Tenant:
        one = self.seen_if_there()
        assert one, "not a tenant"
        return one

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.close()

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()


class Machine:
    """A software GPU, a segment and the faults of one test."""

    def __init__(self, built: Built, env: dict[str, str], folder: Path) -> None:
        self.built, self.env, self.file = built, env, folder / "faults"
        self.path = Path(env["COTENANT_SEGMENT"])
        segment.ensure(self.path)
        # A machine that is busy with other things may hold a tenant up: nobody here counts as stopped.
        self.set_memory_knobs(stale_ms=60_000)
        self.file.write_bytes(bytes(ctypes.sizeof(Faults)))
        with self.file.open("r+b") as file:
            self.faults = Faults.from_buffer(mmap.mmap(file.fileno(), 0))
        self.jobs: list[Job] = []

    def set_memory_knobs(self, **values: int) -> None:
        """What `cotenant ctl` writes for all tenants: headroom (1 + bytes), host_memory, stay_ms; and stale_ms."""
        with segment.open(self.path).writable_header() as header:
            for name, value in values.items():
                setattr(header.knobs if name == "stale_ms" else header.memory_knobs, name, value)
            segment.seal(header)

    def start(self, tenant_class: str, **env: str) -> Job:
        moves = {"COTENANT_OVERSUBSCRIBE": "1"} if tenant_class == "opportunistic" else {}
        one = Job(self.built, self.env | moves | env, tenant_class, self.file)
        self.jobs.append(one)
        return one

    def bury(self, one: Job) -> None:
        """It is dead: what it had pinned is gone, and all that it had on the GPU."""
        one.close()
        self.jobs.remove(one)
        for job in self.faults.jobs:
            if job.pid == one.pid:
                job.pinned = job.pid = 0
        wait_for(lambda: all(tenant.pid != one.pid for tenant in segment.read(self.path).tenants))

    def end(self) -> None:
        for one in self.jobs:
            one.kill()
