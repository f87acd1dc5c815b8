"""NVIDIA's Nsight Compute as a source: it replays kernels and reads the GPU's counters. Slow, and often not allowed.

One launch of each kernel and launch configuration is measured. `ncu --csv` writes one row for a kernel, whose second
row has the units (`--page raw`), or one for each metric (`--page details`, which older versions write with --metrics);
both are read. Its own lines begin with `==`.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cotenant.errors import Problem
from cotenant.profile.columns import Columns, class_by_throughput
from cotenant.profile.estimate import TENSOR
from cotenant.profile.kernel import Kernel, Size

PROGRAM = "ncu"
BESIDE = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute", "/usr/local/bin")
PARAMETERS = Path("/proc/driver/nvidia/params")

TIME = "gpu__time_duration.sum"
COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
BYTES = "dram__bytes.sum.per_second"
TENSOR_PIPE = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
REGISTERS = "launch__registers_per_thread"
STATIC = "launch__shared_mem_per_block_static"
DYNAMIC = "launch__shared_mem_per_block_dynamic"
LIMITS = tuple(f"launch__occupancy_limit_{what}" for what in ("blocks", "registers", "shared_mem", "warps"))
LEAST_TENSOR = 0.05  # of the pipe's peak
METRICS = (TIME, COMPUTE, MEMORY, BYTES, TENSOR_PIPE, REGISTERS, STATIC, DYNAMIC, *LIMITS)

# What a unit is in ours: microseconds, bytes, bytes a second, a share.
SCALE = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
UNIT = re.compile(r"([numkKMGT]?)(s|second|byte|%)(/\w+)?")
SIZE = re.compile(r"\(?\s*(\d+)[,x ]\s*(\d+)[,x ]\s*(\d+)\s*\)?")
NO_PERMISSION = "ERR_NVGPUCTRPERM"
ALLOW = "an administrator can allow it: options nvidia NVreg_RestrictProfilingToAdminUsers=0"


@dataclass
class Measured:
    """One launch, as ncu tells it; numbers in seconds, bytes, bytes a second and shares."""

    name: str
    grid: Size
    block: Size
    values: dict[str, float] = field(default_factory=dict)


def find(environment: Mapping[str, str]) -> str | None:
    path = environment.get("PATH", os.defpath)
    if found := shutil.which(PROGRAM, path=path):
        return found
    for place in (
        *BESIDE,
        *(f"{environment[name]}/bin" for name in ("CUDA_HOME", "CUDA_PATH") if name in environment),
    ):
        folder = Path(place)
        for file in (folder / PROGRAM, *sorted(folder.glob(f"*/{PROGRAM}"), reverse=True)):
            if file.is_file() and os.access(file, os.X_OK):
                return str(file)
    return None


def required(environment: Mapping[str, str]) -> str:
    """Raises Problem where it is not installed, or certainly not allowed."""
    program = find(environment)
    if program is None:
        raise Problem(
            "Nsight Compute (ncu) is not installed", "leave out --source: the online estimate needs nothing"
        )
    if os.geteuid() != 0 and is_for_administrators():
        raise not_allowed()
    return program


def is_for_administrators() -> bool:
    try:
        return re.search(r"^RmProfilingAdminOnly: *1", PARAMETERS.read_text(), re.MULTILINE) is not None
    except OSError:
        return False


def not_allowed() -> Problem:
    return Problem(
        "Nsight Compute may not read this GPU's counters", f"leave out --source, or {ALLOW} in modprobe.d"
    )


def command(program: str, log: Path, words: Sequence[str]) -> list[str]:
    return [
        program,
        "--csv",
        "--page=raw",
        "--print-units=base",
        "--print-kernel-base=mangled",
        "--target-processes=all",
        "--filter-mode=per-launch-config",
        "--launch-count=1",
        f"--metrics={','.join(METRICS)}",
        f"--log-file={log}",
        *words,
    ]


def kernels_in(text: str, gpu_sms: int, seen: str) -> list[Kernel]:
    """Of what ncu wrote. Raises Problem where it says that it is not allowed, or wrote nothing to read."""
    if NO_PERMISSION in text:
        raise not_allowed()
    found: dict[tuple[object, ...], Kernel] = {}
    for measured in launches(text):
        one = kernel(measured, gpu_sms, seen)
        found[one.key] = one
    if not found:
        said = next((line for line in text.splitlines() if line.startswith("==ERROR==")), "")
        what = said.removeprefix("==ERROR==").strip() or "it measured no kernel"
        raise Problem(f"Nsight Compute: {what}", "leave out --source: the online estimate needs nothing")
    return list(found.values())


def launches(text: str) -> Iterator[Measured]:
    rows = csv.reader(line for line in text.splitlines() if line.startswith('"'))
    header = next((row for row in rows if "Kernel Name" in row), None)
    if header is None:
        return
    if "Metric Name" in header:
        yield from by_metric(header, rows)
    else:
        yield from by_launch(header, rows)


def by_metric(header: list[str], rows: Iterator[list[str]]) -> Iterator[Measured]:
    found: dict[str, Measured] = {}
    for row in rows:
        cells = dict(zip(header, row, strict=False))
        launch = described(cells)
        if launch is None:
            continue
        one = found.setdefault(f"{cells.get('Process ID')} {cells.get('ID')}", launch)
        value = number(cells.get("Metric Value", ""), cells.get("Metric Unit", ""))
        if value is not None:
            one.values[cells.get("Metric Name", "")] = value
    yield from found.values()


def by_launch(header: list[str], rows: Iterator[list[str]]) -> Iterator[Measured]:
    units: dict[str, str] = {}
    for row in rows:
        cells = dict(zip(header, row, strict=False))
        if not cells.get("ID"):
            units = cells
            continue
        one = described(cells)
        if one is None:
            continue
        for metric in METRICS:
            value = number(cells.get(metric, ""), units.get(metric, ""))
            if value is not None:
                one.values[metric] = value
        yield one


def described(cells: Mapping[str, str]) -> Measured | None:
    grid, block = (SIZE.search(cells.get(name, "")) for name in ("Grid Size", "Block Size"))
    if grid is None or block is None:
        return None
    x, y, z = map(int, grid.groups())
    u, v, w = map(int, block.groups())
    return Measured(cells.get("Kernel Name", ""), (x, y, z), (u, v, w))


def number(text: str, unit: str) -> float | None:
    """None: `n/a`, or no number."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    known = UNIT.match(unit)
    if known is None:
        return value
    scale, what, _ = known.groups()
    return value / 100 if what == "%" else value * SCALE[scale]


