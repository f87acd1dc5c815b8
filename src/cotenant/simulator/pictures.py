"""Pictures of outcomes: latencies, slowdown against what was harvested, and SMs over time. Needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cotenant.errors import Problem
from cotenant.simulator.results import Outcome, worst

FORMATS = (".png", ".pdf", ".svg")


def require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise Problem("pictures need matplotlib", "pip install 'cotenant[demo]'") from None


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    """All of it in one file; the format follows from its ending."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = timeline_of(outcomes)
    figure, axes = pyplot.subplots(1, 3, figsize=(17, 4.8))
    draw_cdf(axes[0], outcomes)
    draw_harvest(axes[1], outcomes)
    draw_timeline(axes[2], shown)
    figure.suptitle(f"{outcomes[0].workload} on {outcomes[0].gpu}, {outcomes[0].seconds:g} s simulated")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def timeline_of(outcomes: Sequence[Outcome]) -> Outcome:
    """The last policy named is the one that the reader asks about."""
    return outcomes[-1]


def draw_cdf(axis: Any, outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if not outcome.tenants:
            continue
        tenant = (outcome.production or list(outcome.tenants))[0]
        points = tenant.latency.cdf()
        axis.plot(
            [us / 1000 for us, _ in points],
            [part for _, part in points],
            label=outcome.policy,
            lw=1.4,
            drawstyle="steps-post",
        )
    first = (outcomes[0].production or list(outcomes[0].tenants))[0]
    alone = first.alone.latency.cdf()
    axis.plot(
        [us / 1000 for us, _ in alone],
        [part for _, part in alone],
        "k--",
        label="alone",
        lw=1.4,
        drawstyle="steps-post",
    )
    axis.set_xscale("log")
    axis.set_xlabel(f"latency of {first.name}, ms")
    axis.set_ylabel("part of the requests")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7)


def draw_harvest(axis: Any, outcomes: Sequence[Outcome]) -> None:
    axis.set_title("down and right is better", fontsize=9)
    for outcome in outcomes:
        slowdown = worst(tenant.slowdown_p99 for tenant in outcome.production)
        share = outcome.opportunistic_share
        if math.isnan(slowdown) or math.isnan(share):
            continue
        axis.plot(share, slowdown, "o")
        axis.annotate(
            outcome.policy, (share, slowdown), fontsize=8, xytext=(4, 4), textcoords="offset points"
        )
    axis.set_yscale("log")
    axis.set_xlabel("the others' work, of what they do alone")
    axis.set_ylabel("p99 of production, times alone")
    axis.grid(alpha=0.3, which="both")


def draw_timeline(axis: Any, outcome: Outcome) -> None:
    axis.set_title(f"SMs at work under {outcome.policy}", fontsize=9)
    shown = [tenant for tenant in outcome.tenants if tenant.gpu == 0 and tenant.timeline]
    if shown:
        places = len(shown[0].timeline)
        moments = [outcome.seconds * place / places for place in range(places)]
        axis.stackplot(
            moments, *(tenant.timeline for tenant in shown), labels=[t.name for t in shown], step="post"
        )
        axis.legend(fontsize=7, loc="upper right")
    axis.set_xlabel("seconds")
    axis.set_ylabel("SMs")
