"""The environment of a tenant: what `run`, `record` and `doctor` tell the interposer.

COTENANT_DRIVER         the real driver's file
COTENANT_SEGMENT        where the tenants meet
COTENANT_CLASS
COTENANT_RUN_ID         the run's: new for each, the same for all its processes
COTENANT_NAME           what people call it
COTENANT_WEIGHT, COTENANT_SLOWDOWN, COTENANT_FLOOR, COTENANT_MEMORY, COTENANT_OVERSUBSCRIBE    where they were given
COTENANT_SHARE_WHY, COTENANT_MPS_FAULTS, COTENANT_LAST_RUN    how it shares and why, and what is kept (cotenant.mps)
COTENANT_KERNEL_PROFILES    the folder of the tables of cotenant.profile.tables_for_tenants, where there are any
LD_PRELOAD              the interposer first
PYTHONPATH              begins with a folder of ours where its memory can move (python_path.py)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cotenant import segment
from cotenant.errors import Problem
from cotenant.launch import driver, elf, native_files, preload, python_path

PROMISES = (
    "COTENANT_WEIGHT",
    "COTENANT_SLOWDOWN",
    "COTENANT_FLOOR",
    "COTENANT_MEMORY",
    "COTENANT_OVERSUBSCRIBE",
)
SHARING = ("COTENANT_SHARE_WHY", "COTENANT_MPS_FAULTS", "COTENANT_LAST_RUN")
SETTINGS = (
    "COTENANT_DRIVER",
    "COTENANT_SEGMENT",
    "COTENANT_CLASS",
    "COTENANT_RUN_ID",
    "COTENANT_NAME",
    "COTENANT_KERNEL_PROFILES",
    *PROMISES,
    *SHARING,
)


class NotShared(Exception):
    """Why the command cannot be a tenant."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def of_command(
    inherited: Mapping[str, str],
    tenant_class: str,
    segment_file: Path | None,
    name: str,
    create: bool = True,
    program: str = "",
) -> dict[str, str]:
    """Of one that is started here, in the segment that is given or found. Raises NotShared."""
    try:
        driver_file = driver.find(inherited)
    except driver.NoDriver as error:
        raise NotShared(str(error), "`cotenant softgpu -- ...` runs it on a software GPU") from None
    shim = native_files.shim()
    if not shim.is_file():
        raise NotShared(f"{shim} is missing", "install the package again")
    if not preload.can_hold(shim):
        raise NotShared(
            f"LD_PRELOAD cannot hold the path {shim}", "install into a folder without spaces and colons"
        )
    if program and (newer := only_the_drivers(Path(program), shim, driver_file)):
        raise NotShared(
            f"{program} links to {newer}, which only the driver has, not this version of Cotenant",
            "install a newer Cotenant",
        )
    path = segment_file.absolute() if segment_file else segment.path_for({})
    if create:
        try:
            segment.ensure(path)
        except (segment.BadSegment, Problem) as error:
            raise NotShared(str(error), segment.remedy(path)) from None
        if not native_files.is_softgpu(driver_file) and not segment.is_in_memory(path):
            raise NotShared(f"{path} is on a disk", "name a file on a tmpfs such as /dev/shm with --segment")
    return of_tenant(inherited, driver_file, path, tenant_class, name)


def only_the_drivers(program: Path, shim: Path, driver_file: Path) -> str:
    """A function of the driver's that the program links to and the interposer does not have: with the interposer the
    loader would not start it. Empty: there is none, or nobody can tell."""
    try:
        if not elf.needs(program, driver.LIBRARY):
            return ""
        theirs, ours = elf.exported(driver_file), elf.exported(shim)
        return min(elf.wanted(program) & theirs.keys() - ours.keys(), default="")
    except Exception:  # whatever the file is: the kernel and the loader say what is wrong with it
        return ""


def of_tenant(
    inherited: Mapping[str, str], driver_file: Path, path: Path, tenant_class: str, name: str
) -> dict[str, str]:
    return dict(inherited) | {
        "COTENANT_DRIVER": str(driver_file),
        "COTENANT_SEGMENT": str(path),
        "COTENANT_CLASS": tenant_class,
        "COTENANT_RUN_ID": os.urandom(16).hex(),
        "COTENANT_NAME": name,
        "LD_PRELOAD": preload.with_shim(inherited.get("LD_PRELOAD"), native_files.shim()),
    }


def of_no_tenant(inherited: Mapping[str, str]) -> dict[str, str]:
    """Without what an outer run has set."""
    plain = {name: value for name, value in inherited.items() if name not in SETTINGS}
    preload.drop_shims(plain)
    python_path.drop_helper(plain)
    return plain


def show_gpus(environment: dict[str, str], wanted: str) -> None:
    """Those that --gpu names, of those that are visible."""
    from cotenant.gpus import naming, nvml

    driver_file = environment.get("COTENANT_DRIVER")
    known = nvml.installed(Path(driver_file)) if driver_file else None
    environment["CUDA_VISIBLE_DEVICES"] = naming.visible_devices(wanted, environment, known)
    # It has been applied; a nested run would apply it a second time, to what is left visible.
    environment.pop("COTENANT_GPU", None)
