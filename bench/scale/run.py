"""How the cost grows with the number of tenants, streams and allocations. Each part is a file beside this one.

idle     CPU time of 1, 16, 64 and 256 idle tenants, in a user's file and in an administrator's folder
calls    what the interposer adds to a launch, to an operation after 10,000 streams, and to a million allocations

python bench/scale/run.py                                  # both, about three minutes
python bench/scale/run.py --part calls --tenants 1 64 --allocations 10000
python bench/scale/run.py --part idle --seconds 5 -o scale.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from cotenant import output_files

PARTS = ("idle", "calls")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=PARTS, nargs="+", default=PARTS, dest="parts")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long idle tenants are measured")
    parser.add_argument("--tenants", type=int, nargs="+", default=[1, 16, 64, 256])
    parser.add_argument("--streams", type=int, default=10_000, help="made and destroyed; default 10000")
    parser.add_argument("--allocations", type=int, default=1_000_000, help="default 1000000")
    parser.add_argument("-o", "--output", type=output_files.argument, help="all figures as JSON")
    options = parser.parse_args(words)
    figures: dict[str, Any] = {}
    missed = 0
    if "idle" in options.parts:
        import idle

        found = idle.measure(options.tenants, options.seconds)
        figures["idle"] = [asdict(figure) for figure in found]
        missed += sum(figure.is_missed for figure in found)
    if "calls" in options.parts:
        import calls

        figures["calls"] = calls.measure(options.tenants, options.streams, options.allocations)
    if options.output:
        options.output.write_text(json.dumps(figures, indent=2))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
