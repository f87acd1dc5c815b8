"""NVIDIA's Multi-Process Service for the time of a measurement: a control daemon in folders of its own."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from cotenant.errors import Problem
from cotenant.mps.control import PROGRAM, Control, NoMps, find, without_mps

__all__ = ["control_daemon", "missing", "without_mps"]


def missing() -> str:
    """Why MPS cannot be measured here; empty where it can."""
    return "" if find(os.environ) else f"{PROGRAM} is not installed"


@contextlib.contextmanager
def control_daemon(environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The environment of its clients. The daemon is stopped whatever happens; its clients should have ended by then."""
    # A daemon that has been told to quit may still write while its folder is removed.
    with tempfile.TemporaryDirectory(prefix="cotenant-mps-", ignore_cleanup_errors=True) as name:
        pipe, log = Path(name, "pipe"), Path(name, "log")
        pipe.mkdir()
        log.mkdir()
        daemon = Control(find(environment) or PROGRAM, pipe, log)
        try:
            daemon.start(environment)
            yield daemon.environment(environment)
        except NoMps as error:
            raise Problem(str(error)) from None
        finally:
            daemon.stop()
