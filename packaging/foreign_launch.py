"""Counts the instructions that the interposer adds to a launch on another machine: qemu-user logs each one it runs.

    python packaging/foreign_launch.py [CPU...]

It counts what `make wheels` or `make test-16k` installed last for that machine, as bench/launch does for this one. CPU
is one of qemu's: cortex-a72 has no atomic additions.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import foreign
from checkout import ROOT, PackagingError
from wheels import clean_environment

from cotenant import segment
from cotenant.launch.architecture import ARCHITECTURES, HERE, Architecture

[MACHINE] = [one for one in ARCHITECTURES if one is not HERE]
NATIVE = Path("/") / foreign.SITE / "cotenant" / "native"
LAUNCHES_IN_A_BATCH = 256  # kBatch in native/probe/probe.cpp
CLASSES, STREAMS = ("production", "standard", "opportunistic"), ("own", "legacy")
MOST_SECONDS = 300.0


def compile_driver(machine: Architecture, folder: Path) -> Path:
    """As bench/launch/run.py does it."""
    compiler = shutil.which(f"{machine.name}-linux-gnu-gcc")
    if not compiler:
        raise PackagingError(
            f"no C compiler for {machine.name} (Debian: apt-get install gcc-{machine.name}-linux-gnu)"
        )
    by_path, made = folder / "by_path.so", folder / "never_done.so"
    options = [compiler, "-O1", "-shared", "-fPIC", "-Wl,--no-as-needed"]
    softgpu = f"-Wl,-soname,{NATIVE / 'softgpu' / 'libcuda.so.1'}"
    subprocess.run([*options, "-x", "c", os.devnull, softgpu, "-o", by_path], check=True)
    subprocess.run([*options, ROOT / "bench/launch/never_done.c", by_path, "-ldl", "-o", made], check=True)
    return made


def start(
    inside: list[str], stream: str, settings: dict[str, str], **emulator: str
) -> subprocess.Popen[bytes]:
    """The probe, which stops itself before and after each batch."""
    probe = [str(NATIVE / "cotenant-probe"), "--batches", "1", "--stream", stream, "--stops"]
    # The programs on the way to it are this machine's.
    only_there = ",".join(f"{name}={value}" for name, value in settings.items())
    env = clean_environment() | emulator | {"QEMU_SET_ENV": only_there}
    return subprocess.Popen([*inside, *probe], env=env, stdout=subprocess.DEVNULL)


def is_stopped(process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        raise PackagingError(f"the probe ended with status {process.returncode}")
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def between_stops(log: Path) -> list[int]:
    """The instructions of the first thread between its stops, of which the first two and the last two are a batch."""
    found, count = [], 0
    with log.open(errors="replace") as lines:
        for line in lines:
            if line.startswith("Trace 0:"):
                count += 1
            elif " tgkill(" in line:
                found.append(count)
                count = 0
    return found


def added(root: Path, cpu: str, tenant_class: str, stream: str) -> float:
    """Instructions, a mean over a batch: those of launches through the interposer less those past it."""
    inside = foreign.inside(root, MACHINE)
    with tempfile.TemporaryDirectory(prefix="cotenant-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        segment.ensure(folder / "segment")
        softgpu = {"COTENANT_SOFTGPU": "small", "COTENANT_SOFTGPU_DIR": name}
        interposed = {
            "LD_PRELOAD": str(NATIVE / "shim" / "libcuda.so.1"),
            "COTENANT_DRIVER": str(compile_driver(MACHINE, folder)),
            "COTENANT_SEGMENT": str(folder / "segment"),
            "COTENANT_CLASS": tenant_class,
        }
        # Another client keeps the software GPU: what the counted one would start writes into its log.
        other = start(inside, stream, softgpu | {"LD_LIBRARY_PATH": str(NATIVE / "softgpu")}, QEMU_CPU=cpu)
        ended = threading.Event()
        timer = threading.Timer(MOST_SECONDS, ended.set)
        timer.start()
        try:
            while not is_stopped(other) and not ended.wait(0.05):
                pass
            log = folder / "log"
            os.mkfifo(log)
            writer = os.open(
                log, os.O_RDWR
            )  # so that reading ends when the probe does, also before it writes
            logged = {"QEMU_LOG": "exec,nochain,strace", "QEMU_LOG_FILENAME": str(log)}
            each = {"QEMU_SINGLESTEP": "1", "QEMU_ONE_INSN_PER_TB": "1"}  # until and since qemu 8.1
            counted = start(inside, stream, softgpu | interposed, QEMU_CPU=cpu, **logged, **each)

            def go_on() -> None:
                while counted.poll() is None and not ended.wait(0.05):
                    counted.send_signal(signal.SIGCONT)
                counted.kill()
                os.close(writer)

            threading.Thread(target=go_on, daemon=True).start()
            found = between_stops(log)
            counted.wait()
        finally:
            ended.set()
            timer.cancel()
            other.kill()
            other.wait()
    if len(found) != 4:
        raise PackagingError(f"the probe stopped {len(found)} times instead of 4")
    _, through, _, past = found
    return (through - past) / LAUNCHES_IN_A_BATCH


def main() -> int:
    root = ROOT / "build" / f"debian-{MACHINE.debian}" / "root"
    try:
        if problem := foreign.cannot_run(MACHINE):
            raise PackagingError(problem)
        if not (root / NATIVE.relative_to("/")).exists():
            raise PackagingError(f"nothing is installed for {MACHINE.name}: run make wheels first")
        print(f"instructions that a launch takes longer on {MACHINE.name}")
        for cpu in sys.argv[1:] or [foreign.CPUS.get(MACHINE.name, "max")]:
            for stream in STREAMS:
                for tenant_class in CLASSES:
                    print(f"  {cpu:20} {tenant_class:14} {stream:8}", end="", flush=True)
                    print(f"{added(root, cpu, tenant_class, stream):8.0f}", flush=True)
    except PackagingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
