"""What the page shows of a job: the sums of its processes, and the most telling of their states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cotenant import figures, segment
from cotenant.classes import TenantClass
from cotenant.dashboard import jobs_shown
from cotenant.tenants import jobs
from cotenant.tenants.lately import UNKNOWN, Lately
from cotenant.top import looking
from cotenant.top.model import GpuRow, Model, Picture, Row
from cotenant.units import SHARE_OF_GPU
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


def test_a_process_is_shown_where_it_is_and_says_what_it_waits_for_while_it_has_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "cotenant.tenants.wait_reasons.reasons", lambda seen, tenant, use, now_ns: [f"on {use.gpu}"]
    )
    one = tenant(1, use(gpu=0), use(gpu=1, busy=True))
    seen = segment.Snapshot({}, (one,), 0)
    shown = jobs_shown.tenant_shown(seen, one, rows_of(*((one, here, UNKNOWN) for here in one.uses)))
    assert (shown["waits_for"], [gpu["gpu"] for gpu in shown["gpus"]]) == (["on 1"], [0, 1])
    nowhere = rows_of((one, figures.NO_USE, UNKNOWN))
    assert jobs_shown.tenant_shown(seen, one, nowhere)["gpus"] == []


def use(**about: object) -> segment.Use:
    words: dict[str, object] = {
        "gpu": 0, "uuid": "GPU-0", "busy": False, "gated": False,
        "figures": dict.fromkeys(segment.FIGURES, 0),
    }  # fmt: skip
    return segment.Use(**(words | about))  # type: ignore[arg-type]


def tenant(pid: int, *uses: segment.Use, **about: object) -> segment.Tenant:
    words: dict[str, object] = {
        "pid": pid, "uid": 0, "started": pid, "program": "p", "run_id": "ab" * 16, "tenant_class": 1,
        "unknown_functions": 0, "time_slice_us": 0, "time_slice_refused": False, "uses": uses, "job": "train",
    }  # fmt: skip
    return segment.Tenant(**(words | about))  # type: ignore[arg-type]


def rows_of(*told: tuple[segment.Tenant, segment.Use, Lately]) -> list[Row]:
    return [Row(figures.OnGpu(one, here, lately=lately)) for one, here, lately in told]


def test_a_job_is_the_sum_of_its_processes_and_the_worst_of_their_waits() -> None:
    escaped = dict.fromkeys(segment.FIGURES, 0) | {"escaped": 3}
    first, second = (
        use(memory_bytes=10, preemptions=2, figures=escaped, busy=True),
        use(gpu=1, memory_bytes=20, preemptions=5, figures=escaped, gated=True),
    )
    older = tenant(7, first, host_bytes=100, evictions=1, floor=50, memory_limit=1000)
    younger = tenant(8, second, host_bytes=200, evictions=2, floor=50)
    rows = rows_of(
        (older, first, Lately(0.25, 0.5, 0.6, True, 9.0, 11.0, 12.0, 13.0)),
        (younger, second, Lately(0.5, 0.5, 0.6, False, 4.0, None, 22.0, 3.0)),
    )
    seen = segment.Snapshot({}, (older, younger), 0)
    shown = jobs_shown.job_shown(seen, jobs.Job((older, younger)), rows)
    tenants = shown.pop("tenants")
    assert shown == {
        "key": "0-" + "ab" * 16, "job": "train", "run_id": "ab" * 16, "user": "root", "pids": [7, 8], "gpus": [0, 1],
        "class": "standard", "state": "gated", "gpu_share": 0.75, "promise": ">5%", "promise_kept": False,
        "promise_seconds": 4.0, "share_asked": None, "share_got": None, "memory_bytes": 30,
        "memory_limit": "1000", "memory_limit_bytes": 2000, "host_bytes": 300, "wait_us": 11.0,
        "wait_p50_us": 22.0, "wait_p99_us": 13.0, "preemptions": 7, "waits_for": [], "evictions": 3, "escaped": 6,
    }  # fmt: skip
    assert [(one["pid"], one["started"], len(one["gpus"])) for one in tenants] == [(7, 7, 1), (8, 8, 1)]
    assert (tenants[1]["gpus"][0]["memory_bytes"], tenants[1]["host_bytes"]) == (20, 200)


def test_what_cannot_be_summed_up_is_none() -> None:
    one, other = tenant(7, tenant_class=0, slowdown=50), tenant(8, tenant_class=2, run_id="")
    rows = rows_of((one, figures.NO_USE, UNKNOWN), (other, figures.NO_USE, UNKNOWN))
    shown = jobs_shown.job_shown(segment.Snapshot({}, (), 0), jobs.Job((one, other)), rows)
    for name in (
        "class",
        "promise",
        "promise_kept",
        "promise_seconds",
        "gpu_share",
        "wait_us",
        "memory_limit",
    ):
        assert shown[name] is None, name
    assert (shown["gpus"], shown["state"], shown["memory_limit_bytes"]) == ([], "idle", None)
    alone = rows_of(
        (one, use(), Lately(share_asked=0.5, share_got=0.25, promise_kept=True, promise_seconds=3.0))
    )
    shown = jobs_shown.job_shown(segment.Snapshot({}, (one,), 0), jobs.Job((one,)), alone)
    assert (shown["share_asked"], shown["share_got"]) == (0.5, 0.25)
    assert (shown["promise_kept"], shown["promise_seconds"], shown["promise"]) == (True, None, "<5%")
    part = tenant(9, memory_limit=SHARE_OF_GPU | 300_000)
    assert jobs_shown.limit_bytes(part, []) is None
    assert jobs_shown.key_of(jobs.Job((tenant(9, run_id=jobs.NO_RUN),))) == "0-9-9"


@pytest.mark.parametrize("at", range(len(jobs_shown.STATES)))
def test_of_several_states_the_most_telling_is_the_jobs(at: int) -> None:
    made = {
        "evicting": tenant(1, where=segment.Where.evicting), "restoring": tenant(2, where=segment.Where.restoring),
        "paused": tenant(3, where=segment.Where.evicted, paused=True),
        "evicted": tenant(4, where=segment.Where.evicted), "gated": tenant(5), "busy": tenant(6), "idle": tenant(7),
    }  # fmt: skip
    states = ["evicting", "restoring", "paused", "evicted", "gated", "busy", "idle"][at:]
    rows = rows_of(
        *(
            (made[state], use(gated=state == "gated", busy=state == "busy"), UNKNOWN)
            for state in reversed(states)
        )
    )
    job = jobs.Job(tuple(made[state] for state in states))
    assert jobs_shown.job_shown(segment.Snapshot({}, (), 0), job, rows)["state"] == states[0]


def test_a_gpu_has_the_sums_of_its_tenants_and_the_shares_of_classes() -> None:
    on_both = tenant(1, use(memory_bytes=10), use(gpu=1, memory_bytes=5), host_bytes=100)
    rows = rows_of(*((on_both, one, UNKNOWN) for one in on_both.uses))
    gpu = GpuRow(1, "GPU-1", {"clock_mhz": 1980}, {0: (0.1, 0.25), 1: (), 2: (0.5,)})
    assert jobs_shown.gpu_shown(gpu, rows) == {
        "gpu": 1, "uuid": "GPU-1", "clock_mhz": 1980, "gpu_share": 0.75, "memory_bytes": 5, "host_bytes": 50.0,
        "class_shares": {"production": 0.25, "standard": None, "opportunistic": 0.5}, "tenants": 1,
    }  # fmt: skip
    picture = Picture(segment.Snapshot({}, (on_both,), 0), (gpu,), tuple(rows_of(
        (on_both, on_both.uses[0], Lately(gpu_share=0.25)), (on_both, on_both.uses[1], Lately(gpu_share=0.5)),
    )), 2_500_000_000)  # fmt: skip
    assert jobs_shown.series(picture) == {
        "gpu/1/production": 0.25, "gpu/1/standard": 0.0, "gpu/1/opportunistic": 0.5, "job/0-" + "ab" * 16: 0.75,
    }  # fmt: skip
    shown = jobs_shown.frame(picture)
    assert (shown["format"], shown["policy"], shown["elapsed_seconds"]) == (1, "guard", 2.5)
    assert [one["job"] for one in shown["jobs"]] == ["train"] and shown["host"]
    named = replace(picture, seen=replace(picture.seen, policy="fair"))
    assert jobs_shown.frame(named)["policy"] == "fair"
    crowded = GpuRow(0, "", {}, {0: (0.75,), 1: (0.5,)})
    assert crowded.total == 1 and GpuRow(0, "", {}, {0: ()}).total is None
