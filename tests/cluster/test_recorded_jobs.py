"""A recorded job as one of a pair, its traits, the groups' formula, and what a cluster is given."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

from cotenant.classes import TenantClass
from cotenant.cluster.logs.interface import LoggedJob
from cotenant.cluster.placement.fleet import Fleet
from cotenant.cluster.placement.fleet import Job as Placed
from cotenant.cluster.placement.interference import PairTable, Part
from cotenant.cluster.predict import jobs
from cotenant.cluster.predict.pairs import simulated, study_of
from cotenant.cluster.predict.traits import traits_of
from cotenant.cluster.simulation.kinds import Kind, interference
from cotenant.cluster.simulation.scenario import at_load, job_of, repeated, scenario, service
from cotenant.cluster.simulation.study import outcomes, policy_names
from cotenant.errors import Problem
from cotenant.simulator.workload import OP_RECORD, ArrivalKind, Arrivals, Job, Op, OpKind, Program


def program(requests: int, each: int = 2) -> Program:
    """Operations are numbered by their length; each first one of a request waits and has a gap of its number in ms."""
    ops = np.zeros(requests * each, dtype=OP_RECORD)
    ops["us"] = np.arange(1, len(ops) + 1)
    ops["sync"][::each] = 1
    ops["gap_us"][::each] = 1000 * np.arange(requests)
    return Program(ops, np.arange(each, len(ops) + 1, each, dtype=np.uint32))


def test_production_repeats_the_request_from_the_middle() -> None:
    one = jobs.one_request(program(5))
    assert one.ops["us"].tolist() == [5, 6] and one.request_ends.tolist() == [2]
    assert one.ops["gap_us"].tolist() == [30, 0] and one.ops["sync"].tolist() == [0, 0]
    assert jobs.one_request(program(1)).ops["us"].tolist() == [1, 2]


def test_the_other_job_repeats_the_middle_half_and_waits_for_nothing() -> None:
    ahead = jobs.running_ahead(program(8))
    assert ahead.ops["us"].tolist() == list(range(7, 15)) and not ahead.ops["sync"].any()
    assert ahead.request_ends.tolist() == [2, 4, 6, 8]
    few = jobs.running_ahead(program(3))
    assert few.ops["us"].tolist() == [1, 2, 3, 4, 5, 6] and not few.ops["sync"].any()
    assert few.request_ends.tolist() == [2, 4, 6]


def test_pauses_are_those_before_all_requests_but_the_first() -> None:
    assert jobs.pauses_ms(program(12)) == pytest.approx((2.0, 10.0))
    assert jobs.pauses_ms(program(1)) == (0.0, 0.0)


def test_a_job_becomes_production_at_a_rate_or_at_its_own_pace() -> None:
    recorded = Job("one", TenantClass.standard, program=program(12))
    paced = jobs.production(recorded, None)
    assert (paced.tenant_class, paced.arrivals) == (TenantClass.production, Arrivals())
    assert paced.think_ms == pytest.approx((2.0, 10.0))
    rated = jobs.production(recorded, 50.0)
    assert (rated.think_ms, rated.arrivals) == ((0.0, 0.0), Arrivals(ArrivalKind.poisson, 50.0))
    other = jobs.other(recorded)
    assert (other.tenant_class, other.waits) == (TenantClass.opportunistic, False)
    assert other.program is not None and len(other.program.request_ends) == 6
    made = Job("two", ops=(Op(us=1.0),), think_ms=(1.0, 2.0))
    assert jobs.production(made, 50.0).think_ms == (1.0, 2.0)
    assert jobs.other(made).tenant_class is TenantClass.opportunistic and not jobs.other(made).waits


def test_a_recorded_job_is_a_trace_or_a_file_with_one_job(tmp_path: Path) -> None:
    text = '[[job]]\nname = "{}"\n[[job.ops]]\nus = 1\n'
    (tmp_path / "one.toml").write_text(text.format("a"))
    assert jobs.read(tmp_path / "one.toml").name == "a"
    (tmp_path / "two.toml").write_text(text.format("a") + text.format("b"))
    with pytest.raises(Problem, match="has 2 jobs, not one"):
        jobs.read(tmp_path / "two.toml")
    with pytest.raises(Problem, match="is no recorded job"):
        jobs.read(tmp_path / "one.csv")


def test_traits_are_shares_of_the_time() -> None:
    ops = np.zeros(4, dtype=OP_RECORD)
    ops["us"] = (1000.0, 999.0, 500.0, 501.0)
    ops["kind"] = (OpKind.kernel, OpKind.kernel, OpKind.copy_to_host, OpKind.copy_on_device)
    made = Program(ops, np.array([2, 4], dtype=np.uint32))
    # Two requests of 1500 us of work each, which take 2000 alone.
    assert astuple(traits_of(made, 0.4, 2000.0)) == pytest.approx((0.4, 0.25, 1 / 3, 1 / 6))
    assert astuple(traits_of(made, 1.4, 1000.0)) == pytest.approx((1.0, 0.0, 1 / 3, 1 / 6))
    assert traits_of(made, 0.0, 0.0).idle_inside == 0


def test_two_copies_of_a_job_have_two_names_and_an_unknown_mode_is_refused() -> None:
    one = Job("one", ops=(Op(us=1.0),))
    study = study_of(one, one)
    assert [job.name for job in study.workload.jobs] == ["one", "one-2"]
    assert (study.workload.name, study.seed, study.seconds) == ("one+one-2", 1, 20.0)
    with pytest.raises(Problem, match="unknown way of sharing 'turns'"):
        simulated(one, one, "turns")
    with pytest.raises(Problem, match="unknown way of sharing 'turns'"):
        interference("turns")


def test_groups_follow_from_pairs() -> None:
    p, q, a, b = Part("p", True), Part("q", True), Part("a", False), Part("b", False)
    table = PairTable(
        {
            (p, a): 1.1, (p, b): 1.3, (p, q): 1.5, (q, p): 1.25, (a, p): 2.0, (a, q): 3.0, (a, b): 1.75, (b, a): 1.5,
            (b, p): 4.0, (q, a): 1.2, (q, b): 1.05, (b, q): 2.0,
        }
    )  # fmt: skip
    assert table.slowdowns([p, a, b]) == pytest.approx((1.3, 2.0 * 1.75, 4.0 * 1.5))
    assert table.slowdowns([p, q]) == pytest.approx((1.5, 1.25))
    assert table.slowdowns([p, q, a]) == pytest.approx((1.5, 1.25, 6.0))
    assert table.slowdowns([a]) == (1,) and table.slowdowns([p]) == (1,)
    assert PairTable({}).slowdowns([p, a]) == (2.0, 2.0)


def test_room_is_taken_and_given_back() -> None:
    fleet = Fleet([100, 100])
    job = Placed("j", "k", TenantClass.standard, share=0.6, memory_bytes=60, gpus=2)
    below = Placed("o", "k", TenantClass.opportunistic, share=1.0, memory_bytes=40)
    fleet.add(job, (0, 1))
    assert fleet.free_bytes.tolist() == [40, 40] and fleet.free_shares[0].tolist() == pytest.approx(
        [0.4, 0.4]
    )
    assert fleet.fits(below).all() and not fleet.fits(Placed("x", memory_bytes=41)).any()
    assert fleet.fits(Placed("x", tenant_class=TenantClass.production, share=0.4)).all()
    assert not fleet.fits(Placed("x", tenant_class=TenantClass.production, share=0.41)).any()
    copied = fleet.copy()
    copied.add(below, (1,))
    assert (fleet.tenants.tolist(), copied.tenants.tolist()) == ([1, 1], [1, 2])
    assert copied.groups[0] != copied.groups[1]
    assert copied.remove(job) == (0, 1) and copied.free_bytes.tolist() == [100, 60]
    assert [one.id for one in copied.residents[1]] == ["o"] and copied.residents[0] == ()


LOGGED = [LoggedJob("a", 0.0, 100.0), LoggedJob("b", 10.0, 50.0, 2, 0.5, True), LoggedJob("c", 30.0, 60.0, 8)]
KINDS = {
    "serve": Kind("serve", True, True, 0.3, 0.2, 10, 1.0),
    "train": Kind("train", False, False, 0.9, 0.8, 20, 0.0),
}


def test_a_scenario_has_services_and_the_logs_jobs_by_class() -> None:
    found = scenario("log", LOGGED, KINDS, 4, 100, services=2, promise=0.1)
    assert [job.id for job in found.services] == ["service-0", "service-1"]
    assert found.services[0] == Placed("service-0", "serve", TenantClass.production, 1.0, 10, slowdown=0.1)
    assert [(one.job.id, one.job.kind, one.at_s, one.seconds, one.is_timed) for one in found.coming] == [
        ("a#0", "train", 0.0, 100.0, False),
        ("b#0", "serve", 10.0, 50.0, True),
    ]
    shared = Placed("b", "serve", TenantClass.production, 0.5, 10, 2, 0.1)
    assert job_of(LOGGED[1], KINDS["serve"], 0.1) == shared
    assert [one.job.slowdown for one in found.coming] == [None, 0.1]
    every = scenario("log", LOGGED, KINDS, 8, 100, production=1.0)
    assert [one.job.kind for one in every.coming] == ["serve", "serve", "serve"]
    assert service("s", KINDS["serve"], None).slowdown is None
    with pytest.raises(Problem, match="5 services do not fit on 4 GPUs"):
        scenario("log", LOGGED, KINDS, 4, 100, services=5)
    with pytest.raises(Problem, match="no job of log fits on 1 GPUs"):
        scenario("log", LOGGED[1:], KINDS, 1, 100)


def test_a_log_is_repeated_and_moved_together_by_what_it_asks_for() -> None:
    again = repeated(LOGGED, 5)
    assert [(one.id, one.at_s) for one in again] == [
        ("a#0", 0.0), ("b#0", 10.0), ("c#0", 30.0), ("a#1", 45.0), ("b#1", 55.0),
    ]  # fmt: skip
    # 100 + 50 * 2 * 0.5 + 60 * 8 = 630 seconds of GPUs, of which 4 have 0.5 in 315 s.
    assert [one.at_s for one in at_load(LOGGED, 0.5, 4)] == pytest.approx([0.0, 105.0, 315.0])


def test_policies_are_named_once_each_and_a_cluster_has_one_log() -> None:
    assert policy_names("first-fit, muxflow,,first-fit") == ["first-fit", "muxflow"]
    assert len(policy_names("all")) == len(set(policy_names("all"))) > 5
    for wrong, said in ((" , ", "no placement policy given"), ("fist-fit", "unknown placement policy")):
        with pytest.raises(Problem, match=said):
            policy_names(wrong)
    with pytest.raises(Problem, match="a cluster has one log, not 2"):
        outcomes(["a", "b"], "all", "h200", 0)
