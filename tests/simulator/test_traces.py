"""Recorded traces as programs of the simulator."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from cotenant.errors import Problem
from cotenant.profile.columns import Columns, KernelClass
from cotenant.simulator import Job, OpKind, Study, Workload, simulate
from cotenant.simulator.trace_program import program_from, read_program
from cotenant.simulator.workload_file import from_items
from cotenant.traces import Direction, Kind, Trace, writer
from tests.simulator.small import OPPORTUNISTIC, PRODUCTION, run, small_gpu
from tests.traces.made_up import shape, trace


def two_requests() -> Trace:
    shapes = [
        shape(name="matmul", us=50, sms=80, grid=(1600, 1, 1), blocks_per_sm=2),
        shape(Kind.copy, us=20, sms=0, bytes=4096, direction=Direction.to_host),
        shape(Kind.graph, us=300, sms=60, nodes=40),
    ]
    request = [
        (Kind.kernel, 0, 5.0, 0.0, 0),
        (Kind.allocate, -1, 3.0, 0.0, 1 << 20),
        (Kind.graph, 2, 4.0, 0.0, 0),
        (Kind.copy, 1, 2.0, 0.0, 4096),
        (Kind.wait, -1, 1.0, 350.0, 0),
    ]
    made = trace(shapes, [*request, *request])
    waits = made.operations.kind == Kind.wait
    return dataclasses.replace(made, operations=dataclasses.replace(made.operations, ends_request=waits))


def test_a_trace_is_cut_into_requests_where_the_host_waited() -> None:
    program = program_from(two_requests())
    assert program.request_ends.tolist() == [3, 6]
    assert program.ops["kind"].tolist() == [OpKind.kernel, OpKind.graph, OpKind.copy_to_host] * 2
    assert program.ops["us"].tolist() == [50, 300, 20] * 2
    assert program.ops["sync"].tolist() == [0, 0, 0, 1, 0, 0]


def test_the_hosts_time_between_launches_is_kept_whatever_it_did() -> None:
    assert program_from(two_requests()).ops["gap_us"].tolist() == pytest.approx([5, 7, 2, 6, 7, 2])


def test_blocks_that_follow_each_other_on_an_sm_give_it_back_sooner() -> None:
    # 1600 blocks, two at a time on each of 100 SMs: eight in a row.
    assert program_from(two_requests()).ops["block_us"][0] == pytest.approx(50 / 8)


def test_what_was_never_timed_takes_as_long_as_others() -> None:
    shapes = [shape(us=40), shape(us=0)]
    program = program_from(trace(shapes, [(Kind.kernel, 0, 1.0, 0.0, 0), (Kind.kernel, 1, 1.0, 0.0, 0)]))
    assert program.ops["us"].tolist() == [40, 40]


def test_a_trace_runs_as_a_job() -> None:
    job = Job("job", program=program_from(two_requests()), requests=4)
    tenant = run(job).tenants[0]
    assert tenant.requests == 4
    assert tenant.operations == 12


def test_the_pause_before_a_recorded_request_is_not_part_of_it() -> None:
    made = two_requests()
    made.operations.gap_us[5] = 10_000  # before the second request
    latency = run(Job("job", program=program_from(made), requests=4)).tenants[0].latency
    assert latency.most_us < 3_000


def test_the_first_of_several_traces_is_production(tmp_path: Path) -> None:
    for name in ("serving", "training"):
        writer.write(two_requests(), tmp_path / f"{name}.trace")
    workload = from_items((str(tmp_path / "serving.trace"), str(tmp_path / "training.trace")))
    assert [(job.name, job.tenant_class) for job in workload.jobs] == [
        ("serving", PRODUCTION),
        ("training", OPPORTUNISTIC),
    ]
    assert workload.jobs[0].program is not None and len(workload.jobs[0].program.ops) == 6


def test_traces_of_one_name_are_jobs_of_different_names(tmp_path: Path) -> None:
    for path in ("gpt-4.trace", "other/gpt-4.trace", "gpt-4-2.trace"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        writer.write(two_requests(), tmp_path / path)
    items = ("gpt-4.trace", "other/gpt-4.trace", "gpt-4-2.trace", "gpt-4.trace")
    workload = from_items(tuple(str(tmp_path / item) for item in items))
    assert [job.name for job in workload.jobs] == ["gpt-4", "gpt-4-2", "gpt-4-2-2", "gpt-4-3"]
    assert len(Study(workload, small_gpu(), 0.01).run("strict").tenants) == 4


@pytest.mark.parametrize(("pause_before", "pause_behind", "ends"), [(20, 5000, [4, 7]), (5000, 20, [3, 7])])
def test_a_wait_after_next_to_nothing_ends_no_request(
    pause_before: float, pause_behind: float, ends: list[int]
) -> None:
    """The host fetches a number: it belongs to the request that is nearer."""
    shapes = [shape(us=500), shape(Kind.copy, us=1, sms=0, bytes=4, direction=Direction.to_host)]

    def request(gap: float, of: int) -> list[tuple[Kind, int, float, float, int]]:
        return [(Kind.kernel if of == 0 else Kind.copy, of, gap, 0.0, 4), (Kind.wait, -1, 1.0, 9.0, 0)]

    big = [(Kind.kernel, 0, 2.0, 0.0, 0)] * 2
    calls = [
        *big,
        *request(2, 0),
        *request(pause_before, 1),
        (Kind.kernel, 0, pause_behind, 0.0, 0),
        *big[:1],
    ]
    made = trace(shapes, [*calls, *request(2, 0)])
    waits = made.operations.kind == Kind.wait
    made = dataclasses.replace(made, operations=dataclasses.replace(made.operations, ends_request=waits))
    assert program_from(made).request_ends.tolist() == ends


def test_a_recorded_job_needs_the_memory_that_it_had_at_most(tmp_path: Path) -> None:
    made = two_requests()
    made.operations.bytes[made.operations.kind == Kind.allocate] = 4 << 30
    writer.write(made, tmp_path / "job.trace")
    workload = from_items((str(tmp_path / "job.trace"), str(tmp_path / "job.trace")))
    assert [job.memory_bytes for job in workload.jobs] == [8 << 30, 8 << 30]
    with pytest.raises(Problem, match=r"its jobs need 16\.0 GiB at once, small has 10\.0"):
        Study(workload, small_gpu())


def test_a_truncated_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.trace"
    writer.write(two_requests(), path)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(Problem, match="not whole") as refused:
        read_program(path)
    assert refused.value.status == 2


def test_a_trace_without_gpu_work_is_refused() -> None:
    empty = trace([], [(Kind.allocate, -1, 1.0, 0.0, 100)])
    with pytest.raises(Problem, match="no operations of a GPU"):
        program_from(empty)


def test_the_class_of_a_kernel_is_the_traces() -> None:
    measured = Columns(KernelClass.memory, measured=True, memory_gbps=900.0)
    shapes = [
        shape(name="ampere_sgemm_128x64_tn", us=50.0, sms=100, blocks_per_sm=1),
        shape(name="softmax_warp_forward", us=50.0, sms=100),
        shape(name="mine", us=50.0, columns=measured),
        shape(name="mine too", us=50.0),
    ]
    ops = program_from(trace(shapes, [(Kind.kernel, number, 1.0, 0.0, 0) for number in range(4)])).ops
    assert ops["bound"].tolist() == [
        1 + KernelClass.compute,
        1 + KernelClass.memory,
        1 + KernelClass.memory,
        1,
    ]
    # Only what was measured slows others down.
    assert ops["gbps"].tolist() == [0, 0, 900, 0]


def test_orion_lets_kernels_of_another_class_run_beside_production() -> None:
    def neighbours_share(kernel_class: KernelClass) -> float:
        production = shape(name="serve", us=400.0, sms=6, columns=Columns(KernelClass.compute))
        other = shape(name="train", us=5.0, sms=2, columns=Columns(kernel_class))
        launch = [(Kind.kernel, 0, 1.0, 0.0, 0)]
        jobs = (
            Job("serve", PRODUCTION, program=program_from(trace([production], launch))),
            Job("train", OPPORTUNISTIC, program=program_from(trace([other], launch))),
        )
        return simulate(Workload("pair", jobs, seconds=0.2), "orion", small_gpu()).tenants[1].share

    assert neighbours_share(KernelClass.memory) > 2 * neighbours_share(KernelClass.compute)
    assert neighbours_share(KernelClass.unknown) == neighbours_share(KernelClass.memory)
