"""Labels in a picture can be read: none covers another, or a point, or leaves the panel."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from cotenant.simulator.labels import DOT_PX, Box, Point, put_labels

POLICIES = 18  # as many as there are


def crowded(seed: int) -> list[Point]:
    """Most policies do nearly the same: their points lie beside or on each other."""
    chance = random.Random(seed)
    middles = [(chance.uniform(0, 1), chance.uniform(1, 20)) for _ in range(3)]
    points = []
    for number in range(POLICIES):
        x, y = chance.choice(middles)
        near = chance.choice([0, 0.01, 0.05])
        points.append(
            (f"policy-{number}", x + chance.uniform(-near, near), y * (1 + chance.uniform(-near, near)))
        )
    return points


def drawn(points: list[Point]) -> tuple[list[Box], list[Box], Box, list[str]]:
    """Where the labels are, where the points are, and where the panel is."""
    figure = pytest.importorskip("matplotlib.figure").Figure(figsize=(16, 4.8), layout="constrained")
    agg: Any = pytest.importorskip("matplotlib.backends.backend_agg")
    agg.FigureCanvasAgg(figure)
    axis, *_ = figure.subplots(1, 3)
    axis.set_yscale("log")
    for _, x, y in points:
        axis.plot(x, y, "o")
    put_labels(axis, points)
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    # The line to its point is no part of a label.
    plain: Any = pytest.importorskip("matplotlib.text").Text
    labels = [Box(*plain.get_window_extent(text, renderer).extents.tolist()) for text in axis.texts]
    dots = [
        Box(x - DOT_PX, y - DOT_PX, x + DOT_PX, y + DOT_PX)
        for x, y in axis.transData.transform([point[1:] for point in points]).tolist()
    ]
    panel = Box(*axis.get_window_extent(renderer).extents.tolist())
    return labels, dots, panel, [text.get_text() for text in axis.texts]


@pytest.mark.parametrize("seed", range(4))
def test_no_label_covers_another_or_a_point(seed: int) -> None:
    labels, dots, panel, texts = drawn(crowded(seed))
    assert not [pair for pair in itertools.combinations(labels, 2) if pair[0].covers(pair[1])]
    assert not [dot for dot in dots if any(label.covers(dot) for label in labels)]
    assert all(label.is_in(panel) for label in labels)
    named = {name for text in texts for name in text.replace("\n", " ").split(", ")}
    assert {name.strip() for name in named} == {f"policy-{number}" for number in range(POLICIES)}


def test_points_on_each_other_have_one_label() -> None:
    *_, texts = drawn([("strict", 0.5, 1.0), ("guard", 0.5, 1.0), ("mps", 0.9, 4.0)])
    assert texts == ["strict, guard", "mps"]


def test_boxes_that_only_touch_do_not_cover_each_other() -> None:
    box = Box(0, 0, 2, 2)
    for beside in (Box(2, 0, 4, 2), Box(-2, 0, 0, 2), Box(0, 2, 2, 4), Box(0, -2, 2, 0)):
        assert not box.covers(beside) and not beside.covers(box)
    for over in (Box(1.9, 0, 4, 2), Box(0, 1.9, 2, 4), Box(0.5, 0.5, 1, 1), box):
        assert box.covers(over) and over.covers(box)
    assert box.is_in(box) and not Box(-0.1, 0, 2, 2).is_in(box) and not Box(0, 0, 2, 2.1).is_in(box)
