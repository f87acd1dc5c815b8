"""latency.png: what sharing does to the production job's requests, and what the other job gets for it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from cotenant.demo.figures import PHASES, Measurement, percentile

COLOURS = {"alone": "#5b6770", "shared": "#d1495b", "cotenant": "#1b7fbd"}
LABELS = {"alone": "alone", "shared": "shared", "cotenant": "with Cotenant"}
_TITLE_WIDTH = 82  # characters that fit at its size
_INK = "#22292f"
_FAINT = "#c9ced3"


def draw(measurement: Measurement, path: Path) -> None:
    compose(measurement).savefig(path, format="png")


def compose(measurement: Measurement) -> Figure:
    figure = Figure(figsize=(11, 6), dpi=130, facecolor="white")
    latency, work = figure.subplots(1, 2, width_ratios=[3.4, 1])
    _draw_latency(latency, measurement)
    _draw_work(work, measurement)
    figure.suptitle(
        textwrap.fill(measurement.conclusion(), _TITLE_WIDTH),
        x=0.06,
        y=0.97,
        ha="left",
        fontsize=15,
        fontweight="bold",
        color=_INK,
    )
    kind = "software GPU modelled on " if measurement.software_gpu else ""
    figure.text(0.06, 0.02, f"{kind}{measurement.gpu}", fontsize=10, color=COLOURS["alone"])
    figure.subplots_adjust(left=0.075, right=0.97, top=0.83, bottom=0.15, wspace=0.16)
    return figure


def _draw_latency(axes: Axes, measurement: Measurement) -> None:
    axes.set_title("How long requests take", loc="left", fontsize=12.5, color=_INK)
    axes.set_xscale("log")
    slowest = 0.0
    for phase in PHASES:
        ordered = sorted(measurement.phases[phase].latencies_ms)
        shares = [100.0 * (i + 1) / len(ordered) for i in range(len(ordered))]
        tail = percentile(ordered, 99)
        slowest = max(slowest, ordered[-1])
        axes.step(
            ordered,
            shares,
            where="post",
            color=COLOURS[phase],
            linewidth=2.8,
            label=f"{LABELS[phase]}:  {_milliseconds(tail)}",
        )
        axes.plot([tail, tail], [0, 99], color=COLOURS[phase], linewidth=1.1, linestyle=(0, (2, 2)))
        axes.plot([tail], [99], "o", color=COLOURS[phase], markersize=8)
    quickest = min(min(measurement.phases[phase].latencies_ms) for phase in PHASES)
    # Room at the right, where every curve has ended, for the legend.
    axes.set_xlim(quickest * 0.9, slowest * (slowest / quickest) ** 0.42)
    axes.set_ylim(0, 104)
    axes.axhline(99, color=_FAINT, linewidth=1, zorder=0)
    legend = axes.legend(
        title="99 % of requests take at most",
        loc="lower right",
        bbox_to_anchor=(1.0, 0.04),
        alignment="left",
        fontsize=12.5,
        title_fontproperties={"size": 12.5},
        labelcolor="linecolor",
        framealpha=0.95,
        edgecolor="none",
    )
    for text in legend.get_texts():
        text.set_fontweight("bold")
    axes.set_xlabel("latency from the intended arrival, ms (logarithmic)", fontsize=11.5, color=_INK)
    axes.set_ylabel("requests answered by then, %", fontsize=11.5, color=_INK)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", color=_FAINT, linewidth=0.6, alpha=0.7)
    _plain_frame(axes)


def _draw_work(axes: Axes, measurement: Measurement) -> None:
    axes.set_title("Work of the other job", loc="left", fontsize=12.5, color=_INK)
    for place, phase in enumerate(("shared", "cotenant")):
        share = 100.0 * measurement.figures(phase).opportunistic_share
        axes.bar([place], [share], width=0.62, color=COLOURS[phase])
        axes.annotate(
            f"{share:.0f} %",
            (place, share),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=12,
            fontweight="bold",
            color=COLOURS[phase],
        )
    axes.set_xticks([0, 1], ["shared", "with\nCotenant"], fontsize=11, color=_INK)
    axes.set_ylim(0, 112)
    axes.set_yticks([0, 25, 50, 75, 100])
    axes.set_ylabel("% of what it does alone", fontsize=11.5, color=_INK)
    _plain_frame(axes)


def _plain_frame(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_FAINT)
    axes.tick_params(colors=_INK, which="both", labelsize=11)


def _milliseconds(value: float) -> str:
    return f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"
