"""Recorded jobs: what one process put on its GPUs, when, and for how long.

from cotenant.traces import read
trace = read(Path("job.trace"))
"""

from __future__ import annotations

from cotenant.traces.reader import read
from cotenant.traces.trace import Direction, Gpu, Kind, Operations, Shape, Trace

__all__ = ["Direction", "Gpu", "Kind", "Operations", "Shape", "Trace", "read"]
