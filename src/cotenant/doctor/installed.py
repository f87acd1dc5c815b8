"""Whether what is installed fits together: the package, the driver, the interposer's symbols, preloads."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from cotenant.doctor.child import ended, last_line
from cotenant.doctor.finding import Finding, Machine
from cotenant.gpus import nvml
from cotenant.launch import elf, native_files, preload


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
        f"native files in {native_files.folder()}",
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
    child = ended([sys.executable, "-c", source, str(machine.driver_file)], plain)
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
    with nvml.session(machine.driver_file) as ml:
        return nvml.text(ml.nvmlSystemGetDriverVersion()) if ml else ""


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


def symbols(machine: Machine) -> Finding:
    assert machine.driver_file is not None
    theirs, ours = elf.exported(machine.driver_file), elf.exported(native_files.shim())
    missing = sorted(name for name, kind in theirs.items() if kind == "function" and name not in ours)
    data = sorted(name for name, kind in theirs.items() if kind == "data" and name not in ours)
    facts = {"driver": len(theirs), "interposer": len(ours), "missing": missing, "data": data}
    if missing:
        return Finding(
            "symbols",
            "warn",
            f"the driver exports {len(missing)} functions that the interposer does not: {shortened(missing)}",
            "install a newer Cotenant: a program that links to one of them runs without it",
            facts,
        )
    functions = sum(kind == "function" for kind in theirs.values())
    debugger = f"; data for debuggers, expected: {len(data)}" if data else ""
    return Finding(
        "symbols", "ok", f"all {functions} functions of the driver are reachable{debugger}", facts=facts
    )


def shortened(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")
