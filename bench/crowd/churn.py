"""Opportunistic processes that come at once and are killed one after another: nobody hangs, nothing is left behind.

All start within a second. Every second one of them is killed by SIGKILL and another takes its place. In the end each
of the living must have done a step and end when it is asked to; the GPU must have executed each of its steps exactly
once, and its memory must hold what it wrote there.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cotenant import segment
from cotenant.daemon import report
from cotenant.demo.rounds import private_folder, worker_environment
from cotenant.demo.workers import Worker
from cotenant.errors import Problem

PROCESSES, KILLS = 16, 60
JOB = Path(__file__).resolve().parents[1] / "drills" / "job.py"
LONGEST_GAP_SECONDS = 10.0
END_SECONDS = 30.0
FEW = 4  # descriptors that a library may open late; a leak would be one for each that came or went
KERNELS, KERNEL_US, MIB = 4, 500.0, 64


def descriptors(pid: int) -> int | None:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None


def open_files(pid: int) -> list[str]:
    """What is behind them."""
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return sorted(found)


class One:
    """A job of the drills under `cotenant run`, and when its steps ended."""

    def __init__(self, number: int, folder: Path, calibration: float | None) -> None:
        place = folder / f"job-{number}"
        place.mkdir()
        command = [sys.executable, "-m", "cotenant", "run", "--require", "--class", "opportunistic", "--"]
        command += [sys.executable, str(JOB), "--kernels", str(KERNELS), "--kernel-us", str(KERNEL_US)]
        command += ["--mib", str(MIB)]
        if calibration is not None:
            command += ["--work-per-us", repr(calibration)]
        self.number = number
        self.worker = Worker(f"job {number}", command, worker_environment(folder), place)
        self._last: float | None = None
        self._open: int | None = None

    def begin(self) -> None:
        """Waits for its first step."""
        while self._last is None:
            self._last = self.worker.answer().get("at")
            self._open = descriptors(self.worker.pid)

    @property
    def leaked(self) -> int:
        """Descriptors that it has open now and had not when it began: others have come and gone since."""
        return (descriptors(self.worker.pid) or 0) - (self._open or 0)

    def kill(self) -> None:
        os.kill(self.worker.pid, signal.SIGKILL)
        self.worker.end()

    def finish(self, longest_gap: float) -> str:
        """What is wrong with it; empty: it ended by itself, and all that it did was right."""
        self.worker.ask_to_end()
        last, longest = self._last or 0.0, 0.0
        try:
            while "steps" not in (said := self.worker.answer(END_SECONDS)):
                longest = max(longest, said["at"] - last)
                last = said["at"]
        except Problem as problem:
            return problem.message
        status = self.worker.end(END_SECONDS)
        if status != 0:
            return f"job {self.number} ended with status {status}"
        if said["steps"] != said["counted_by_gpu"] or not said["intact"]:
            return f"job {self.number}: wrong results: {said}"
        if longest > longest_gap:
            return f"job {self.number} did nothing for {longest:.0f} s"
        return ""


def calibration(folder: Path) -> tuple[float, dict[str, Any]]:
    """Work of a microsecond and what the GPU is, by a job that has it to itself."""
    job = Worker("calibration", [sys.executable, str(JOB)], worker_environment(folder), folder)
    try:
        about = job.answer()
    finally:
        job.end()
    return float(about["work_per_us"]), about


def free_bytes(folder: Path) -> int:
    """Of the GPU, as a process of its own sees it."""
    program = (
        "from cotenant.demo.orders import say; from cotenant.demo.spin import SpinGpu, call;"
        "SpinGpu(); say({'free': call('cuMemGetInfo')[0]})"
    )
    worker = Worker("memory", [sys.executable, "-c", program], worker_environment(folder), folder)
    try:
        return int(worker.answer()["free"])
    finally:
        worker.end()


def wait_for(is_so: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def slots(path: Path) -> tuple[int, int]:
    """How many are taken, and how many of the dead nobody has cleared yet."""
    try:
        seen = segment.read(path)
    except FileNotFoundError:
        return 0, 0
    return len(seen.tenants), seen.lost


def daemon_pid(path: Path) -> int | None:
    shown = report.read(path)
    return shown.pid if shown else None


def measure(
    processes: int,
    kills: int,
    narrate: Callable[[str], None],
    longest_gap: float = LONGEST_GAP_SECONDS,
    every: float = 1.0,
) -> dict[str, Any]:
    harm: list[str] = []
    chance = random.Random(1)
    with private_folder() as folder:
        path = folder / "segment"
        work_per_us, about = calibration(folder)
        free_before = free_bytes(folder)
        living: list[One] = []
        number = most_tenants = 0
        open_before: int | None = None

        def start() -> None:
            nonlocal number
            living.append(One(number, folder, work_per_us))
            number += 1

        try:
            for _ in range(processes):
                start()
                time.sleep(min(0.05, 0.9 / processes))
            for one in living:
                one.begin()
            narrate(f"{processes} jobs work")
            for kill in range(kills):
                time.sleep(every)
                living.pop(chance.randrange(len(living))).kill()
                start()
                most_tenants = max(most_tenants, slots(path)[0])
                if kill % 10 == 9:
                    narrate(f"{kill + 1} of {kills} killed")
            for one in living:
                one.begin()
            # A full house: what the daemon holds open for it is what it may hold open at the end.
            daemon = daemon_pid(path)
            open_before = descriptors(daemon) if daemon else None
            harm += [
                f"job {one.number} has {one.leaked} more descriptors" for one in living if one.leaked > FEW
            ]
            narrate("asking the living to end")
            for one in living:
                one.worker.ask_to_end()
            for one in living:
                if wrong := one.finish(longest_gap):
                    harm.append(wrong)
            living.clear()
        except Problem as problem:
            harm.append(problem.message)
        finally:
            for one in living:
                with contextlib.suppress(ProcessLookupError):
                    one.kill()
        if not wait_for(lambda: slots(path) == (0, 0), 10.0):
            harm.append("slots are left: {} taken, {} not cleared".format(*slots(path)))
        daemon = daemon_pid(path)

        def are_closed() -> bool:
            left = descriptors(daemon) if daemon else None
            return left is None or open_before is None or left <= open_before + FEW

        # It may be amid its report just now.
        if not wait_for(are_closed, 10.0):
            now = ", ".join(open_files(daemon)) if daemon else ""
            harm.append(f"the daemon has more descriptors open than the {open_before} before: {now}")
        open_after = descriptors(daemon) if daemon else None
        free_after = free_bytes(folder)
        if free_after < free_before:
            harm.append(f"{(free_before - free_after) >> 20} MiB of GPU memory are left behind")
        strays = sorted(entry.name for entry in folder.iterdir() if entry.name.startswith("segment"))
    return {
        "machine": about["gpu"],
        "processes": processes,
        "kills": kills,
        "started": number,
        "most_tenants": most_tenants,
        "files": strays,
        "daemon_descriptors": [open_before, open_after],
        "free_bytes": [free_before, free_after],
        "harm": harm,
    }
