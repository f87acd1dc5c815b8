"""How guard converges after a neighbour arrives, leaves and changes: a picture, from the simulator.

    python bench/guard/converge.py docs/images/guard.png      # ten seconds; needs matplotlib
    python bench/guard/live.py guard-live.png                 # the same on this machine's GPU: 50 s

A production job with a promise of 10 %; a neighbour of short kernels comes after 4 s and leaves; one of long kernels
comes in its place, leaves too, and the first kind comes again. The upper panel has production's mean service time in
windows of WINDOW_S against alone, the middle one guard's position, the lower one the neighbours' work.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, NamedTuple

from cotenant.classes import TenantClass
from cotenant.policies.guard.policy import Guard
from cotenant.policies.guard.position import STRICT
from cotenant.policies.interface import Knobs, View
from cotenant.simulator import ArrivalKind, Arrivals, Job, Op, OpKind, Study, Workload

SECONDS, WINDOW_S = 40.0, 1.0
PROMISE = 0.10
SERVICE = Job(
    "service",
    TenantClass.production,
    ops=(Op(kind=OpKind.graph, us=1400, sms=0.7),),
    arrivals=Arrivals(ArrivalKind.poisson, rate=150),
    slowdown=PROMISE,
)


def neighbour(name: str, kernel_us: float, begins_s: float, requests: int) -> Job:
    ops = (Op(us=kernel_us, repeat=round(40_000 / kernel_us)),)
    return Job(
        name,
        TenantClass.opportunistic,
        ops=ops,
        waits=False,
        trains=True,
        begins_s=begins_s,
        requests=requests,
    )


WORKLOAD = Workload(
    "converge",
    (
        SERVICE,
        neighbour("short kernels", 100, 4, 150),
        neighbour("long kernels", 3000, 16, 150),
        neighbour("short kernels again", 100, 29, 0),
    ),
)


@dataclass(frozen=True)
class Tick:
    at_s: float
    position: float
    busy_us: float  # production's, and its operations
    operations: int
    used_us: float  # the neighbours'
    here: frozenset[str]


class Watched(Guard):
    """guard, and what it saw and did at every tick."""

    name = "watched"
    ticks: ClassVar[list[Tick]] = []

    def tick(self, view: View) -> Knobs:
        knobs = super().tick(view)
        production = view.of_class(TenantClass.production)
        others = [one for one in view.tenants if one not in production]
        if production:
            self.ticks.append(
                Tick(
                    view.now_us / 1e6,
                    self.jobs[production[0].id].position if others else STRICT,
                    production[0].busy_us,
                    production[0].operations,
                    sum(one.used_us for one in others),
                    frozenset(WORKLOAD.jobs[one.id].name for one in others),
                )
            )
        return knobs


class Window(NamedTuple):
    at_s: float  # its middle
    cost_us: float  # busy time of an operation
    used: float  # the neighbours' share of the time; not a number: one came or went
    is_alone: bool


def windows(ticks: Sequence[Tick]) -> Iterator[Window]:
    first = ticks[0]
    for tick in ticks:
        if tick.at_s - first.at_s < WINDOW_S:
            continue
        if operations := tick.operations - first.operations:
            seconds = tick.at_s - first.at_s
            used = max(tick.used_us - first.used_us, 0.0) if tick.here == first.here else float("nan")
            yield Window(
                (tick.at_s + first.at_s) / 2,
                (tick.busy_us - first.busy_us) / operations,
                used / seconds / 1e6,
                not tick.here | first.here,
            )
        first = tick


def draw(ticks: Sequence[Tick], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = list(windows(ticks))
    alone = median(window.cost_us for window in found if window.is_alone)
    with pyplot.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure, axes = pyplot.subplots(3, 1, figsize=(9, 5.4), sharex=True, layout="constrained")
        middles = [one.at_s for one in found]
        axes[0].plot(middles, [one.cost_us / alone - 1 for one in found], ".-", color="#0072b2", lw=1)
        axes[0].axhline(PROMISE, color="black", ls="--", lw=1, label=f"promise: {PROMISE:.0%}")
        axes[0].set_ylabel(f"production's slowdown,\nmean of {WINDOW_S:g} s")
        axes[0].yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes[0].legend(frameon=False, loc="upper right")
        axes[1].plot([one.at_s for one in ticks], [one.position for one in ticks], color="#d55e00", lw=1)
        axes[1].set_yticks([0, 1, 2], ["shut", "in gaps", "overlap"])
        axes[1].set_ylim(-0.1, 2.1)
        axes[1].set_ylabel("guard's position")
        axes[2].plot(middles, [one.used for one in found], ".-", color="#009e73", lw=1)
        axes[2].set_ylim(0, 1)
        axes[2].yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes[2].set_ylabel("neighbours' part\nof the GPU's time")
        axes[2].set_xlabel("seconds")
        for axis in axes:
            mark_neighbours(axis, ticks, is_named=axis is axes[0])
            axis.grid(alpha=0.3)
        figure.savefig(path, dpi=150)
        pyplot.close(figure)


def mark_neighbours(axis: Any, ticks: Sequence[Tick], is_named: bool) -> None:
    for name in {name for one in ticks for name in one.here}:
        there = [one.at_s for one in ticks if name in one.here]
        axis.axvspan(there[0], there[-1], alpha=0.08, color="#7f7f7f", lw=0)
        if is_named:
            axis.text((there[0] + there[-1]) / 2, 0.02, name, ha="center", va="bottom", fontsize=8,
                      transform=axis.get_xaxis_transform())  # fmt: skip


def watch(seconds: float) -> list[Tick]:
    Watched.ticks.clear()
    Study(WORKLOAD, seconds=seconds).run(Watched)
    return list(Watched.ticks)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("picture", type=Path, help=".png, .pdf or .svg")
    asked = parser.parse_args()
    ticks = watch(SECONDS)
    draw(ticks, asked.picture)
    show(ticks)


def show(ticks: Sequence[Tick]) -> None:
    for one in windows(ticks):
        print(f"{one.at_s:5.1f} s  {one.cost_us:8.1f} us an operation  neighbours {one.used:4.0%}")


if __name__ == "__main__":
    main()
