"""Jobs that start, stop, crash, fork, are paused and stopped and change class, for hours: what do they leave behind?

    python bench/soak/run.py                      # two hours
    python bench/soak/run.py --seconds 120        # as `make soak`
    python bench/soak/run.py --seconds 120 --shared
    python bench/soak/run.py --seed 7 --verbose   # the actions of that seed again, each named as it happens

Up to six jobs share a software GPU of their own under `cotenant run`. Two of them live through all of it: they, the
daemon and the GPU's process are what is looked at in the end. Every LOOK actions all jobs are let go on: each must
answer (no gate is stuck), its memory must hold what it wrote, and the slots must be those of the living.
In the end no slot, no byte of GPU memory or host memory, no process, thread or descriptor and no file may be left. The
exit status is 1 when one is.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import accounts
from jobs import Job
from walk import Walk

from cotenant import output_files, segment
from cotenant.classes import TenantClass
from cotenant.errors import Problem, narrate
from cotenant.launch import native_files

HERE = Path(__file__).resolve().parent
LOOK = 80  # actions
LINGER_SECONDS = 1


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=7200.0, help="default: two hours")
    parser.add_argument("--actions", type=int, help="end after so many, whatever the time")
    parser.add_argument("--seed", type=int, help="default: another each time; it is printed")
    parser.add_argument("--shared", action="store_true", help="in an administrator's segment, a folder")
    parser.add_argument("--verbose", action="store_true", help="name each action on stderr")
    parser.add_argument("-o", "--output", type=output_files.argument, metavar="FILE.json")
    return parser.parse_args(words)


def compiled(folder: Path) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        raise Problem("there is no C compiler", "install gcc")
    program = folder / "soak_job"
    subprocess.run(
        [compiler, "-std=gnu11", "-O1", HERE / "job.c", "-o", program, "-ldl", "-pthread"], check=True
    )
    return program


def environment(folder: Path) -> dict[str, str]:
    native = native_files.require(native_files.wire()).parent
    (folder / "gpu").mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("COTENANT_", "LD_"))}
    if given := os.environ.get("COTENANT_NATIVE"):
        env["COTENANT_NATIVE"] = given
    return env | {
        "LD_LIBRARY_PATH": str(native / "softgpu"),
        "COTENANT_SOFTGPU": "small",
        "COTENANT_SOFTGPU_DIR": str(folder / "gpu"),
        "COTENANT_SEGMENT": str(folder / "segment"),
        "COTENANT_DAEMON_LINGER": str(LINGER_SECONDS),
    }


class Soak:
    def __init__(self, seed: int, folder: Path, shared: bool = False) -> None:
        self.folder = folder
        env = environment(folder)
        if shared:
            create = [sys.executable, "-m", "cotenant", "segment", "create", env["COTENANT_SEGMENT"]]
            subprocess.run(create, env=env, check=True, stderr=subprocess.DEVNULL)
        self.walk = Walk(seed, folder, compiled(folder), env)
        self.path = self.walk.path
        self.began = time.monotonic()
        self.looks = 0
        self.verbose = False
        self.rows: list[tuple[str, str, str]] = []

    @property
    def harm(self) -> list[str]:
        return self.walk.harm

    def begin(self) -> None:
        for tenant_class in ("production", "opportunistic"):
            job = self.walk.start(tenant_class)
            job.is_tenant = True
            job.ask("step 5 50")
            self.walk.residents.append(job)
        for job in self.walk.residents:
            self.warm_up(job)
        self.free_before = self.free()
        self.before = self.holdings()

    def warm_up(self, job: Job) -> None:
        """What its work, a limit, another class and moving memory need is there before it is counted, NVML's library
        among it."""
        for line in ("graph 8", "streams 4", "fork 1"):
            job.ask(line)
        for wanted in ({"memory": 64 << 20, "tenant_class": 1}, {"memory": 0}):
            self.walk.ask(job, wanted)
            accounts.eventually(lambda: not self.has_requests(job))
            job.ask("add 1000000")
            job.ask("step 5 50")
        self.walk.ask(job, {"tenant_class": int(TenantClass[job.tenant_class])})
        for pause in (True, False):
            self.walk.pause(job, pause)
            accounts.eventually(lambda wanted=pause: self.is_away(job) == wanted)  # type: ignore[misc]
        job.ask("check")
        job.ask("give")

    def has_requests(self, job: Job) -> bool:
        return any(one.asked for one in segment.read(self.path).tenants if one.pid == job.pid)

    def is_away(self, job: Job) -> bool:
        return accounts.on_host(self.path, [job.pid]) > 0

    def free(self) -> int:
        return int(self.walk.residents[0].ask("free"))

    def holdings(self) -> dict[str, accounts.Holding]:
        accounts.eventually(lambda: accounts.daemon(self.path) is not None)
        pids = {f"{job.tenant_class} job": job.pid for job in self.walk.residents}
        pids |= {name: pid for pid, name in accounts.processes(self.folder).items() if name == "softgpud"}
        if daemon := accounts.daemon(self.path):
            pids["daemon"] = daemon
        found = {name: accounts.holding(pid, accounts.pinned(self.path, pid)) for name, pid in pids.items()}
        return {name: held for name, held in found.items() if held}

    def go_on(self, seconds: float, actions: int | None, verbose: bool) -> None:
        number, self.verbose = 0, verbose
        while time.monotonic() - self.began < seconds and (actions is None or number < actions):
            said = self.walk.act()
            number += 1
            if verbose and said:
                narrate(f"{number}: {said}")
            if number % LOOK == 0:
                self.look()
        self.look()

    def look(self) -> None:
        self.walk.look()
        self.looks += 1
        if self.verbose:
            held = {name: f"{one.resident / 2**20:.1f} MiB" for name, one in self.holdings().items()}
            narrate(f"look {self.looks}: {held}")

    def end(self) -> None:
        """Ends everybody, the residents last; what is left then is harm."""
        walk = self.walk
        for job in [one for one in walk.jobs if one not in walk.residents]:
            walk.leave(job)
            job.kill()
        walk.settle()
        for job in walk.residents:
            job.ask("give")
        # A new job finds a daemon to start where the last was killed, and so everything is looked after once more.
        last = walk.start("standard")
        last.ask("step 1 1")
        accounts.eventually(lambda: accounts.daemon(self.path) is not None)
        walk.leave(last)
        last.kill()
        pids = [job.pid for job in walk.residents]
        self.compare("slots", len(pids), lambda: len(accounts.taken(self.path)))
        self.compare("slots of the dead", 0, lambda: accounts.unreaped(self.path))
        self.compare("bytes on the GPU by the slots", 0, lambda: accounts.on_gpu(self.path, pids))
        self.compare("bytes on the host by the slots", 0, lambda: accounts.on_host(self.path, pids))
        self.compare("bytes free on the GPU", self.free_before, self.free)
        self.compare_holdings()
        for job in walk.residents:
            assert job.process.stdin
            job.process.stdin.close()
            if status := job.ended():
                self.harm.append(f"{job.name} ended with {status}: {job.complaint()}")
        self.compare("processes", 0, lambda: len(accounts.processes(self.folder)))
        self.compare("files of the segment left", 0, lambda: len(self.strays()))

    def compare_holdings(self) -> None:
        def excess() -> dict[str, str]:
            now = self.holdings()
            return {name: now[name].excess(held) for name, held in self.before.items() if name in now}

        accounts.eventually(lambda: not any(excess().values()), 20.0)
        after = self.holdings()
        for name, before in self.before.items():
            held = after.get(name)
            if held is None:
                self.harm.append(f"{name}: there is none any more")
                continue
            self.rows.append((f"{name}: descriptors", str(before.descriptors), str(held.descriptors)))
            self.rows.append((f"{name}: threads", str(before.threads.total()), str(held.threads.total())))
            mib = (f"{before.resident / 2**20:.1f}", f"{held.resident / 2**20:.1f}")
            self.rows.append((f"{name}: resident MiB", *mib))
            if wrong := held.excess(before):
                self.harm.append(f"{name}: {wrong}")

    def strays(self) -> list[str]:
        # What happened outlives the daemon (docs/events.md).
        events = ("daemon.events", "daemon.events.old")
        kept = ("segment", "soak_job", "gpu", *(f"segment.{name}" for name in events))
        beside = [
            entry.name
            for entry in self.folder.iterdir()
            if entry.name not in kept and not entry.name.endswith(".stderr")
        ]
        inside = self.path.rglob("*") if self.path.is_dir() else ()
        return beside + [entry.name for entry in inside if entry.name not in ("header", "slots", *events)]

    def compare(self, name: str, before: int, now: Any) -> None:
        if not accounts.eventually(lambda: now() == before, 20.0):
            self.harm.append(f"{name}: {now()} instead of {before}")
        self.rows.append((name, str(before), str(now())))

    def tenants(self) -> str:
        """How they stand, for the report of one that hangs."""
        try:
            seen = segment.read(self.path)
        except (OSError, segment.BadSegment) as error:
            return str(error)
        return "\n".join([f"rule {seen.rule}, policy {seen.policy}", *map(str, seen.tenants)])

    def kill_all(self) -> None:
        for job in self.walk.jobs:
            if job.process.poll() is None:
                job.process.kill()
                job.process.wait()
        for pid in accounts.processes(self.folder):
            os.kill(pid, signal.SIGKILL)

    def table(self) -> str:
        lines = ["| done | times |", "| --- | --- |"]
        lines += [f"| {name} | {times} |" for name, times in sorted(self.walk.done.items())]
        lines += ["", "| what | before | after |", "| --- | --- | --- |"]
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    seed = options.seed if options.seed is not None else random.randrange(2**32)
    narrate(f"seed {seed}")
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="cotenant-soak-", dir=memory if os.access(memory, os.W_OK) else None
    ) as folder:
        soak = Soak(seed, Path(folder), options.shared)
        try:
            soak.begin()
            soak.go_on(options.seconds, options.actions, options.verbose)
            soak.end()
        except Problem as problem:
            soak.harm.append(f"{problem.message}\n{soak.tenants()}")
        finally:
            soak.kill_all()
    done = sum(soak.walk.done.values())
    print(f"seed {seed}: {done} actions on {soak.walk.started} jobs, {soak.looks} looks\n\n{soak.table()}")
    if options.output:
        found = {"seed": seed, "done": soak.walk.done, "jobs": soak.walk.started, "rows": soak.rows}
        options.output.write_text(json.dumps(found | {"harm": soak.harm}, indent=2) + "\n")
    for line in soak.harm:
        narrate(f"error: {line}")
    if soak.harm:
        narrate(
            f"hint: python bench/soak/run.py --seed {seed} --verbose{' --shared' * options.shared} repeats it"
        )
    return 1 if soak.harm else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Problem as problem:
        narrate(f"error: {problem.message}\nhint: {problem.hint}")
        sys.exit(problem.status)