def kernel(measured: Measured, gpu_sms: int, seen: str) -> Kernel:
    values = measured.values
    share = {name: min(values[name], 1.0) for name in (COMPUTE, MEMORY) if name in values}
    by_name = TENSOR.search(measured.name) is not None
    # On an H200 this is over 0 even for kernels that have no use for tensor cores, such as softmax and plain copies.
    tensor = values[TENSOR_PIPE] > (0 if by_name else LEAST_TENSOR) if TENSOR_PIPE in values else by_name
    per_sm = int(min((values[name] for name in LIMITS if name in values), default=0))
    blocks = measured.grid[0] * measured.grid[1] * measured.grid[2]
    gbps = values[BYTES] / 1e9 if BYTES in values else None
    us = values.get(TIME, 0.0) * 1e6
    return Kernel(
        kind="kernel",
        name=measured.name,
        grid=measured.grid,
        block=measured.block,
        shared_bytes=int(values.get(DYNAMIC, 0)),
        bytes=0,
        launches=1,
        samples=1 if us else 0,
        mean_us=us,
        min_us=us,
        max_us=us,
        sms=min(gpu_sms, -(-blocks // per_sm)) if per_sm and gpu_sms else 0,
        blocks_per_sm=per_sm,
        registers=int(values.get(REGISTERS, 0)),
        static_shared_bytes=int(values.get(STATIC, 0)),
        columns=Columns(
            class_by_throughput(share.get(COMPUTE), share.get(MEMORY)),
            tensor,
            measured=True,
            compute=share.get(COMPUTE),
            memory_gbps=gbps,
        ),
        seen=seen,
    )
