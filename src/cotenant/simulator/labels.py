"""Labels of points in a picture that cover neither each other nor a point. Needs matplotlib."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

Point = tuple[str, float, float]  # its name, and where it lies in the axes' units
DOT_PX = 6  # half of a point, with a little air


def put_labels(axis: Any, points: Sequence[Point]) -> None:
    """Each as near to its point as it can be without covering another label or point. The figure is else complete: its
    layout is fixed here."""
    from matplotlib.text import Text

    axis.figure.draw_without_rendering()
    axis.figure.set_layout_engine("none")
    renderer = axis.figure.canvas.get_renderer()
    inside = axis.get_window_extent(renderer)
    pixels = axis.transData.transform([(x, y) for _, x, y in points] or [(1, 1)])
    dots = [Box(x - DOT_PX, y - DOT_PX, x + DOT_PX, y + DOT_PX) for x, y in pixels.tolist()]
    taken = list(dots)
    for names, number in together([name for name, _, _ in points], dots):
        label = axis.annotate(
            names,
            points[number][1:],
            fontsize=8,
            textcoords="offset points",
            xytext=(0, 0),
            ha="center",
            va="center",
            arrowprops={"arrowstyle": "-", "color": "gray", "lw": 0.5, "shrinkA": 0, "shrinkB": 0},
        )
        label.arrow_patch.set_visible(False)
        bounds = Text.get_window_extent(label, renderer)  # without the line
        wide, high = bounds.width / 2, bounds.height / 2
        x, y = pixels[number]
        for distance, degrees in itertools.product(range(0, 400, 8), range(0, 360, 15)):
            # On the border of a box that grows around the point, so that near means near for wide labels too.
            right, up = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            dx, dy = (DOT_PX + wide + distance) * right, (DOT_PX + high + distance) * up
            box = Box(x + dx - wide, y + dy - high, x + dx + wide, y + dy + high)
            if box.is_in(inside.extents) and not any(map(box.covers, taken)):
                label.xyann = (dx * 72 / axis.figure.dpi, dy * 72 / axis.figure.dpi)
                label.arrow_patch.set_visible(distance > 16)
                taken.append(box)
                break


class Box(NamedTuple):
    """In pixels."""

    left: float
    bottom: float
    right: float
    top: float

    def covers(self, other: Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.bottom < other.top
            and other.bottom < self.top
        )

    def is_in(self, other: Sequence[float]) -> bool:
        left, bottom, right, top = other
        return left <= self.left and bottom <= self.bottom and self.right <= right and self.top <= top


def together(names: Sequence[str], dots: Sequence[Box]) -> list[tuple[str, int]]:
    """One label for points that lie on each other: its text, and the number of the first of them."""
    groups: list[list[int]] = []
    for number, dot in enumerate(dots[: len(names)]):
        for group in groups:
            if dots[group[0]].covers(dot):
                group.append(number)
                break
        else:
            groups.append([number])
    found = []
    for group in groups:
        here = [names[number] for number in group]
        lines = [", ".join(here[i : i + 3]) for i in range(0, len(here), 3)]
        found.append((",\n".join(lines), group[0]))
    return found
