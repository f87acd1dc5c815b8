"""A profile of a run from the traces of its processes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.profile import online, store
from cotenant.profile.columns import Columns, KernelClass
from cotenant.profile.job import SHORTEST_SECONDS, Job
from cotenant.profile.kernel import Kernel
from cotenant.profile.store import Model
from cotenant.tenants import breakdown
from cotenant.traces import Kind, Trace
from tests.traces.made_up import GPU, requests, shape, trace


def on(one: Trace, name: str, memory_bytes: int = 80 << 30) -> Trace:
    return replace(one, gpus=(replace(GPU, name=name, memory_bytes=memory_bytes),))


def test_kernels_are_counted_as_often_as_they_were_launched() -> None:
    found = {one.name: one for one in online.kernels_of(requests(count=3, kernels=5))}
    assert (found["first"].launches, found["second"].launches) == (9, 6)
    assert (found["first"].mean_us, found["second"].mean_us) == (10, 20)
    (copy,) = (one for one in found.values() if one.kind == "copy")
    assert (copy.launches, copy.bytes, copy.mean_us) == (3, 4096, 5)
    never = trace([shape(name="used", us=1.0), shape(name="never", us=1.0)], [(Kind.kernel, 0, 1.0, 0.0, 0)])
    assert [one.name for one in online.kernels_of(never)] == ["used"]


def test_the_same_kernel_of_two_modules_is_one() -> None:
    twice = trace(
        [shape(name="same", us=10.0), shape(name="same", us=30.0)],
        [(Kind.kernel, 0, 1.0, 0.0, 0), (Kind.kernel, 1, 1.0, 0.0, 0), (Kind.kernel, 1, 1.0, 0.0, 0)],
    )
    (one,) = online.kernels_of(twice)
    assert (one.launches, one.min_us, one.max_us) == (3, 10, 30)


def test_a_run_is_what_its_processes_did_on_the_gpu_with_the_most_work() -> None:
    here, there = on(requests(count=2), "here", 40 << 30), on(requests(count=5), "there")
    found = online.of_run([here, there, on(requests(count=4), "here"), on(requests(count=1), "here")])
    assert found is not None and found.gpu.name == "here"
    kernels = {one.name: one for one in found.kernels}
    assert kernels["first"].launches == 3 * (2 + 4 + 1)
    assert {one.runs for one in found.kernels} == {1}
    # The memory of processes side by side adds up; the GPU's is one.
    assert (found.job.memory_bytes, found.job.gpu_bytes) == (3 << 20, 80 << 30)
    assert online.of_run([here, there]).gpu.name == "there"  # type: ignore[union-attr]


def test_a_process_without_work_or_without_a_gpu_tells_nothing() -> None:
    idle, nowhere = trace([], []), replace(requests(), gpus=())
    assert online.of_run([]) is None and online.of_run([idle]) is None and online.of_run([nowhere]) is None
    found = online.of_run([idle, nowhere, requests(count=1)])
    assert found is not None and {one.launches for one in found.kernels if one.name == "first"} == {3}


def test_the_process_that_worked_longest_tells_how_long_it_worked() -> None:
    def busy(busy_ns: int, gap_ns: int) -> Trace:
        sums = dict.fromkeys(breakdown.SUMS, 1) | {"busy_ns": busy_ns, "gap_ns": gap_ns}
        words = " ".join(f"{value} {name}" for name, value in sums.items())
        return replace(requests(), facts={**requests().facts, "breakdown": words})

    def job(*traces: Trace) -> Job:
        found = online.of_run(traces)
        assert found is not None
        return found.job

    second = 1_000_000_000
    long = job(busy(90 * second, 0), busy(100 * second, 25 * second), requests())
    assert (long.seconds, long.filled) == (100, 0.75)
    least = int(SHORTEST_SECONDS * second)
    assert job(busy(least, least * 2)).filled == 0
    assert job(busy(least - 1, 0)).filled is None
    assert (job(requests()).seconds, job(requests()).filled) == (0, None)


def test_a_kernel_has_what_its_shape_says() -> None:
    columns = Columns(KernelClass.memory, True, True, 0.25, 1234.0)
    about = shape(
        name="k", us=20.0, grid=(2, 3, 5), block=(7, 11, 13), shared_bytes=17, samples=19, min_us=18.0, max_us=23.0,
        sms=29, blocks_per_sm=31, registers=37, static_shared_bytes=41, columns=columns,
    )  # fmt: skip
    (one,) = online.kernels_of(trace([about], [(Kind.kernel, 0, 1.0, 0.0, 0)] * 2))
    assert replace(one, seen="") == Kernel(
        "kernel", "k", (2, 3, 5), (7, 11, 13), 17, 0, launches=2, runs=1, samples=19, mean_us=20.0, min_us=18.0,
        max_us=23.0, sms=29, blocks_per_sm=31, registers=37, static_shared_bytes=41, columns=columns,
    )  # fmt: skip
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", one.seen)


def test_a_job_has_the_shares_of_its_kernels_time() -> None:
    product = Columns(KernelClass.compute, True, True, 0.9, 10.0)
    shapes = [
        shape(name="product", us=30.0, sms=100, columns=product),
        shape(name="stream", us=10.0, sms=25, columns=Columns(KernelClass.memory)),
    ]
    found = online.of_run([trace(shapes, [(Kind.kernel, 0, 1.0, 0.0, 0), (Kind.kernel, 1, 1.0, 0.0, 0)])])
    assert found is not None
    job = found.job
    assert (job.classes["compute"], job.classes["memory"], job.tensor) == (0.75, 0.25, 0.75)
    # GPU has 100 SMs: 30 us of all of them, 10 us of a quarter.
    assert job.sms == pytest.approx(0.8125)
    assert job.rest_us == pytest.approx((30 * 30 + 10 * 10) / (2 * 40))
    assert job.seen == found.kernels[0].seen != ""
    assert (job.memory_bytes, job.gpu_bytes) == (0, 80 << 30)


def test_the_memory_bandwidth_is_the_recorders_else_the_data_sheets() -> None:
    def model(name: str, gbps: int) -> Model | None:
        return online.model_of(replace(requests(), gpus=(replace(GPU, name=name, memory_gbps=gbps),)))

    assert model("NVIDIA H200", 4321) == Model("NVIDIA H200", 100, 4321)
    assert model("NVIDIA H200", 0) == Model("NVIDIA H200", 100, 4800)


def test_a_trace_is_given_what_was_measured_of_its_kernels_and_no_estimate(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    measured = Columns(KernelClass.memory, False, True, 0.1, 99.0)
    recorded = on(requests(), "here")
    first, second, copy = (one.columns for one in online.annotated(recorded, environment).shapes)
    assert first is not None and not first.measured
    kernels = {one.name: one for one in online.kernels_of(recorded)}
    estimate = replace(kernels["second"], columns=Columns(KernelClass.compute))
    store.add(environment, Model("here", 100, 0.0), [replace(kernels["first"], columns=measured), estimate])
    again = online.annotated(recorded, environment).shapes
    assert [one.columns for one in again] == [measured, second, copy]
    # Measured on another model of GPU, or unreadable: as if nothing were known.
    assert online.annotated(on(requests(), "there"), environment).shapes[0].columns == first
    path = store.kernel_file(environment, "here")
    assert path is not None
    path.write_text("{")
    assert online.annotated(recorded, environment).shapes[0].columns == first
