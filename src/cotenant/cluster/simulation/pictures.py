"""A picture of a simulated cluster: completion times, utilisation over time, utilisation against broken promises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cotenant.cluster.simulation.outcome import ClusterOutcome
from cotenant.simulator.labels import Point, put_labels
from cotenant.simulator.pictures import label_plainly, look, say_why_blank


def draw(outcomes: Sequence[ClusterOutcome], path: Path) -> None:
    """All of it in one file; the format follows from its ending."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = composed(outcomes)
        figure.savefig(path, dpi=150)
        pyplot.close(figure)


def composed(outcomes: Sequence[ClusterOutcome]) -> Any:
    from matplotlib import pyplot

    figure, (one, two, three) = pyplot.subplots(1, 3, figsize=(16, 4.8), layout="constrained")
    draw_completions(one, outcomes)
    draw_utilisation(two, outcomes)
    points = draw_promises(three, outcomes)
    first = outcomes[0]
    figure.suptitle(f"{first.log} on {first.gpus} GPUs, {first.services} services, shared by {first.sharing}")
    put_labels(three, points)
    return figure


def draw_completions(axis: Any, outcomes: Sequence[ClusterOutcome]) -> None:
    for number, outcome in enumerate(outcomes):
        hours = sorted(max(seconds, 1.0) / 3600 for seconds in outcome.completions())
        whole = len(hours) + outcome.never_ran
        parts = [(place + 1) / whole for place in range(len(hours))]
        axis.plot(hours, parts, lw=1.5, label=outcome.policy, **look(number))
    if not any(outcome.jobs for outcome in outcomes):
        say_why_blank(axis, "no job ended")
    axis.set_xscale("log")
    label_plainly(axis.xaxis)
    axis.set_ylim(0, 1.02)
    axis.set_xlabel("completion, hours from submission")
    axis.set_ylabel("part of the jobs")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7, loc="lower right", framealpha=0.9)


def draw_utilisation(axis: Any, outcomes: Sequence[ClusterOutcome]) -> None:
    for number, outcome in enumerate(outcomes):
        axis.plot(
            [hour for hour, _, _ in outcome.timeline],
            [100 * part for _, part, _ in outcome.timeline],
            lw=1.2,
            label=outcome.policy,
            **look(number),
        )
    axis.set_ylim(0, 102)
    axis.set_xlabel("hours")
    axis.set_ylabel("GPUs busy, %")
    axis.grid(alpha=0.3)


def draw_promises(axis: Any, outcomes: Sequence[ClusterOutcome]) -> list[Point]:
    """The points: policy, utilisation, broken promises."""
    axis.set_title("right and down is better", fontsize=9)
    axis.set_xlabel("GPUs busy, %")
    axis.set_ylabel("production's time with a broken promise, %")
    axis.grid(alpha=0.3)
    points = []
    for number, outcome in enumerate(outcomes):
        if math.isnan(outcome.broken):
            continue
        x, y = 100 * outcome.utilisation, 100 * outcome.broken
        axis.plot(x, y, "o", color=look(number)["color"])
        points.append((outcome.policy, x, y))
    if not points:
        say_why_blank(axis, "nobody was promised anything")
    axis.set_xlim(0, 103)
    axis.set_ylim(bottom=-1, top=max([10.0, *(1.2 * y for _, _, y in points)]))
    return points
