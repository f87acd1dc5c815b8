"""The last hour of some series, as means over buckets of two seconds.

The memory is bounded: a ring of floats for each series, at most MOST_SERIES of them, and nothing of a series that the
latest look did not have.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import Any

HOUR_SECONDS = 3600
BUCKET_SECONDS = 2
MOST_SERIES = 1024
DIGITS = 4


class History:
    """Times are those of a clock that does not jump."""

    def __init__(self, seconds: int = HOUR_SECONDS, bucket_seconds: int = BUCKET_SECONDS) -> None:
        self.slots = seconds // bucket_seconds
        self.bucket_seconds = bucket_seconds
        self.first = self.newest = -1  # numbers of buckets; -1: there is none yet
        self.looks = 0  # in the newest
        self.series: dict[str, array[float]] = {}

    def add(self, at_seconds: float, values: Mapping[str, float]) -> None:
        bucket = int(at_seconds // self.bucket_seconds)
        if bucket < self.newest:
            return
        if bucket > self.newest:
            self.begin(bucket)
        self.looks += 1
        self.series = {name: ring for name, ring in self.series.items() if name in values}
        at = bucket % self.slots
        for name, value in values.items():
            if name not in self.series and len(self.series) >= MOST_SERIES:
                continue
            ring = self.series.setdefault(name, array("f", [math.nan]) * self.slots)
            before = ring[at]
            ring[at] = value if math.isnan(before) else before + (value - before) / self.looks

    def begin(self, bucket: int) -> None:
        """Buckets in which nobody looked stay empty."""
        passed = range(max(self.newest + 1, bucket - self.slots + 1), bucket + 1)
        for ring in self.series.values():
            for skipped in passed:
                ring[skipped % self.slots] = math.nan
        if self.first < 0:
            self.first = bucket
        self.newest, self.looks = bucket, 0

    def as_json(self) -> dict[str, Any]:
        """All of it: each series has one value a bucket, the newest last."""
        known = min(self.newest - self.first + 1, self.slots) if self.newest >= 0 else 0
        buckets = range(self.newest - known + 1, self.newest + 1)
        return {
            "bucket_seconds": self.bucket_seconds,
            "hour_buckets": self.slots,
            "newest": self.newest,
            "series": {
                name: [shown(ring[bucket % self.slots]) for bucket in buckets]
                for name, ring in self.series.items()
            },
        }

    def newest_as_json(self) -> dict[str, Any]:
        at = self.newest % self.slots
        return {
            "number": self.newest,
            "values": {name: shown(ring[at]) for name, ring in self.series.items()},
        }


def shown(value: float) -> float | None:
    return None if math.isnan(value) else round(value, DIGITS)
