"""What the page shows of a job: the sums of its processes, and the most telling of their states."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.classes import TenantClass
from cotenant.dashboard import jobs_shown
from cotenant.top import looking
from cotenant.top.model import Model
from tests.segments import UUID, Written


@pytest.mark.parametrize(("busy", "state"), [((0, 0), "idle"), ((1, 0), "busy"), ((0, 1), "busy")])
def test_a_job_is_as_busy_as_the_busiest_of_its_processes(
    tmp_path: Path, busy: tuple[int, int], state: str
) -> None:
    written = Written()
    written.gpu(0, UUID)
    for index, is_busy in enumerate(busy):
        slot = written.tenant(index, 100 + index, b"train.py", TenantClass.standard)
        slot.run_id[:] = bytes([1] * 16)
        slot.gpus[0].busy = is_busy
        slot.gpus[0].memory_bytes = (1 + index) << 20
    picture = looking.look(Model(), written.to(tmp_path / "segment"), ())
    (shown,) = jobs_shown.frame(picture)["jobs"]
    assert (shown["state"], shown["pids"], shown["memory_bytes"]) == (state, [100, 101], 3 << 20)
