"""What `cotenant doctor` looks at: a check looks at one thing, and its verdict says what it found.

ok: as it should be. warn: sharing works, but somebody should know. fail: sharing does not work.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cotenant import gpus, segment
from cotenant.errors import Problem
from cotenant.launch import driver, native_files, preload

Verdict = Literal["ok", "warn", "fail"]
PROBE_SECONDS = 120


@dataclass(frozen=True)
class Finding:
    name: str
    verdict: Verdict
    cause: str  # what was found, in a line
    fix: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Machine:
    """What all checks look at."""

    environment: Mapping[str, str]
    driver_file: Path | None
    no_driver: str
    listed: list[gpus.Gpu] | None  # by NVML

    @staticmethod
    def look(environment: Mapping[str, str]) -> Machine:
        try:
            file = driver.find(environment)
        except driver.NoDriver as error:
            return Machine(environment, None, str(error), None)
        return Machine(environment, file, "", gpus.installed(file))

    @property
    def soft(self) -> bool:
        return self.driver_file is not None and native_files.is_softgpu(self.driver_file)


def all_findings(machine: Machine) -> Iterator[Finding]:
    for check in CHECKS:
        try:
            yield check(machine)
        except Exception as error:  # one broken check must not hide what the others find
            name = check.__name__.replace("_", "-")
            yield Finding(name, "fail", f"the check itself failed: {error!r}", "report it as a bug")


def package(machine: Machine) -> Finding:
    missing = [
        part
        for part in (native_files.shim(), native_files.wire(), native_files.probe())
        if not part.is_file()
    ]
    if missing:
        return Finding(
            "package", "fail", f"missing: {', '.join(map(str, missing))}", "install the package again"
        )
    if not preload.can_hold(native_files.shim()):
        cause = f"LD_PRELOAD cannot hold the path {native_files.shim()}"
        return Finding("package", "fail", cause, "install into a folder without spaces and colons")
    return Finding(
        "package",
        "ok",
        f"native parts in {native_files.folder()}",
        facts={"folder": str(native_files.folder())},
    )


def driver_library(machine: Machine) -> Finding:
    if machine.driver_file is None:
        return Finding(
            "driver",
            "fail",
            machine.no_driver,
            "install the NVIDIA driver, set COTENANT_DRIVER to its file, or use `cotenant softgpu -- ...`",
        )
    source = (
        "import ctypes, sys\n"
        "version = ctypes.c_int()\n"
        "status = ctypes.CDLL(sys.argv[1]).cuDriverGetVersion(ctypes.byref(version))\n"
        "print(version.value if status == 0 else sys.exit(f'cuDriverGetVersion answered {status}'))\n"
    )
    plain = dict(machine.environment)
    preload.drop_shims(plain)
    # In a child: a driver that cannot be loaded may end the process.
    child = subprocess.run(
        [sys.executable, "-c", source, str(machine.driver_file)],
        check=False,
        env=plain,
        capture_output=True,
        text=True,
        timeout=PROBE_SECONDS,
    )
    facts: dict[str, Any] = {"file": str(machine.driver_file), "software": machine.soft}
    if child.returncode != 0:
        reason = last_line(child.stderr) or f"exit status {child.returncode}"
        return Finding(
            "driver",
            "fail",
            f"{machine.driver_file} does not load: {reason}",
            "install the driver again",
            facts,
        )
    facts["cuda_version"] = int(child.stdout)
    release = driver_release(machine)
    if release:
        facts["release"] = release
    cuda = f"CUDA {facts['cuda_version'] // 1000}.{facts['cuda_version'] % 1000 // 10}"
    about = "software GPU" if machine.soft else f"release {release or 'unknown'}"
    return Finding("driver", "ok", f"{machine.driver_file} ({about}, {cuda})", facts=facts)


def driver_release(machine: Machine) -> str:
    with gpus.nvml(machine.driver_file) as ml:
        return gpus.text(ml.nvmlSystemGetDriverVersion()) if ml else ""


def gpu_list(machine: Machine) -> Finding:
    if machine.driver_file is None:
        return Finding("gpu", "fail", "without a driver there is no GPU", "see the driver")
    if machine.listed is None:
        return Finding("gpu", "warn", "NVML is not there: GPUs cannot be listed", "install libnvidia-ml.so.1")
    if not machine.listed:
        return Finding("gpu", "fail", "NVML lists no GPU", "look at `nvidia-smi` and the container's devices")
    visible = gpus.visible_now(machine.environment)
    facts = {"gpus": [vars(gpu) for gpu in machine.listed], "visible": visible}
    if visible == []:
        return Finding("gpu", "fail", "CUDA_VISIBLE_DEVICES hides every GPU", "unset it or name a GPU", facts)
    listed = "; ".join(f"{gpu.index} {gpu.name} {gpu.uuid}" for gpu in machine.listed)
    return Finding("gpu", "ok", listed, facts=facts)


def mps(machine: Machine) -> Finding:
    pipe = Path(machine.environment.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps") / "control"
    running = any(name.startswith("nvidia-cuda-mps") for name in process_names())
    facts = {"pipe": str(pipe), "pipe_there": pipe.exists(), "running": running}
    if machine.soft or not (running or pipe.exists()):
        return Finding("mps", "ok", "not in use", facts=facts)
    if not running:
        return Finding(
            "mps",
            "warn",
            f"{pipe} is there, but no control daemon in this PID namespace",
            "where a stopped MPS left it, remove it: programs would wait for its server",
            facts,
        )
    return Finding(
        "mps",
        "warn",
        "MPS runs: tenants share one GPU context, so kernels overlap and no time slices apply",
        "for the strongest isolation stop it: echo quit | nvidia-cuda-mps-control",
        facts,
    )


def process_names() -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield (entry / "comm").read_text().strip()
            except OSError:
                continue


def mig(machine: Machine) -> Finding:
    divided = [gpu for gpu in machine.listed or () if gpu.mig]
    facts = {"gpus": [gpu.index for gpu in divided]}
    if not divided:
        return Finding("mig", "ok", "off", facts=facts)
    where = ", ".join(str(gpu.index) for gpu in divided)
    return Finding(
        "mig",
        "warn",
        f"on for GPU {where}: only tenants of the same MIG instance share",
        "give tenants that share the same `--gpu MIG-...`, or switch it off: nvidia-smi -mig 0",
        facts,
    )


def preloads(machine: Machine) -> Finding:
    value = machine.environment.get("LD_PRELOAD")
    others = preload.without_shims(value)
    try:
        system = preload.entries(Path("/etc/ld.so.preload").read_text().replace("\n", " "))
    except OSError:
        system = []
    facts = {"LD_PRELOAD": others, "/etc/ld.so.preload": system}
    rivals = [entry for entry in (*others, *system) if Path(entry).name.startswith("libcuda.so")]
    if rivals:
        return Finding(
            "preload",
            "fail",
            f"another CUDA driver library is preloaded: {', '.join(rivals)}",
            "remove it from LD_PRELOAD or /etc/ld.so.preload",
            facts,
        )
    missing = [entry for entry in (*others, *system) if os.sep in entry and not Path(entry).exists()]
    if missing:
        return Finding("preload", "warn", f"preloaded but missing: {', '.join(missing)}", "remove it", facts)
    if others or system:
        return Finding("preload", "ok", f"beside ours: {', '.join((*others, *system))}", facts=facts)
    return Finding("preload", "ok", "nothing else is preloaded", facts=facts)


def shared_memory(machine: Machine) -> Finding:
    path = segment.path_for(machine.environment)
    folder = path.parent
    facts: dict[str, Any] = {"segment": str(path)}
    if not folder.is_dir():
        fix = f"create {folder}, or name another file in COTENANT_SEGMENT"
        return Finding("shared-memory", "fail", f"{folder} is no folder", fix, facts)
    free = shutil.disk_usage(folder).free
    facts["free_bytes"] = free
    hardware = machine.driver_file is not None and not native_files.is_softgpu(machine.driver_file)
    if hardware and not segment.is_in_memory(folder):
        fix = "name a file on a tmpfs such as /dev/shm in COTENANT_SEGMENT: the driver maps no other"
        return Finding("shared-memory", "fail", f"{folder} is on a disk", fix, facts)
    try:
        seen = segment.read(path)
    except FileNotFoundError:
        if not os.access(folder, os.W_OK | os.X_OK):
            fix = "change its permissions, or name another file in COTENANT_SEGMENT"
            return Finding("shared-memory", "fail", f"{folder} is not writable", fix, facts)
        if free < segment.SEGMENT_BYTES:
            cause = f"{folder} has {free} bytes left, a segment needs {segment.SEGMENT_BYTES}"
            return Finding("shared-memory", "fail", cause, "make room (docker run --shm-size)", facts)
        return Finding("shared-memory", "ok", f"{path} will be made by the first run", facts=facts)
    except segment.BadSegment as error:
        fix = f"when no tenant runs: rm {path}; or name another file in COTENANT_SEGMENT"
        return Finding("shared-memory", "fail", str(error), fix, facts)
    if not os.access(path, os.R_OK | os.W_OK):
        fix = "name another file in COTENANT_SEGMENT"
        return Finding("shared-memory", "fail", f"{path} is not writable", fix, facts)
    used = len(seen.tenants)
    facts |= {"slots": segment.SLOTS, "in_use": used, "lost": seen.lost}
    cause = f"{path}: {used} of {segment.SLOTS} slots in use, {seen.lost} of dead owners"
    if used == segment.SLOTS:
        return Finding("shared-memory", "fail", cause, "end some tenants: a new one has no slot", facts)
    return Finding("shared-memory", "ok", cause, facts=facts)


def symbols(machine: Machine) -> Finding:
    if machine.driver_file is None or not native_files.shim().is_file():
        return Finding("symbols", "fail", "needs the driver and the interposer", "see driver and package")
    theirs, ours = exported(machine.driver_file), exported(native_files.shim())
    missing = sorted(name for name, kind in theirs.items() if kind == "function" and name not in ours)
    data = sorted(name for name, kind in theirs.items() if kind == "data" and name not in ours)
    facts = {"driver": len(theirs), "interposer": len(ours), "missing": missing, "data": data}
    if missing:
        return Finding(
            "symbols",
            "warn",
            f"the driver exports {len(missing)} functions that the interposer does not: {shortened(missing)}",
            "install a newer Cotenant: a program that links to one of them does not start under it",
            facts,
        )
    functions = sum(kind == "function" for kind in theirs.values())
    debugger = f"; data for debuggers, expected: {len(data)}" if data else ""
    return Finding(
        "symbols", "ok", f"all {functions} functions of the driver are reachable{debugger}", facts=facts
    )


def exported(library: Path) -> dict[str, str]:
    """The names a library defines for others: "function" or "data"."""
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.elffile import ELFFile

    with library.open("rb") as file:
        # By segment, not by section: a stripped library has no sections.
        dynamic = next(s for s in ELFFile(file).iter_segments() if isinstance(s, DynamicSegment))
        names = {}
        for symbol in dynamic.iter_symbols():
            bound = symbol["st_info"]["bind"] in ("STB_GLOBAL", "STB_WEAK")
            kind = {"STT_FUNC": "function", "STT_GNU_IFUNC": "function", "STT_OBJECT": "data"}.get(
                symbol["st_info"]["type"]
            )
            if kind and bound and symbol["st_shndx"] != "SHN_UNDEF" and symbol.name:
                names[symbol.name] = kind
        return names


@contextmanager
def private_tenancy(machine: Machine) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """The environments of a program without the interposer and of a tenant that disturbs nobody. Raises Problem."""
    plain = dict(machine.environment) | {"LD_LIBRARY_PATH": library_path(machine)}
    preload.drop_shims(plain)
    # A segment of its own, but in the same folder, because a driver may refuse to register memory of other file
    # systems.
    beside = segment.path_for(machine.environment).parent
    if not os.access(beside, os.W_OK | os.X_OK):
        raise Problem(f"{beside} is not writable")
    with tempfile.TemporaryDirectory(prefix="cotenant-doctor-", dir=beside) as folder:
        path = Path(folder) / "segment"
        try:
            segment.ensure(path)
        except segment.BadSegment as error:
            raise Problem(f"no segment: {error}") from None
        yield (
            plain,
            plain
            | {
                "COTENANT_DRIVER": str(machine.driver_file),
                "COTENANT_SEGMENT": str(path),
                "COTENANT_CLASS": "production",
                "COTENANT_TENANT": os.urandom(16).hex(),
                "LD_PRELOAD": preload.with_shim(plain.get("LD_PRELOAD"), native_files.shim()),
            },
        )


def can_probe(machine: Machine) -> bool:
    return (
        machine.driver_file is not None and native_files.probe().is_file() and native_files.shim().is_file()
    )


def self_test(machine: Machine) -> Finding:
    if not can_probe(machine):
        return Finding("self-test", "fail", "needs the driver, the interposer and the probe", "see above")
    try:
        with private_tenancy(machine) as (plain, shared):
            alone, why_alone = run_probe(plain)
            inside, why_inside = run_probe(shared)
    except Problem as problem:
        return Finding("self-test", "fail", problem.message, "see shared-memory")
    facts: dict[str, Any] = {"plain": alone, "interposed": inside}
    if alone is None:
        return Finding(
            "self-test", "fail", f"without the interposer: {why_alone}", "mend the driver first", facts
        )
    if inside is None:
        return Finding(
            "self-test", "fail", f"through the interposer: {why_inside}", "report it as a bug", facts
        )
    if not inside.get("interposed"):
        fix = "is the probe's loader told to ignore LD_PRELOAD (set-user-ID, capabilities)?"
        return Finding("self-test", "fail", "the interposer was not in the way", fix, facts)
    # The probe launches in turns through the interposer and past it: in one process the noise is the same.
    cause = (
        f"{inside['launches']} launches on {inside['device']}: {inside['ns_per_launch']:.0f} ns each, of which the "
        f"interposer {inside['ns_added']:.0f} ns ({inside['ns_added_low']:.0f} to {inside['ns_added_high']:.0f})"
    )
    return Finding("self-test", "ok", cause, facts=facts)


def time_slices(machine: Machine) -> Finding:
    """The hardware's time slices: whether the driver takes those of the classes."""
    if not can_probe(machine):
        return Finding("time-slices", "fail", "needs the driver, the interposer and the probe", "see above")
    if machine.soft:
        return Finding("time-slices", "ok", "not used on the software GPU", facts={"software": True})
    facts: dict[str, Any] = {}
    try:
        with private_tenancy(machine) as (_, shared):
            for tenant_class in ("production", "opportunistic"):
                probed, why = run_probe(shared | {"COTENANT_CLASS": tenant_class}, "--batches", "1")
                if probed is None:
                    return Finding("time-slices", "fail", f"as {tenant_class}: {why}", "see self-test", facts)
                facts[tenant_class] = probed.get("time_slice")
    except Problem as problem:
        return Finding("time-slices", "fail", problem.message, "see shared-memory")
    return judged_slices(facts)


