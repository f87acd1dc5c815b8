"""The headlines of three papers, and what the simulator says of workloads like theirs.

python bench/simulator/headlines.py                  # about three minutes; Markdown, as in docs/simulator.md
python bench/simulator/headlines.py orion --seeds 10
python bench/simulator/headlines.py variants         # Orion's mixes with one thing changed: where differences come from

Their machines and models are not ours, so what can be compared is who is ahead of whom, and by about how much.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from cotenant.policies.interface import Knobs, View
from cotenant.policies.reef import AHEAD, Reef
from cotenant.simulator import Op, Outcome, Study, Workload, find_workload


class ReefWithoutKilling(Reef):
    """What is left of REEF on a GPU whose kernels cannot be killed, as in Orion's comparison: the padding."""

    name = "reef, no kill"

    def tick(self, view: View) -> Knobs:
        return Knobs(rule=self.rule, parameters=(AHEAD, 1.0))


class ReefByPaddingAlone(ReefWithoutKilling):
    name = "reef, no kill, no priorities"
    priorities = False


@dataclasses.dataclass(frozen=True)
class Figure:
    title: str
    of: Callable[[Outcome], float]
    form: str


@dataclasses.dataclass(frozen=True)
class Headline:
    paper: str
    workloads: tuple[Workload, ...]
    policies: tuple[Any, ...]
    figures: tuple[Figure, ...]
    seconds: float | None = None


def changed(workload: str, what: str, change: Callable[[Op], Op]) -> Workload:
    """A shipped workload whose second job has other operations."""
    found = find_workload(workload)
    first, second = found.jobs
    other = dataclasses.replace(second, ops=tuple(change(op) for op in second.ops))
    return dataclasses.replace(found, name=f"{workload}, {what}", jobs=(first, other))


def times(factor: float, field: str) -> Callable[[Op], Op]:
    return lambda op: dataclasses.replace(op, **{field: getattr(op, field) * factor})


P99 = Figure("p99, times alone", lambda outcome: outcome.production[0].slowdown_p99, "{:.2f}")
PRODUCTION = Figure("production's work", lambda outcome: outcome.production[0].share, "{:.1%}")
OTHERS = Figure("the others' work", lambda outcome: outcome.opportunistic_share, "{:.0%}")
COMPLETION = Figure("mean completion, s", lambda outcome: outcome.completion_s, "{:.1f}")

HEADLINES = {
    "orion": Headline(
        "Orion",
        (find_workload("orion-resnet50"), find_workload("orion-mobilenet")),
        ("timeslice", "mps", ReefWithoutKilling, "reef", "orion", "strict", "guard"),
        (P99, OTHERS),
    ),
    "tgs": Headline(
        "TGS",
        (find_workload("tgs"),),
        ("timeslice", "mps", "antman", "tgs", "strict", "guard"),
        (PRODUCTION, OTHERS),
        seconds=900,
    ),
    "salus": Headline(
        "Salus",
        (find_workload("salus"),),
        ("salus-fifo", "mps", "salus-pack", "salus-fair", "salus-rr", "salus-srtf"),
        (COMPLETION,),
    ),
}
VARIANTS = Headline(
    "Orion's mixes with one thing about the others changed",
    (
        find_workload("orion-resnet50"),
        changed("orion-resnet50", "half the SMs", times(0.5, "sms")),
        changed("orion-resnet50", "all SMs", lambda op: dataclasses.replace(op, sms=1.0)),
        find_workload("orion-mobilenet"),
        changed("orion-mobilenet", "half the SMs", times(0.5, "sms")),
        changed("orion-mobilenet", "half as long", times(0.5, "us")),
        changed("orion-mobilenet", "twice as long", times(2.0, "us")),
        changed("orion-mobilenet", "no bandwidth", times(0.0, "gbps")),
    ),
    ("mps", ReefByPaddingAlone, ReefWithoutKilling, "reef", "orion"),
    (P99, OTHERS),
)


def spread(values: Sequence[float], form: str) -> str:
    """The mean; where seeds differ by more than rounding hides, also the least and the most."""
    mean, least, most = (
        form.format(value) for value in (sum(values) / len(values), min(values), max(values))
    )
    return mean if least == most else f"{mean} [{least}, {most}]"


def rows(headline: Headline, workload: Workload, seeds: int) -> list[str]:
    studies = [Study(workload, seconds=headline.seconds, seed=seed) for seed in range(seeds)]
    lines = []
    for policy in headline.policies:
        outcomes = [study.run(policy) for study in studies]
        cells = [
            spread([figure.of(outcome) for outcome in outcomes], figure.form) for figure in headline.figures
        ]
        name = policy if isinstance(policy, str) else policy.name
        lines.append(f"| {workload.name} | {name} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "papers", nargs="*", help=f"of {', '.join(HEADLINES)}, or variants; all papers if none is named"
    )
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    known = {**HEADLINES, "variants": VARIANTS}
    unknown = [name for name in arguments.papers if name not in known]
    if unknown or arguments.seeds < 1:
        parser.error(f"no paper '{unknown[0]}'" if unknown else "at least one seed")
    for name in arguments.papers or HEADLINES:
        headline = known[name]
        titles = " | ".join(figure.title for figure in headline.figures)
        print(f"{headline.paper}\n\n| workload | policy | {titles} |")
        print(f"| --- | --- | {' | '.join('--:' for _ in headline.figures)} |")
        for workload in headline.workloads:
            for line in rows(headline, workload, arguments.seeds):
                print(line, flush=True)
        print()


if __name__ == "__main__":
    main()
