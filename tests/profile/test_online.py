"""A profile of a run from the traces of its processes."""

from __future__ import annotations

from dataclasses import replace

from cotenant.profile import online
from cotenant.profile.job import SHORTEST_SECONDS, Job
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
