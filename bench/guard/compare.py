"""guard beside the published policies, in the shipped workloads: production's p99 times alone, and the others' work.

    python bench/guard/compare.py                      # every workload: two minutes
    python bench/guard/compare.py --write              # the same, into docs/policies.md
    python bench/guard/compare.py README tgs --seconds 20

A published policy is ahead of guard where it keeps the same promise and is better on both axes. Policies whose contexts
run together, as in MPS or in one process, are compared with guard in an MPS daemon (guard-spatial), the others with
guard by turns. Where production states no promise, 5 % is what guard may cost it. reef is in the table, but is not
compared: it kills kernels, which no NVIDIA driver does.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cotenant.policies import registry
from cotenant.simulator import Outcome, Study, Workload, find_workload
from cotenant.simulator.results import worst
from cotenant.simulator.workload_file import from_items

TREE = Path(__file__).parents[2]
PAGE = TREE / "docs" / "policies.md"
BEGIN, END = "<!-- Written by bench/guard/compare.py. -->", "<!-- The end of what it has written. -->"

OURS = {"timeslice": "guard", "together": "guard-spatial"}  # by how contexts share the GPU
PUBLISHED = ("timeslice", "tgs", "antman", "gemini", "mps", "orion", "reef", "muxflow", "chimera", "paella")
# The README's own example is two recorded jobs.
README = ("examples/traces/encoder.trace", "examples/traces/gpt.trace")
WORKLOADS = (
    "README",
    "orion-resnet50",
    "orion-mobilenet",
    "disb-a",
    "serve-and-train",
    "tgs",
    "bursts",
    "promise",
    "promises",
)
NOT_ON_NVIDIA = ("reef",)
SECONDS = 20.0
UNSTATED = 0.05  # what production may be slowed down by where it states no promise
P99, WORK = 0.01, 0.01  # smaller differences are none


@dataclass(frozen=True)
class Figures:
    p99: float  # of production, times alone: the worst of them
    work: float  # of the others, of what they do alone
    keeps: bool  # every promise, in the mean over the whole time

    def is_ahead_of(self, ours: Figures) -> bool:
        return self.keeps and self.p99 < ours.p99 - P99 and self.work > ours.work + WORK

    def __str__(self) -> str:
        shown = f"{self.p99:.2f}, {self.work:.0%}"
        return shown if self.keeps else f"*{shown}*"


def workload(name: str) -> Workload:
    return from_items(tuple(str(TREE / one) for one in README)) if name == "README" else find_workload(name)


def figures(name: str, policies: Sequence[str], seconds: float) -> dict[str, Figures]:
    found = workload(name)
    study = Study(found, seconds=seconds)
    promises = {job.name: job.slowdown or UNSTATED for job in found.jobs}

    def of(outcome: Outcome) -> Figures:
        keeps = all(
            one.service.mean_us <= (1 + promises[one.name]) * one.alone.service.mean_us
            for one in outcome.production
        )
        p99 = worst(one.slowdown_p99 for one in outcome.production)
        return Figures(p99, outcome.opportunistic_share, keeps)

    return {policy: of(study.run(policy)) for policy in policies}


def ahead(found: dict[str, Figures]) -> list[str]:
    """The published policies that are ahead of ours."""
    return [
        policy
        for policy, one in found.items()
        if policy not in (*OURS.values(), *NOT_ON_NVIDIA)
        and one.is_ahead_of(found[OURS[registry.find(policy).sharing]])
    ]


def table(rows: dict[str, dict[str, Figures]]) -> list[str]:
    policies = list(next(iter(rows.values())))
    lines = [f"| workload | {' | '.join(policies)} |", f"| --- |{' --: |' * len(policies)}"]
    lines += [
        f"| {name} | {' | '.join(str(found[one]) for one in policies)} |" for name, found in rows.items()
    ]
    return lines


def write(lines: Sequence[str]) -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text("\n".join([f"{before}{BEGIN}", "", *lines, "", f"{END}{after}"]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), metavar="WORKLOAD")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of virtual time")
    parser.add_argument("--write", action="store_true", help="into docs/policies.md")
    asked = parser.parse_args()
    rows = {
        name: figures(name, (*OURS.values(), *PUBLISHED), asked.seconds)
        for name in asked.workloads or list(WORKLOADS)
    }
    lines = table(rows)
    found = [f"{policy} in {name}" for name, row in rows.items() for policy in ahead(row)]
    said = f"Ahead of `guard` on both axes: {', '.join(found) or 'none'}."
    print("\n".join([*lines, "", said]))
    if asked.write:
        write([*lines, "", said])


if __name__ == "__main__":
    main()
