"""Looks at a segment and at what its daemon saw of the GPUs, for the model."""

from __future__ import annotations

import time
from pathlib import Path

from cotenant import segment
from cotenant.gpus import states
from cotenant.tenants import looking
from cotenant.top.model import Model, Picture


def look(model: Model, path: Path) -> Picture:
    """Raises Problem where there is something else than a segment."""
    seen = looking.read(path)
    at_ns = segment.now_ns()
    shown = states.read(path)
    return model.look(seen, at_ns, {gpu: states.figures(shown, gpu) for gpu in seen.gpus})


def twice(path: Path, apart_seconds: float) -> Picture:
    model = Model()
    look(model, path)
    time.sleep(apart_seconds)
    return look(model, path)
