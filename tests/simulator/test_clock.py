"""A job that draws the GPU's whole power lowers the clock for all."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from cotenant.errors import Problem
from cotenant.simulator import ArrivalKind, Arrivals, Interference, Job, Op
from cotenant.simulator.workload_file import read_workload
from tests.simulator.small import OPPORTUNISTIC, STRICT, run

CLOCK = 0.74
HOT = Job("hot", OPPORTUNISTIC, (Op(us=2_000),), waits=False, clock=CLOCK)
COOL = Job("cool", OPPORTUNISTIC, (Op(us=2_000),), waits=False)


def test_a_job_alone_takes_as_long_as_its_operations_say_whatever_its_clock() -> None:
    hot, cool = (run(job, under=STRICT, seconds=4).tenants[0].work_us for job in (HOT, COOL))
    assert hot == pytest.approx(cool, rel=0.01)


def test_equals_execute_alike_and_the_hot_one_does_more_of_its_work() -> None:
    """Beside the other the clock is half as far down: more than the hot job has alone, and less than the other has."""
    hot, cool = run(HOT, COOL, under=STRICT, seconds=4).tenants
    clock = 1 - (1 - CLOCK) / 2
    assert hot.executed_s == pytest.approx(cool.executed_s, rel=0.02)
    assert hot.share / cool.share == pytest.approx(1 / CLOCK, rel=0.03)
    assert cool.share == pytest.approx(0.5 * clock, rel=0.05)


def test_a_request_is_slower_beside_a_hot_job_and_as_fast_as_ever_long_after_it() -> None:
    requests = Arrivals(ArrivalKind.uniform, rate=20)
    production = Job("production", ops=(Op(us=5_000),), arrivals=requests)
    beside = {
        clock: run(production, dataclasses.replace(HOT, clock=clock), under=STRICT, seconds=4).tenants[0]
        for clock in (CLOCK, 1.0)
    }
    slower = beside[CLOCK].service.mean_us / beside[1.0].service.mean_us
    assert 1.1 < slower < 1 / CLOCK
    # It ends after 20 ms: of 80 requests nearly all find the highest clock.
    brief = dataclasses.replace(HOT, requests=10)
    after = run(production, brief, under=STRICT, seconds=4).tenants[0]
    assert after.service.p50_us == pytest.approx(after.alone.service.p50_us, rel=0.02)


def test_after_idle_time_a_hot_request_begins_at_the_highest_clock() -> None:
    """It then sinks by its time constant: a moment's work is (1 - sunk) / clock of what it is alone for long."""
    constant, work = Interference().clock_us, 20_000.0
    requests = Arrivals(ArrivalKind.uniform, rate=2)
    job = Job("hot", ops=(Op(us=work),), arrivals=requests, clock=CLOCK)

    def done(us: float) -> float:
        return (us * CLOCK + (1 - CLOCK) * constant * (1 - math.exp(-us / constant))) / CLOCK

    expected = next(us for us in range(int(work)) if done(us) >= work)
    service = run(job, under=STRICT, seconds=4).tenants[0].service
    assert service.p50_us == pytest.approx(expected, rel=0.015)


@pytest.mark.parametrize("clock", ["0", "1.5", '"5%"', "nan"])
def test_a_clock_that_no_gpu_has_is_refused(tmp_path: Path, clock: str) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(f'[[job]]\nname = "a"\nclock = {clock}\n[[job.ops]]\nus = 10\n')
    with pytest.raises(Problem, match="clock"):
        read_workload(file)
    with pytest.raises(Problem, match="clock"):
        run(dataclasses.replace(COOL, clock=0.05), under=STRICT)
