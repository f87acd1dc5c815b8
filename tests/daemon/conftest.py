"""A segment with two tenants at work, and the daemon's attachment to it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.daemon import lock, report
from cotenant.daemon.attachment import DEFAULTS, Attachment
from tests.daemon.made import add
from tests.segments import UUID, Written


@pytest.fixture
def path(native: Path, tmp_path: Path) -> Path:
    """A segment with a production tenant in slot 0 and an opportunistic one in slot 70, both with work."""
    written = Written()
    written.gpu(0, UUID)
    written.header.knobs = segment.Knobs(rule=1, stale_ms=60_000, **DEFAULTS)
    add(written, 0, 100, TenantClass.production).slowdown = 50
    below = add(written, 70, 200, TenantClass.opportunistic)
    below.floor, below.gpus[0].used_ns, below.gpus[0].busy_ns = 100, 3_000_000, 4_000_000
    return written.to(tmp_path / "segment")


@pytest.fixture
def attachment(path: Path) -> Iterator[Attachment]:
    attached = Attachment(path)
    yield attached
    attached.close()


@pytest.fixture
def env(softgpu_env: dict[str, str]) -> Iterator[dict[str, str]]:
    """In which `run` starts a daemon that does not linger."""
    del softgpu_env["COTENANT_NO_DAEMON"]
    yield softgpu_env | {"COTENANT_DAEMON_LINGER": "0.2"}
    path = Path(softgpu_env["COTENANT_SEGMENT"])
    if (shown := report.read(path)) and lock.is_held(path):
        os.kill(shown.pid, signal.SIGKILL)
