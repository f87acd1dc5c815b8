"""Writes the interposer's generated part: trampolines for every driver function, their numbers, and the hooks.

shim.py --compiler g++ --include DIR --list hooks.list --exports FILE --machine x86_64 --output DIR
shim.py ... --report docs/interposition.md     the table for people
shim.py ... --check                            exit 1, naming them, if functions are not treated
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

import declarations
import hooks
import trampolines


def exported_names(path: Path) -> list[str]:
    return [line for line in path.read_text().split("\n") if line and not line.startswith("#")]


def indices(names: list[str]) -> str:
    lines = [f"    {name} = {index}," for index, name in enumerate(names)]
    return "\n".join(["// The number of each forwarded function.", *lines, f"    count = {len(names)},", ""])


def write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def header_version(include: Path) -> str:
    match = re.search(r"#define CUDA_VERSION (\d+)", (include / "cuda.h").read_text(errors="replace"))
    number = int(match.group(1)) if match else 0
    return f"{number // 1000}.{number % 1000 // 10}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--include", type=Path, required=True)
    parser.add_argument("--list", type=Path, required=True)
    parser.add_argument("--exports", type=Path, required=True)
    parser.add_argument("--machine", default=os.uname().machine, help="as `uname -m` says it")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()

    functions = declarations.read(options.compiler, options.include)
    treatments = hooks.read_list(options.list)
    detours = hooks.read_detours(options.list)
    missing = hooks.untreated(treatments, functions)
    if options.check and missing:
        print(f"error: not in {options.list.name}: {' '.join(missing)}", file=sys.stderr)
        return 1
    if options.check and (missing := hooks.without_detour(treatments, detours, functions)):
        print(f"error: no detour, or no hook, in {options.list.name}: {' '.join(missing)}", file=sys.stderr)
        return 1
    if options.output:
        names = sorted({*functions, *exported_names(options.exports)})
        options.output.mkdir(parents=True, exist_ok=True)
        write(options.output / "forward.S", trampolines.assembly(options.machine, names))
        write(options.output / "forward_index.inc", indices(names))
        write(options.output / "forward_names.inc", "".join(f'"{name}",\n' for name in names))
        write(options.output / "hooks.inc", hooks.hook_lines(treatments, functions))
        records = hooks.read_records(options.list)
        write(options.output / "record.inc", hooks.record_lines(records, functions))
        write(options.output / "detour.inc", hooks.detour_lines(detours, functions))
    if options.report:
        write(options.report, hooks.report(treatments, functions, header_version(options.include)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