def judged_slices(facts: dict[str, Any]) -> Finding:
    refused = [name for name, slice_ in facts.items() if slice_ and slice_["refused"]]
    unasked = [name for name, slice_ in facts.items() if not slice_ or not slice_["granted_us"]]
    consequence = (
        "a long kernel of an opportunistic job is not cut when production comes, but runs to its end"
    )
    if refused:
        cause = f"the driver refused those of {' and '.join(refused)}: {consequence}"
        return Finding(
            "time-slices", "warn", cause, "keep opportunistic kernels short, or try another driver", facts
        )
    if unasked:
        cause = f"the driver set none for {' and '.join(unasked)}: {consequence}"
        return Finding(
            "time-slices", "warn", cause, "is MPS on, or is it a driver newer than Cotenant?", facts
        )
    granted = ", ".join(f"{name} {slice_['granted_us']} us" for name, slice_ in facts.items())
    return Finding("time-slices", "ok", f"granted: {granted}", facts=facts)


def library_path(machine: Machine) -> str:
    assert machine.driver_file is not None
    return ":".join(
        filter(None, [str(machine.driver_file.parent), machine.environment.get("LD_LIBRARY_PATH")])
    )


def run_probe(environment: Mapping[str, str], *options: str) -> tuple[dict[str, Any] | None, str]:
    """What the probe measured, or why it could not."""
    try:
        child = subprocess.run(
            [str(native_files.probe()), *options],
            check=False,
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
        )
        if child.returncode != 0:
            return None, last_line(child.stderr) or f"the probe ended with status {child.returncode}"
        return dict(json.loads(child.stdout)), ""
    except subprocess.TimeoutExpired:
        return None, f"the probe did not end within {PROBE_SECONDS} s"
    except (OSError, ValueError) as error:
        return None, str(error)


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def shortened(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


CHECKS: tuple[Callable[[Machine], Finding], ...] = (
    package,
    driver_library,
    gpu_list,
    mps,
    mig,
    preloads,
    shared_memory,
    symbols,
    self_test,
    time_slices,
)
