"""Looks at a segment and at what its daemon saw of the GPUs, for the model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cotenant import segment
from cotenant.errors import Problem
from cotenant.gpus import states
from cotenant.tenants import jobs
from cotenant.tenants.verdicts import NO_VERDICTS
from cotenant.top.model import Model, Picture


def look(model: Model, path: Path, words: Sequence[str] = ()) -> Picture:
    """With `words` only the rows of these jobs. Raises Problem where there is something else than a segment."""
    seen = jobs.look(path)
    at_ns = segment.now_ns()
    shown = states.read(path)
    verdicts = NO_VERDICTS if isinstance(shown, str) else shown.promises
    picture = model.look(
        seen, at_ns, {gpu: states.figures(shown, gpu, seen.tenants) for gpu in seen.gpus}, verdicts
    )
    return only(picture, words) if words else picture


def only(picture: Picture, words: Sequence[str]) -> Picture:
    """A job that has ended has no rows."""
    chosen = []
    for word in words:
        with suppress(Problem):
            chosen += [id(one) for job in jobs.select([word], picture.seen.tenants) for one in job.tenants]
    return replace(picture, rows=tuple(row for row in picture.rows if id(row.tenant) in chosen))


def check(path: Path, words: Sequence[str]) -> None:
    """Raises Problem where there is something else than a segment, or a word means no job."""
    jobs.select(words, jobs.look(path).tenants)


def twice(path: Path, apart_seconds: float, words: Sequence[str] = ()) -> Picture:
    model = Model()
    look(model, path)
    time.sleep(apart_seconds)
    return look(model, path, words)
