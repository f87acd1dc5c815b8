"""Profiles are merged over runs, and no file that cannot be read is lost."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from cotenant.errors import Problem
from cotenant.profile import job as jobs
from cotenant.profile import kernel as kernels
from cotenant.profile import store
from cotenant.profile.columns import Columns, KernelClass
from cotenant.profile.job import Job, by_class, rest_us, sms_filled
from cotenant.profile.kernel import Kernel, merged
from cotenant.profile.store import Model

GPU = Model("NVIDIA H200", 132, 4814.0)
MEASURED = Columns(KernelClass.memory, True, True, 0.2, 3900.0)
JOB = Job(10.0, 0.25, 0.125, 3 << 30, 140 << 30, {"compute": 1.0}, 0.5, "2026-11-16")


def kernel(name: str = "k", **more: object) -> Kernel:
    values: dict[str, object] = {
        "kind": "kernel",
        "name": name,
        "grid": (4, 1, 1),
        "block": (128, 1, 1),
        "shared_bytes": 0,
        "bytes": 0,
        "launches": 10,
        "samples": 4,
        "mean_us": 10.0,
        "min_us": 9.0,
        "max_us": 11.0,
        "sms": 4,
        "seen": "2026-11-15",
    }
    return Kernel(**{**values, **more})  # type: ignore[arg-type]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path)}


def test_runs_are_merged_by_name_and_shape(environment: dict[str, str]) -> None:
    store.add(environment, GPU, [kernel(), kernel(grid=(8, 1, 1))])
    path = store.add(
        environment, GPU, [kernel(samples=12, mean_us=14.0, max_us=20.0, seen="2026-11-16"), kernel("other")]
    )
    (found,) = store.profiles(environment)
    assert found.gpu == GPU and len(found.kernels) == 3
    one = found.kernels[kernel().key]
    assert (one.launches, one.runs, one.samples) == (20, 2, 16)
    assert (one.mean_us, one.min_us, one.max_us, one.seen) == (13.0, 9.0, 20.0, "2026-11-16")
    assert path.name == "NVIDIA-H200.json"


def test_what_was_measured_stays_before_an_estimate_and_newer_measurements_replace_it() -> None:
    estimated = Columns(KernelClass.compute)
    assert merged(kernel(columns=MEASURED), kernel(columns=estimated)).columns == MEASURED
    assert merged(kernel(columns=estimated), kernel(columns=MEASURED)).columns == MEASURED
    newer = Columns(KernelClass.compute, True, True, 0.9, 10.0)
    assert merged(kernel(columns=MEASURED), kernel(columns=newer)).columns == newer
    untimed = kernel(samples=0, mean_us=0.0, min_us=0.0, max_us=0.0)
    assert merged(kernel(), untimed).min_us == 9.0


def test_what_a_run_does_not_know_of_a_kernel_is_as_an_earlier_one_had_it() -> None:
    known = Kernel("kernel", "k", (1, 1, 1), (32, 1, 1), 0, 0, sms=7, blocks_per_sm=4, registers=32)
    again = merged(known, Kernel("kernel", "k", (1, 1, 1), (32, 1, 1), 0, 0))
    assert (again.sms, again.blocks_per_sm, again.registers) == (7, 4, 32)


def test_each_model_of_gpu_has_its_own(environment: dict[str, str]) -> None:
    store.add(environment, GPU, [kernel()])
    store.add(environment, Model("NVIDIA L4", 58, 300.0), [kernel(mean_us=90.0)])
    assert [one.gpu.name for one in store.profiles(environment)] == ["NVIDIA H200", "NVIDIA L4"]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"version": 2, "gpu": {}, "kernels": []}', '{"version": 1}', "\0" * 100,
     '{"version": 1, "gpu": {"name": "x", "sms": 1, "memory_gbps": 1}, "kernels": [{"name": "k"}]}'],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_refused_and_left_as_it_is(
    environment: dict[str, str], content: str
) -> None:
    path = store.kernel_file(environment, GPU.name)
    assert path is not None
    path.parent.mkdir(parents=True)
    path.write_text(content)
    for attempt in (lambda: store.add(environment, GPU, [kernel()]), lambda: store.profiles(environment)):
        with pytest.raises(Problem) as refused:
            attempt()
        assert str(path) in refused.value.message and str(path) in refused.value.hint
    assert path.read_text() == content


def test_a_job_is_found_by_its_name_and_a_damaged_one_is_unknown(environment: dict[str, str]) -> None:
    assert store.job(environment, "train.py") == {}
    store.add_job(environment, "train.py", GPU.name, JOB)
    store.add_job(environment, "train.py", "NVIDIA L4", JOB)
    assert store.job(environment, "train.py") == {GPU.name: JOB, "NVIDIA L4": JOB}
    assert store.job_names(environment) == ["train.py"]
    # Names that make the same file are not mistaken for each other.
    assert store.job_file(environment, "-train.py") == store.job_file(environment, "train.py")
    assert store.job(environment, "-train.py") == {}
    path = store.job_file(environment, "train.py")
    assert path is not None
    for content in ("", "[]", '{"version": 1, "job": "train.py", "gpus": {"x": {}}}', '{"version": 9}'):
        path.write_text(content)
        assert store.job(environment, "train.py") == {}
    assert store.job({}, "train.py") == {}


def test_the_oldest_go_first(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST_KERNELS", 2)
    store.add(environment, GPU, [kernel("old", seen="2026-01-01"), kernel("mid", seen="2026-02-01")])
    store.add(environment, GPU, [kernel("new", seen="2026-03-01")])
    (found,) = store.profiles(environment)
    assert {one.name for one in found.kernels.values()} == {"mid", "new"}


def test_sms_and_classes_are_weighted_by_time() -> None:
    small = kernel(launches=3, mean_us=10.0, sms=33, columns=Columns(KernelClass.memory))
    large = kernel("large", launches=1, mean_us=10.0, sms=132, columns=Columns(KernelClass.compute, True))
    assert sms_filled([small, large], 132) == pytest.approx(0.75 * 0.25 + 0.25)
    assert sms_filled([kernel(sms=0)], 132) is None
    shares, tensor = by_class([small, large])
    assert (shares["memory"], shares["compute"], tensor) == (0.75, 0.25, 0.25)


def test_at_a_random_moment_a_long_kernel_is_the_likelier() -> None:
    mixed = [kernel(launches=10, mean_us=10.0), kernel("long", launches=1, mean_us=1000.0)]
    assert rest_us(mixed) == pytest.approx((10 * 10**2 + 1000**2) / (2 * 1100))
    assert rest_us([kernel(kind="graph", mean_us=5000.0)]) is None


def test_a_kernel_and_a_job_are_the_same_after_they_were_written() -> None:
    one = Kernel(
        "fill", "k", (1, 2, 3), (4, 5, 6), 7, 8, 9, 10, 11, 12.5, 13.5, 14.5, 15, 16, 17, 18,
        Columns(KernelClass.copy, True, True, 0.25, 19.5), "2026-01-02",
    )  # fmt: skip
    written = json.loads(json.dumps(kernels.as_json(one)))
    assert kernels.from_json(written) == one
    assert written["class"] == "copy" and written["static_shared_bytes"] == 18
    assert kernels.from_json(written | {"compute": None, "memory_gbps": None}).columns.compute is None
    job = Job(10.0, None, 0.125, 3, 4, {"compute": 1.0}, 0.5, "2026-11-16", rest_us=7.5)
    written = json.loads(json.dumps(jobs.as_json(job)))
    assert jobs.from_json(written) == job
    del written["rest_us"]  # of an older version
    assert jobs.from_json(written).rest_us is None
    with pytest.raises(KeyError):
        jobs.from_json({name: value for name, value in written.items() if name != "tensor"})


def test_what_is_new_counts_however_much_was_seen_before() -> None:
    old = kernel(samples=1_000_000, mean_us=10.0)
    found = merged(old, kernel(samples=10_000, mean_us=30.0))
    assert (found.mean_us, found.samples) == (20.0, 20_000)
    assert merged(kernel(samples=0), kernel(samples=0)).mean_us == 0
    known = kernel(static_shared_bytes=5, blocks_per_sm=6, seen="2026-12-01")
    assert merged(known, kernel(static_shared_bytes=0)).static_shared_bytes == 5
    assert merged(known, kernel(seen="2026-01-01")).seen == "2026-12-01"


def test_only_kernels_whose_sms_are_known_tell_how_much_is_filled() -> None:
    assert sms_filled([kernel(sms=66, mean_us=10.0), kernel("x", sms=0, mean_us=1e6)], 132) == 0.5
    assert sms_filled([kernel(sms=200)], 132) == 1  # more than the GPU has
    assert sms_filled([kernel(launches=0)], 132) is None and sms_filled([kernel()], 0) is None
    assert by_class([]) == (dict.fromkeys(("unknown", "compute", "memory", "copy"), 0.0), 0.0)


def test_a_profile_is_json_with_a_version(environment: dict[str, str]) -> None:
    path = store.add(environment, GPU, [kernel(columns=MEASURED)])
    document = json.loads(path.read_text())
    assert document["version"] == store.VERSION
    (one,) = document["kernels"]
    assert (one["class"], one["tensor"], one["measured"], one["memory_gbps"]) == (
        "memory",
        True,
        True,
        3900.0,
    )


def test_nobody_else_writes_a_profile_meanwhile(environment: dict[str, str]) -> None:
    path = store.add(environment, GPU, [kernel()])
    with store.written(path), (path.parent / ".lock").open("rb") as another, pytest.raises(BlockingIOError):
        fcntl.flock(another, fcntl.LOCK_SH | fcntl.LOCK_NB)
    with (path.parent / ".lock").open("rb") as another:
        fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
