#!/usr/bin/env python3
"""Stands in for Nsight Compute: runs the command, and writes what `ncu --csv --page raw` writes of it.

NCU_KERNELS: the rows, `name|grid|block|ns|compute %|dram %|dram bytes/s|tensor %`, one a line; NCU_SAYS: instead of all
this, lines such as `==ERROR== ERR_NVGPUCTRPERM ...`.
"""

import os
import subprocess
import sys

options = [word for word in sys.argv[1:] if word.startswith("--")]
command = sys.argv[1 + len(options) :]
given = dict(word[2:].split("=", 1) for word in options if "=" in word)
wanted = {"page": "raw", "print-units": "base", "print-kernel-base": "mangled", "launch-count": "1"}
if "--csv" not in options or any(given.get(name) != value for name, value in wanted.items()):
    sys.exit(f"ncu: unexpected options {options}")
metrics = given["metrics"].split(",")

HEAD = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
        "Device", "CC"]  # fmt: skip
UNITS = {
    "gpu__time_duration.sum": "nsecond",
    "dram__bytes.sum.per_second": "byte/second",
    "launch__registers_per_thread": "register/thread",
    "launch__shared_mem_per_block_static": "byte/block",
    "launch__shared_mem_per_block_dynamic": "byte/block",
}


def row(cells: list[object]) -> str:
    return ",".join(f'"{cell}"' for cell in cells)


lines = []
if says := os.environ.get("NCU_SAYS"):
    lines.append(says)
else:
    lines += [
        "==PROF== Connected to process 4711 (/usr/bin/python3)",
        '==PROF== Profiling "k" - 0: 0%....100% - 9 passes',
    ]
    lines.append(row([*HEAD, *metrics]))
    lines.append(
        row([*[""] * len(HEAD), *(UNITS.get(one, "%" if "pct" in one else "block") for one in metrics)])
    )
    for number, text in enumerate(os.environ["NCU_KERNELS"].splitlines()):
        name, grid, block, ns, compute, dram, rate, tensor = text.split("|")
        values = {
            "gpu__time_duration.sum": ns,
            "sm__throughput.avg.pct_of_peak_sustained_elapsed": compute,
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": dram,
            "dram__bytes.sum.per_second": rate,
            "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": tensor,
            "launch__registers_per_thread": "168",
            "launch__shared_mem_per_block_static": "1,024",
            "launch__shared_mem_per_block_dynamic": "0",
        }
        about = [number, 4711, "python3", "127.0.0.1", name, 1, 7, block, grid, 0, "9.0"]
        lines.append(row([*about, *(values.get(one, "2") for one in metrics)]))
    lines.append("==PROF== Disconnected from process 4711")
status = subprocess.run(command, check=False).returncode
with open(given["log-file"], "x") as out:
    out.write("\n".join(lines) + "\n")
sys.exit(status)
