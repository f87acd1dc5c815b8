"""A picture of a profile: a roofline, and how much of the GPU each kernel fills. Needs matplotlib.

The roofline is in shares of the GPU's own peaks, so it needs no table of GPUs: up goes the compute throughput, to the
right the compute throughput by the memory throughput. The roof is 1 on the right, and falls with the memory's
bandwidth on the left. Only kernels of which both are known are in it; that takes counters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cotenant.profile.columns import KernelClass
from cotenant.profile.kernel import Kernel
from cotenant.profile.store import Profile

FORMATS = (".png", ".pdf", ".svg")
COLOURS = {
    KernelClass.compute: "#d55e00",
    KernelClass.memory: "#0072b2",
    KernelClass.copy: "#009e73",
    KernelClass.unknown: "#7f7f7f",
}
LEAST = 1e-3  # share of a peak that the picture shows
MOST_NAMED = 5


def draw(profile: Profile, path: Path) -> None:
    """The format follows from the file's ending."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = composed(profile)
        figure.savefig(path, dpi=150)
        pyplot.close(figure)


def composed(profile: Profile) -> Any:
    from matplotlib import pyplot

    timed = [one for one in profile.kernels.values() if one.samples and one.total_us > 0]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 5.2), layout="constrained")
    whole = sum(one.total_us for one in timed) or 1.0
    draw_roofline(left, [one for one in timed if place(one, profile.gpu.memory_gbps)], profile, whole)
    draw_fill(right, [one for one in timed if one.sms], profile, whole)
    for kind, colour in COLOURS.items():
        right.plot([], [], "o", color=colour, label=kind.name)
    right.legend(frameon=False, loc="lower right")
    figure.suptitle(
        f"{profile.gpu.name}: {len(timed)} kernels, {whole / 1e6:.2f} s on the GPU; areas are time"
    )
    return figure


def place(one: Kernel, gpu_gbps: float) -> tuple[float, float] | None:
    """Its place in the roofline; None: not both throughputs are known."""
    columns = one.columns
    if columns.compute is None or columns.memory_gbps is None or not gpu_gbps:
        return None
    compute, memory = max(columns.compute, LEAST), max(columns.memory_gbps / gpu_gbps, LEAST)
    return compute / memory, compute


def area(one: Kernel, whole_us: float) -> float:
    return float(12 + 900 * one.total_us / whole_us)


def draw_roofline(axis: Any, found: list[Kernel], profile: Profile, whole_us: float) -> None:
    from cotenant.profile import names

    axis.set(xscale="log", yscale="log", xlim=(LEAST, 1 / LEAST), ylim=(LEAST, 2))
    axis.plot([LEAST, 1, 1 / LEAST], [LEAST, 1, 1], color="black", linewidth=1)
    axis.set_xlabel("compute by memory throughput, both as shares of the GPU's peak")
    axis.set_ylabel("compute throughput, share of peak")
    axis.set_title("roofline")
    for one in sorted(found, key=lambda one: -one.total_us):
        at = place(one, profile.gpu.memory_gbps)
        assert at is not None
        axis.scatter(
            *at, s=area(one, whole_us), color=COLOURS[one.columns.kernel_class], alpha=0.6, linewidths=0
        )
    for one in sorted(found, key=lambda one: -one.total_us)[:MOST_NAMED]:
        at = place(one, profile.gpu.memory_gbps)
        assert at is not None
        axis.annotate(names.short(one.name)[:40], at, fontsize=6)
    if not found:
        why = "no kernel has both throughputs:\ncotenant profile --source ncu measures them"
        axis.text(0.5, 0.5, why, transform=axis.transAxes, ha="center", va="center", color="#7f7f7f")


def draw_fill(axis: Any, found: list[Kernel], profile: Profile, whole_us: float) -> None:
    axis.set(yscale="log", xlim=(0, 1.05))
    axis.set_xlabel("SMs that it fills, share of the GPU's")
    axis.set_ylabel("time of one launch, us")
    axis.set_title("how much of the GPU kernels fill")
    for one in found:
        share = one.sms / profile.gpu.sms if profile.gpu.sms else 0.0
        axis.scatter(
            share,
            one.mean_us,
            s=area(one, whole_us),
            color=COLOURS[one.columns.kernel_class],
            alpha=0.6,
            linewidths=0,
        )
