"""Looks at a segment and at what its daemon saw of the GPUs, for the model."""

from __future__ import annotations

import time
from pathlib import Path

from cotenant import segment
from cotenant.errors import Problem
from cotenant.gpus import states
from cotenant.top.model import Model, Picture


def look(model: Model, path: Path) -> Picture:
    """Raises Problem where there is something else than a segment."""
    try:
        seen = segment.read(path)
    except FileNotFoundError:  # the first tenant makes it
        seen = segment.Snapshot({}, (), 0)
    except segment.BadSegment as error:
        raise Problem(str(error), "`cotenant doctor` says more; --segment names another file") from None
    at_ns = segment.now_ns()
    shown = states.read(path)
    return model.look(seen, at_ns, {gpu: states.figures(shown, gpu) for gpu in seen.gpus})


def twice(path: Path, apart_seconds: float) -> Picture:
    model = Model()
    look(model, path)
    time.sleep(apart_seconds)
    return look(model, path)
