"""A workload file says what its keys say, each value within its limits; what is left out has its default."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant.classes import TenantClass
from cotenant.errors import Problem
from cotenant.simulator import workload_file as files
from cotenant.simulator.machine import SimulatedGpu
from cotenant.simulator.workload import (
    ArrivalKind,
    Arrivals,
    Job,
    Op,
    OpKind,
    Workload,
    draws,
    mistake,
    placed,
    program_of,
)

EVERYTHING = """
title = "A title"
seconds = 7.5
gpus = 3
[[job]]
name = "serve"
class = "standard"
layers = 2
arrivals = "bursty"
rate = 50
burst = 0.25
pause = 0.75
requests = 100
think_ms = [1, 2.5]
waits = false
trains = true
spread = 0.1
request_spread = 0.2
begins = 1.5
run_ahead_us = 5000
weight = 2.5
slowdown = "5%"
floor = "10%"
clock = 0.9
share_request = 0.3
share_limit = "80%"
memory = "10G"
ephemeral = "1M"
gpu = 2
copies = 4
begins_every = 0.5
[[job.ops]]
us = 200
sms = "60%"
gbps = 1000
gap_us = 3
block_us = 20
sync = true
repeat = 5
sigma = 0.3
[[job.ops]]
kind = "copy-to-host"
bytes = "64MiB"
"""


def test_every_key_is_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "all.toml").write_text(EVERYTHING)
    found = files.find_workload(str(tmp_path / "all.toml"))
    ops = (
        Op(OpKind.kernel, 200.0, 0.6, 1000.0, 0, 3.0, 20.0, True, 5, 0.3),
        Op(OpKind.copy_to_host, 0.0, 1.0, 0.0, 64 << 20, 0.0, None, False, 1, 0.0),
    )
    serve = Job(
        "serve", TenantClass.standard, ops, 2, None, None, Arrivals(ArrivalKind.bursty, 50.0, 0.25, 0.75),
        requests=100, think_ms=(1.0, 2.5), waits=False, trains=True, spread=0.1, request_spread=0.2, begins_s=1.5,
        run_ahead_us=5000.0, weight=2.5, slowdown=0.05, floor=0.1, clock=0.9, share_request=0.3, share_limit=0.8,
        memory_bytes=10 << 30, ephemeral_bytes=1 << 20, gpu=2, copies=4, begins_every_s=0.5,
    )  # fmt: skip
    assert found == Workload("all", (serve,), "A title", 7.5, 3)


def read(tmp_path: Path, job: str) -> Job:
    (tmp_path / "one.toml").write_text(f'[[job]]\nname = "one"\n{job}\n[[job.ops]]\nus = 1\n')
    (found,) = files.read_workload(tmp_path / "one.toml").jobs
    return found


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    assert read(tmp_path, "") == Job(
        "one", TenantClass.production, (Op(us=1.0),), 1, None, None, Arrivals(ArrivalKind.closed, 0.0, 1.0, 1.0),
        requests=0, think_ms=(0.0, 0.0), waits=True, trains=False, spread=0.0, request_spread=0.0, begins_s=0.0,
        run_ahead_us=10_000.0, weight=1.0, slowdown=None, floor=0.0, clock=1.0, share_request=0.0, share_limit=1.0,
        memory_bytes=0, ephemeral_bytes=0, gpu=None, copies=1, begins_every_s=0.0,
    )  # fmt: skip
    found = files.read_workload(tmp_path / "one.toml")
    assert (found.title, found.seconds, found.gpus) == ("", 20.0, 1)
    # A job that trains does not wait for the end of each step, unless its CPU thinks in between.
    assert not read(tmp_path, "trains = true").waits
    assert read(tmp_path, "trains = true\nthink_ms = 1").waits
    assert read(tmp_path, 'arrivals = "listed"\nat = [0, 0.5, 0.5]').arrivals.at_s == (0.0, 0.5, 0.5)


@pytest.mark.parametrize(
    ("convert", "good", "bad"),
    [
        (files.positive, {1e-9: 1e-9, 1e12: 1e12, 3: 3.0}, [0, -1, 1e13, True, "1", math.nan]),
        (files.between(1, 2), {1: 1.0, 2: 2.0}, [0.99, 2.01, "1"]),
        (files.whole(1, 3), {1: 1, 3: 3}, [0, 4, 1.0, True]),
        (files.optional_whole, {0: 0, 100_000: 100_000}, [-1, 100_001]),
        (files.share, {"30%": 0.3, 0.3: 0.3, 0: 0.0, 10: 10.0, "1000%": 10.0}, [-0.1, 10.1, "x%", "0.3", True]),
        (files.part_of_gpu(0.9), {"90%": 0.9, 0: 0.0}, ["91%", 1]),
        (files.part_of_clock, {"10%": 0.1, 1: 1.0}, ["9%", 1.01]),
        (files.share_or_none, {0: None, "5%": 0.05}, ["x"]),
        (files.amount, {"60%": 0.6, "100%": 1.0, 32: 32.0}, [0, "0%", "101%", -1]),
        (files.amount_or_none, {0: 0.0, 5: 5.0}, [-1]),
        (files.moments, {(): ()}, ["1", 1]),
        (files.boolean, {True: True, False: False}, [1, "true"]),
        (files.op_kind, {"copy-on-device": OpKind.copy_on_device, "graph": OpKind.graph}, ["copy", 1]),
        (files.arrival_kind, {"uniform": ArrivalKind.uniform}, ["Poisson", 1]),
        (files.tenant_class, {"opportunistic": TenantClass.opportunistic}, ["low"]),
    ],
)  # fmt: skip
def test_a_value_is_within_its_limits(
    convert: Callable[[Any], object], good: dict[Any, object], bad: list[Any]
) -> None:
    for value, meant in good.items():
        assert convert(list(value) if isinstance(value, tuple) else value) == meant
    for value in bad:
        with pytest.raises(ValueError):
            convert(value)


def test_intervals_and_moments_grow() -> None:
    assert files.interval(3) == (3.0, 3.0) and files.interval([1, 1]) == (1.0, 1.0)
    assert files.moments([0, 1, 1, 2.5]) == (0.0, 1.0, 1.0, 2.5)
    for convert, bad in ((files.interval, [2, 1]), (files.interval, [-1, 1]), (files.interval, [1, 2, 3])):
        with pytest.raises(ValueError):
            convert(bad)
    for moments in ([1, 0.5], [-0.5, 1]):
        with pytest.raises(ValueError):
            files.moments(moments)


def test_copies_are_written_out_where_fewest_are() -> None:
    jobs = (
        Job("a", ops=(Op(us=1.0),), copies=3, begins_s=1.0, begins_every_s=0.5),
        Job("b", ops=(Op(us=1.0),), gpu=0),
        Job("c", ops=(Op(us=1.0),)),
    )
    found = placed(Workload("w", jobs, gpus=2))
    assert [[(job.name, job.begins_s, job.gpu, job.copies) for job in here] for here in found] == [
        [("a", 1.0, 0, 1), ("a-3", 2.0, 0, 1), ("b", 0.0, 0, 1)],
        [("a-2", 1.5, 1, 1), ("c", 0.0, 1, 1)],
    ]
    assert files.free_name("x", set()) == "x" and files.free_name("x", {"x", "x-2"}) == "x-3"


GPU = SimulatedGpu("made-up", 100, 1 << 30, memory_gbps=1000.0, bus_gbps=50.0)


def test_a_program_has_an_operation_for_each_layer_and_repetition() -> None:
    job = Job(
        "one",
        ops=(
            Op(us=500.0, sms=0.25, gbps=0.5, gap_us=3.0, sync=True, repeat=2),
            Op(us=10.0, sms=40, gbps=300.0, block_us=4.0),
            Op(OpKind.copy_to_device, bytes=1_000_000),
            Op(OpKind.copy_on_device, bytes=1_000_000),
            Op(us=7.0, sms=0.001),
        ),
        layers=2,
    )
    made = program_of(job, GPU, seed=1)
    assert made.request_ends.tolist() == [12]
    first = made.ops[:6]
    assert np.array_equal(made.ops[6:], first)
    assert first["us"].tolist() == [500, 500, 10, 20, 1, 7]
    assert first["sms"].tolist() == [25, 25, 40, 0, 0, 1]
    assert first["gbps"].tolist() == [500, 500, 300, 0, 0, 0]
    assert first["gap_us"].tolist() == [3, 3, 0, 0, 0, 0]
    assert first["block_us"].tolist() == [300, 300, 4, 20, 1, 7]
    assert first["kind"].tolist() == [0, 0, 0, 2, 4, 0]
    assert first["sync"].tolist() == [1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("changed", "does"),
    [
        ({}, False),
        ({"spread": 0.1}, True),
        ({"request_spread": 0.1}, True),
        ({"think_ms": (1.0, 1.0)}, False),
        ({"think_ms": (1.0, 2.0)}, True),
        ({"arrivals": Arrivals(ArrivalKind.poisson, 1.0)}, True),
        ({"arrivals": Arrivals(ArrivalKind.bursty, 1.0)}, True),
        ({"arrivals": Arrivals(ArrivalKind.uniform, 1.0)}, False),
        ({"ops": (Op(us=1.0, sigma=0.1),)}, True),
    ],
)
def test_whether_anything_of_a_job_is_random(changed: dict[str, Any], does: bool) -> None:
    assert draws(replace(Job("one", ops=(Op(us=1.0),)), **changed)) is does


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({}, None),
        ({"weight": 0.1, "floor": 0.9, "clock": 0.1}, None),
        ({"weight": 0.09}, "its weight"),
        ({"weight": 100.1}, "its weight"),
        ({"floor": 0.91}, "its weight"),
        ({"layers": 0}, "its weight"),
        ({"requests": -1}, "its weight"),
        ({"clock": 0.09}, "its clock"),
        ({"clock": 1.01}, "its clock"),
        ({"ops": ()}, "it needs ops"),
        ({"ops": (Op(us=0.0),)}, "has no length"),
        ({"ops": (Op(OpKind.copy_to_host, us=1.0),)}, "has no length"),
        ({"ops": (Op(us=1.0, repeat=0),)}, "cannot be"),
        ({"ops": (Op(us=math.inf),)}, "cannot be"),
        ({"arrivals": Arrivals(ArrivalKind.poisson)}, "need a rate"),
        ({"arrivals": Arrivals(ArrivalKind.listed)}, None),
    ],
)
def test_what_a_job_can_have_wrong(changed: dict[str, Any], wrong: str | None) -> None:
    found = mistake(replace(Job("one", ops=(Op(us=1.0),)), **changed))
    assert (found is None) == (wrong is None)
    assert wrong is None or (found and wrong in found[0] and found[1])


def test_a_request_is_bounded(tmp_path: Path) -> None:
    assert read(tmp_path, "layers = 10_000_000").layers == 10_000_000
    with pytest.raises(Problem, match="more than 10000000 operations"):
        (tmp_path / "two.toml").write_text(
            '[[job]]\nname = "two"\nlayers = 5_000_001\n[[job.ops]]\nus = 1\nrepeat = 2\n'
        )
        files.read_workload(tmp_path / "two.toml")
