"""What the daemon costs: its CPU time, as a share of one core, beside tenants that are idle and tenants that work.

The tenants are slots that this program writes as interposers do: one is production, the others are opportunistic. Idle
ones have used their GPU before. Busy ones have work all the time: every 5 ms each counts operations, bursts, GPU time
and a heartbeat, and all but production wait at their gates. The daemon is a process of its own, ended at the end.

    make bench-daemon
    python bench/daemon/run.py [--seconds 5] [--policy guard] [--tenants 0 2 20 255] [-o FILE.json]
"""

from __future__ import annotations

import argparse
import json
import mmap
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from cotenant import output_files, segment
from cotenant.classes import TenantClass
from cotenant.daemon import report

MOST_IDLE, MOST_BUSY = 0.002, 0.10
WRITE_EVERY_SECONDS = 0.005


class Tenants:
    """Slots in a segment's file."""

    def __init__(self, path: Path, count: int, are_busy: bool) -> None:
        segment.ensure(path)
        with path.open("r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
        self.header = segment.Header.from_buffer(memory)
        self.header.gpus[0].known = segment.GPU_VALID
        self.slots = [segment.Slot.from_buffer(memory, segment.PLACE * (1 + index)) for index in range(count)]
        self.are_busy = are_busy
        for index, slot in enumerate(self.slots):
            tenant_class = TenantClass.opportunistic if index else TenantClass.production
            slot.pid, slot.started, slot.weight, slot.tenant_class = 1000 + index, 1, 1000, tenant_class
            slot.gpus[0].figures.bursts, slot.gpus[0].gate = 1, segment.GATE_OPEN
            slot.gpus[0].busy = are_busy
            slot.owner = 1000 + index
            self.header.members[tenant_class][index // 64] |= 1 << index % 64
        self.ended = threading.Event()
        self.writer = threading.Thread(target=self.write)

    def __enter__(self) -> Tenants:
        self.writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.writer.join()

    def write(self) -> None:
        while self.are_busy and not self.ended.wait(WRITE_EVERY_SECONDS):
            now = time.monotonic_ns()
            for slot in self.slots:
                here = slot.gpus[0]
                slot.heartbeat_ns = now
                here.figures.kernels += 10
                here.figures.bursts += slot.tenant_class == TenantClass.production
                here.used_ns += 1_000_000
                here.busy_ns += 5_000_000


def cpu_seconds(pid: int) -> float:
    """Of all its threads, by the scheduler's own count: the ticks of /proc/PID/stat are too coarse."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def share_of_a_core(count: int, are_busy: bool, policy: str, seconds: float) -> float:
    with tempfile.TemporaryDirectory(prefix="cotenant-bench-", dir="/dev/shm") as folder:
        path = Path(folder) / "segment"
        tenants = Tenants(path, count, are_busy)
        command = [sys.executable, "-m", "cotenant", "daemon", "--segment", str(path), "--linger", "3600"]
        with tenants, subprocess.Popen([*command, "--policy", policy]) as daemon:
            try:
                while report.read(path) is None:
                    if daemon.poll() is not None:
                        sys.exit("the daemon has ended")
                    time.sleep(0.05)
                time.sleep(1.5)  # who was at work a second ago still counts as being at work
                began, before = time.monotonic(), cpu_seconds(daemon.pid)
                time.sleep(seconds)
                return (cpu_seconds(daemon.pid) - before) / (time.monotonic() - began)
            finally:
                daemon.terminate()


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each is measured")
    parser.add_argument("--policy", default="guard")
    parser.add_argument("--tenants", type=int, nargs="+", default=[0, 2, 20, 255])
    parser.add_argument("-o", "--output", type=output_files.argument, help="all figures as JSON")
    options = parser.parse_args(words)
    figures, missed = [], 0
    print(f"{'TENANTS':>7} {'ARE':<5} {'OF A CORE':>10} {'AT MOST':>8}")
    for are_busy, most in ((False, MOST_IDLE), (True, MOST_BUSY)):
        for count in options.tenants:
            if are_busy and not count:
                continue
            share = share_of_a_core(count, are_busy, options.policy, options.seconds)
            missed += share > most
            figures.append({"tenants": count, "busy": are_busy, "share": share, "most": most})
            print(f"{count:>7} {'busy' if are_busy else 'idle':<5} {share:>10.2%} {most:>8.1%}", flush=True)
    if options.output:
        options.output.write_text(json.dumps({"policy": options.policy, "figures": figures}, indent=2))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
