"""Pictures of outcomes: latencies, slowdown against the others' work, and SMs over time. Needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cotenant.errors import Problem
from cotenant.simulator.labels import Point, put_labels
from cotenant.simulator.results import Outcome, TenantOutcome, worst

FORMATS = (".png", ".pdf", ".svg")
MOST_LAYERS = 6
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c564b")
DASHES = ("-", "--", ":", "-.")


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

    with pyplot.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = composed(outcomes)
        figure.savefig(path, dpi=150)
        pyplot.close(figure)


def composed(outcomes: Sequence[Outcome]) -> Any:
    """The figure: two panels over all policies, and a timeline for each."""
    from matplotlib import pyplot

    rows = len(outcomes)
    is_tall = rows > 8  # the two panels then lie one above the other
    figure = pyplot.figure(figsize=(12 if is_tall else 16, max(4.8, 1.0 + 0.95 * rows)), layout="constrained")
    if is_tall:
        grid = figure.add_gridspec(rows, 2, width_ratios=(1, 1.15))
        places = grid[: rows // 2, 0], grid[rows // 2 :, 0]
    else:
        grid = figure.add_gridspec(rows, 3, width_ratios=(1, 1, 1.15))
        places = grid[:, 0], grid[:, 1]
    draw_latencies(figure.add_subplot(places[0]), outcomes)
    harvest = figure.add_subplot(places[1])
    points = draw_harvest(harvest, outcomes)
    draw_timelines([figure.add_subplot(grid[row, -1]) for row in range(rows)], outcomes)
    first = outcomes[0]
    figure.suptitle(f"{first.workload} on {first.gpu}, {first.seconds:g} s simulated")
    put_labels(harvest, points)
    return figure


def say_why_blank(axis: Any, why: str) -> None:
    axis.text(0.5, 0.5, why, transform=axis.transAxes, ha="center", va="center", color="gray")


def look(number: int) -> dict[str, Any]:
    """A policy's line: every one differs from every other in colour or dashes."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number // len(COLOURS) % len(DASHES)],
    }


def measured_tenant(outcome: Outcome) -> TenantOutcome:
    return (outcome.production or list(outcome.tenants))[0]


def draw_latencies(axis: Any, outcomes: Sequence[Outcome]) -> None:
    for number, outcome in enumerate(outcomes):
        draw_steps(axis, measured_tenant(outcome).latency.cdf(), label=outcome.policy, **look(number))
    first = measured_tenant(outcomes[0])
    draw_steps(axis, first.alone.latency.cdf(), label="alone", color="black", linestyle="--")
    if not any(measured_tenant(outcome).latency.cdf() for outcome in outcomes):
        say_why_blank(axis, f"{first.name} answered no request in this time")
    axis.set_xscale("log")
    label_plainly(axis.xaxis)
    axis.set_ylim(0, 1.02)
    axis.set_xlabel(f"latency of {first.name}, ms")
    axis.set_ylabel("part of the requests")
    axis.grid(alpha=0.3)
    many = len(outcomes) > 8
    axis.legend(fontsize=6.5 if many else 8, ncols=2 if many else 1, loc="lower right", framealpha=0.9)


def label_plainly(scale: Any) -> None:
    """1, 2, 5, 10 instead of powers, and nothing in between."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    scale.set_major_locator(LogLocator(subs=(1, 2, 5)))
    scale.set_major_formatter(StrMethodFormatter("{x:g}"))
    scale.set_minor_formatter(NullFormatter())


def draw_steps(axis: Any, points: Sequence[tuple[float, float]], **style: Any) -> None:
    axis.plot(
        [us / 1000 for us, _ in points], [part for _, part in points], lw=1.5, drawstyle="steps-post", **style
    )


def draw_harvest(axis: Any, outcomes: Sequence[Outcome]) -> list[Point]:
    """The points: policy, the others' work, production's slowdown."""
    axis.set_title("right and down is better", fontsize=9)
    axis.set_yscale("log")
    label_plainly(axis.yaxis)
    axis.set_xlabel("the others' work, of what they do alone")
    axis.set_ylabel("p99 of production, times alone")
    axis.grid(alpha=0.3, which="both")
    points = []
    for number, outcome in enumerate(outcomes):
        slowdown = worst(tenant.slowdown_p99 for tenant in outcome.production)
        share = outcome.opportunistic_share
        if math.isnan(slowdown) or math.isnan(share):
            continue
        axis.plot(share, slowdown, "o", color=look(number)["color"])
        points.append((outcome.policy, share, slowdown))
    if not points:
        say_why_blank(
            axis, "nothing to compare: this needs answers of a production job,\nand other jobs beside it"
        )
    axis.set_xlim(-0.03, max([1.0, *(share for _, share, _ in points)]) + 0.03)
    least, most = axis.get_ylim()
    axis.set_ylim(min(least, 0.9), max(most * 1.2, 2))  # equal outcomes shall look equal
    return points


def draw_timelines(axes: Sequence[Any], outcomes: Sequence[Outcome]) -> None:
    for axis, outcome in zip(axes, outcomes, strict=True):
        begin, length = outcome.timeline_span_s
        tenants = [tenant for tenant in outcome.tenants if tenant.gpu == 0 and tenant.timeline]
        layers = [(tenant.name, tenant.timeline) for tenant in tenants[:MOST_LAYERS]]
        rest = tenants[MOST_LAYERS:]
        if rest:
            both = zip(*(tenant.timeline for tenant in rest), strict=True)
            layers.append((f"{len(rest)} more", tuple(sum(place) for place in both)))
        if layers:
            places = len(layers[0][1])
            moments = [begin + length * place / places for place in range(places)]
            names = [name for name, _ in layers]
            colours = [COLOURS[i % len(COLOURS)] for i in range(len(layers))]
            axis.stackplot(
                moments, *(line for _, line in layers), labels=names, colors=colours, step="post", lw=0
            )
        if not any(map(any, (line for _, line in layers))):
            say_why_blank(axis, "nothing ran here at that time")
        axis.set_xlim(begin, begin + length)
        axis.set_ylabel(f"SMs\n{outcome.policy}", fontsize=8)
        axis.tick_params(labelbottom=axis is axes[-1], labelsize=7)
    if axes[0].get_legend_handles_labels()[0]:
        axes[0].legend(fontsize=7, loc="lower right", bbox_to_anchor=(1, 1), ncols=4, frameon=False)
    axes[-1].set_xlabel("seconds")
