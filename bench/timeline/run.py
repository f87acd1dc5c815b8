"""What a timeline costs: nanoseconds for each interval that a tenant notes (two looks at the clock among them), and for
each place that would note one while nobody asks. No GPU is needed.

A kernel's launch has no such place unless it waits; `bench/launch/run.py --timeline` measures launches with a recording
and without.

    make bench-timeline
    python bench/timeline/run.py [-o FILE.json]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cotenant import output_files

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[1] / "native"
SOURCES = (HERE / "note.cpp", NATIVE / "tenant" / "timeline.cpp", NATIVE / "wire" / "clock.cpp")
MOST_NS = 1000  # noted, on any machine that is not overloaded


def measure(compiler: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="cotenant-") as folder:
        program = Path(folder) / "note"
        options = ["-O2", "-std=c++17", "-pthread", f"-I{NATIVE}"]
        subprocess.run([compiler, *options, *map(str, SOURCES), "-o", str(program)], check=True)
        rounds = [json.loads(subprocess.check_output([str(program)])) for _ in range(5)]
    return {name: min(one[name] for one in rounds) for name in rounds[0]}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=output_files.argument, help="write the figures as JSON here")
    options = parser.parse_args()
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if not compiler:
        print("error: there is no C++ compiler (Debian: apt-get install g++)", file=sys.stderr)
        return 1
    found = measure(compiler)
    print("nanoseconds an interval, the least of 5 rounds of 2,000,000")
    print(f"  nobody asks   {found['ns_off']:6.1f}")
    print(f"  noted         {found['ns_on']:6.1f}")
    if options.output:
        options.output.write_text(json.dumps(found, indent=2) + "\n")
    if found["ns_on"] > MOST_NS:
        print(f"error: an interval takes {found['ns_on']:.0f} ns, more than {MOST_NS}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
