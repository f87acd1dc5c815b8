"""The figures as Prometheus has them: a family for each, in base units, and the labels of its series.

Nothing here is about one figure: figures.py says of each whether it is a counter, a gauge, a label or text.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from prometheus_client.core import Metric

from cotenant.figures import FIGURES, Distribution, Figure, Kind, Of

# The figure's unit, and how many of Prometheus' units one of it is.
UNITS = {
    "seconds": ("seconds", 1.0),
    "us": ("seconds", 1e-6),
    "bytes": ("bytes", 1.0),
    "ratio": ("ratio", 1.0),
    "MHz": ("hertz", 1e6),
    "W": ("watts", 1.0),
}
ENDINGS = ("_seconds", "_us", "_bytes", "_mhz", "_w")
PREFIXES = {Of.tenant: "cotenant_tenant_", Of.on_gpu: "cotenant_tenant_", Of.gpu: "cotenant_gpu_"}
LABELS = {"uuid": "UUID"}  # as DCGM calls them
LONGEST_LABEL = 200
DIGITS = 9  # a nanosecond; 100 us are 0.0001 s and not 0.00009999999999999999

Labels = Mapping[str, str]

SERVED = tuple(figure for figure in FIGURES if figure.kind not in (Kind.label, Kind.unserved))


def label_name(figure: Figure) -> str:
    return LABELS.get(figure.name, figure.name)


def family_name(figure: Figure) -> str:
    """Without the `_total` that the series of a counter have."""
    name = figure.name
    unit = UNITS.get(figure.unit)
    if unit and figure.kind is not Kind.text:
        for ending in ENDINGS:
            name = name.removesuffix(ending)
        name = f"{name}_{unit[0]}"
    return PREFIXES[figure.of] + name


def series_name(figure: Figure) -> str:
    return family_name(figure) + ("_total" if figure.kind is Kind.counter else "")


class Families:
    """All families; one without series is there too, so that a reader finds its name and its meaning."""

    def __init__(self) -> None:
        self.metrics = {figure.name: empty(figure) for figure in SERVED}
        self.known: set[tuple[str, frozenset[tuple[str, str]]]] = set()

    def add(self, of: Of, seen: Any, labels: Labels) -> None:
        """The figures of a tenant, of a tenant on a GPU or of a GPU. What is not known has no series."""
        for figure in SERVED:
            if figure.of is not of or (value := figure.read(seen)) is None:
                continue
            if figure.kind is Kind.text:
                for text in (value,) if isinstance(value, str) else value:
                    self.add_series(figure, 1.0, {**labels, label_name(figure): text})
            elif figure.kind is Kind.histogram:
                self.add_histogram(figure, value, labels)
            else:
                self.add_series(figure, round(value * UNITS.get(figure.unit, ("", 1.0))[1], DIGITS), labels)

    def add_histogram(self, figure: Figure, value: Distribution, labels: Labels) -> None:
        bounds = [*(f"{bound:.9g}" for bound in value.bounds), "+Inf"]
        sums = list(accumulate(value.counts))
        for bound, total in zip(bounds, sums, strict=True):
            self.add_series(figure, total, {**labels, "le": bound}, "_bucket")
        self.add_series(figure, sums[-1], labels, "_count")
        self.add_series(figure, round(value.sum, DIGITS), labels, "_sum")

    def add_series(self, figure: Figure, value: float, labels: Labels, ending: str = "") -> None:
        """Of two tenants that claim one process the first counts: Prometheus refuses a series that is there twice."""
        shown = {name: text[:LONGEST_LABEL] for name, text in labels.items()}
        key = (figure.name + ending, frozenset(shown.items()))
        if key not in self.known:
            self.known.add(key)
            self.metrics[figure.name].add_sample(series_name(figure) + ending, shown, float(value))


def empty(figure: Figure) -> Metric:
    kind = figure.kind.value if figure.kind in (Kind.counter, Kind.histogram) else "gauge"
    return Metric(family_name(figure), figure.help.replace("`", ""), kind)


def identity(of: Of, seen: Any) -> dict[str, str]:
    """The labels that figures.py declares of this."""
    return {
        label_name(figure): str(figure.read(seen))
        for figure in FIGURES
        if figure.of is of and figure.kind is Kind.label
    }
