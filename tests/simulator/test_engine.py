"""Small scenarios, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

import pytest

from cotenant.errors import Problem
from cotenant.policies.interface import Knobs, Rule, TenantKnobs, View
from cotenant.simulator import ArrivalKind, Arrivals, Job, Op, OpKind, Recording, Study, Workload
from tests.simulator.small import (
    CUT_US,
    DRAIN_US,
    LAUNCH_US,
    NONE,
    OPEN_US,
    OPPORTUNISTIC,
    PRODUCTION,
    STANDARD,
    STRICT,
    TOGETHER,
    URGENT_FIRST,
    Fixed,
    listed,
    once,
    policy,
    run,
    small_gpu,
)


def ended_us(outcome: object, tenant: int = 0) -> float:
    completion = outcome.tenants[tenant].completion_s  # type: ignore[attr-defined]
    assert completion is not None
    return float(completion * 1e6)


def test_kernels_follow_each_other_without_the_cpu() -> None:
    assert ended_us(run(once("job", Op(us=100, repeat=10)))) == pytest.approx(LAUNCH_US + 1000)


def test_a_slow_cpu_is_what_a_job_waits_for() -> None:
    outcome = run(once("job", Op(us=10, gap_us=50, repeat=20)))
    assert ended_us(outcome) == pytest.approx(20 * 50 + LAUNCH_US + 10)
    assert outcome.busy == pytest.approx(200 / (20 * 50 + LAUNCH_US + 10), rel=1e-3)


def test_a_synchronisation_puts_the_cpu_behind_the_gpu() -> None:
    assert ended_us(run(once("job", Op(us=100, gap_us=20, sync=True, repeat=5)))) == pytest.approx(
        5 * (20 + LAUNCH_US + 100)
    )


def test_copies_take_what_the_link_gives() -> None:
    outcome = run(once("job", Op(OpKind.copy_to_device, bytes=10_000_000)))
    assert ended_us(outcome) == pytest.approx(LAUNCH_US + 1000)


def test_two_copies_in_one_direction_share_the_link_and_in_two_do_not() -> None:
    copy = Op(OpKind.copy_to_device, bytes=10_000_000)
    back = Op(OpKind.copy_to_host, bytes=10_000_000)
    assert ended_us(run(once("a", copy), once("b", copy))) == pytest.approx(LAUNCH_US + 2000)
    assert ended_us(run(once("a", copy), once("b", back))) == pytest.approx(LAUNCH_US + 1000)


def test_what_asks_for_more_than_the_gpu_has_takes_longer() -> None:
    assert ended_us(run(once("job", Op(us=100, sms=20)))) == pytest.approx(LAUNCH_US + 200)
    assert ended_us(run(once("job", Op(us=100, gbps=300)))) == pytest.approx(LAUNCH_US + 300)


def test_contexts_take_turns_of_a_slice_and_a_switch() -> None:
    # a runs from 2 to 1002, b from 1202 to 2202, a from 2402 to 2902, b from 3052 on: a has nothing left to be cut.
    outcome = run(once("a", Op(us=1500)), once("b", Op(us=1500)))
    assert ended_us(outcome, 0) == pytest.approx(LAUNCH_US + 1000 + CUT_US + 1000 + CUT_US + 500)
    assert ended_us(outcome, 1) == pytest.approx(ended_us(outcome, 0) + DRAIN_US + 500)
    assert [tenant.preemptions for tenant in outcome.tenants] == [1, 1]


def test_together_a_kernel_runs_beside_another_on_the_sms_that_are_left() -> None:
    outcome = run(once("a", Op(us=1000, sms=6)), once("b", Op(us=1000, sms=4)), under=TOGETHER)
    assert ended_us(outcome, 0) == pytest.approx(LAUNCH_US + 1000)
    assert ended_us(outcome, 1) == pytest.approx(LAUNCH_US + 1000)


def test_together_whoever_came_first_keeps_its_sms() -> None:
    # b has the four SMs that a leaves, half of what it asks for, until a is done.
    outcome = run(once("a", Op(us=1000, sms=6)), once("b", Op(us=1000, sms=8)), under=TOGETHER)
    assert ended_us(outcome, 0) == pytest.approx(LAUNCH_US + 1000)
    assert ended_us(outcome, 1) == pytest.approx(LAUNCH_US + 1000 + 500)


def test_together_without_an_order_kernels_share_in_proportion() -> None:
    outcome = run(once("a", Op(us=1000)), once("b", Op(us=1000)), under=TOGETHER, gpu=small_gpu(keep_us=0))
    assert ended_us(outcome, 0) == pytest.approx(LAUNCH_US + 2000)


def test_together_without_an_order_the_more_urgent_has_its_sms_first() -> None:
    high, low = once("high", Op(us=1000, sms=6)), once("low", Op(us=1000), tenant_class=OPPORTUNISTIC)
    outcome = run(low, high, under=URGENT_FIRST, gpu=small_gpu(keep_us=0))
    assert ended_us(outcome, 1) == pytest.approx(LAUNCH_US + 1000)
    assert ended_us(outcome, 0) == pytest.approx(LAUNCH_US + 1000 + 600)


def test_what_company_costs_beyond_sms_and_bandwidth_can_be_told() -> None:
    jobs = once("a", Op(us=1000, sms=6)), once("b", Op(us=1000, sms=4))
    taxed = run(*jobs, under=TOGETHER, gpu=small_gpu(together_tax=0.2))
    assert ended_us(taxed, 0) == pytest.approx(LAUNCH_US + 1000 / 0.8)
    contended = run(*jobs, under=TOGETHER, gpu=small_gpu(contention=0.5))
    # Beside four SMs of the other a has 0.8 of its speed, b beside six 0.7; when a is done b has all of it.
    assert ended_us(contended, 0) == pytest.approx(LAUNCH_US + 1000 / 0.8)
    assert ended_us(contended, 1) == pytest.approx(LAUNCH_US + 1250 + (1000 - 1250 * 0.7))


def test_cold_caches_make_a_switch_longer() -> None:
    jobs = once("a", Op(us=1500)), once("b", Op(us=1500))
    warm, cold = (run(*jobs, gpu=small_gpu(cold_us=us)) for us in (0, 30))
    assert ended_us(cold, 0) == pytest.approx(ended_us(warm, 0) + 2 * 30)


def test_a_copy_on_the_device_draws_all_of_its_bandwidth() -> None:
    copy = Op(OpKind.copy_on_device, bytes=100_000_000)  # 1 ms
    outcome = run(once("copy", copy), once("kernel", Op(us=1000, sms=5, gbps=100)), under=TOGETHER)
    assert ended_us(outcome, 0) == pytest.approx(LAUNCH_US + 2000)
    assert ended_us(outcome, 1) == pytest.approx(LAUNCH_US + 2000)
    dry = run(once("copy", copy), once("kernel", Op(us=1000, sms=5)), under=TOGETHER)
    assert ended_us(dry, 1) == pytest.approx(LAUNCH_US + 1000)


def test_too_little_bandwidth_slows_all_who_draw_on_it() -> None:
    hungry = Op(us=1000, sms=4, gbps=80)
    outcome = run(once("a", hungry), once("b", hungry), once("dry", Op(us=1000, sms=2)), under=TOGETHER)
    assert [ended_us(outcome, i) for i in range(3)] == pytest.approx(
        [LAUNCH_US + 1600, LAUNCH_US + 1600, LAUNCH_US + 1000]
    )


def test_a_priority_counts_when_a_block_ends() -> None:
    low = once("low", Op(us=5000, block_us=300), tenant_class=OPPORTUNISTIC)
    gpu = small_gpu(blocks=1)
    high = Job("high", ops=(Op(us=100),), arrivals=listed(0.001), requests=1)
    assert run(high, low, under=TOGETHER).tenants[0].latency.most_us == pytest.approx(
        5000 - 1000 + LAUNCH_US + 100, abs=1
    )
    # Blocks end at 302, 602, 902, 1202: it came at 1002.
    assert run(high, low, under=URGENT_FIRST, gpu=gpu).tenants[0].latency.most_us == pytest.approx(
        200 + LAUNCH_US + 100, abs=1
    )


@pytest.mark.parametrize("work", [Op(us=20, repeat=1000), Op(OpKind.graph, us=50_000)])
def test_an_arrival_waits_for_the_next_gate_of_short_kernels(work: Op) -> None:
    # Also inside a graph. The slice of 1 ms, which would end at 10002, is begun anew.
    serving = Job("serving", ops=(Op(us=100, repeat=10),), arrivals=listed(0.0101), requests=1)
    training = Job("training", OPPORTUNISTIC, (work,), waits=False)
    outcome = run(serving, training, under=STRICT)
    waited = outcome.tenants[0].latency.most_us - LAUNCH_US - DRAIN_US - 1000
    assert 0 < waited <= 110
    assert outcome.tenants[1].preemptions == 0


@pytest.mark.parametrize(("arrival_s", "cuts"), [(0.5001, 0), (2.4001, 1), (6.0001, 0)])
def test_cut_or_drain_follows_the_kernels_of_the_last_second(arrival_s: float, cuts: int) -> None:
    ops = (Op(us=20, repeat=50_000), Op(us=600, repeat=3300), Op(us=20, repeat=200_000))
    serving = Job("serving", ops=(Op(us=100, repeat=10),), arrivals=listed(arrival_s), requests=1)
    training = Job("training", OPPORTUNISTIC, ops, waits=False)
    assert run(serving, training, under=STRICT, seconds=6.1).tenants[1].preemptions == cuts


def test_a_long_kernel_that_is_seldom_met_is_no_reason_to_cut() -> None:
    ops = (Op(us=20, repeat=45_000), Op(us=5000), Op(us=20, repeat=45_000))
    serving = Job("serving", ops=(Op(us=100, repeat=10),), arrivals=listed(1.2001), requests=1)
    training = Job("training", OPPORTUNISTIC, ops, waits=False)
    assert run(serving, training, under=STRICT, seconds=1.3).tenants[1].preemptions == 0


def test_a_graph_that_stood_at_a_gate_inside_ends_with_all_its_work_done() -> None:
    serving = Job("serving", ops=(Op(us=1000),), arrivals=listed(0.001, 0.004, 0.007), requests=3)
    training = once("training", Op(OpKind.graph, us=5000), tenant_class=OPPORTUNISTIC)
    outcome = run(serving, training, under=STRICT)
    assert outcome.tenants[1].held_s > 0.003
    assert outcome.tenants[1].work_us == pytest.approx(5000, abs=1)
    assert ended_us(outcome, 1) > 8000


def test_a_closed_gate_holds_at_the_next_gate() -> None:
    serving = Job("serving", ops=(Op(us=1000),), arrivals=listed(0.01), requests=1)
    training = Job("training", OPPORTUNISTIC, (Op(us=20, repeat=1000),), waits=False)
    outcome = run(serving, training, under=STRICT, seconds=0.02)
    request = next(span for span in outcome.spans if span.tenant == "serving")
    behind = [
        span for span in outcome.spans if span.tenant == "training" and span.start_us >= request.start_us
    ]
    # What was queued past the last gate goes on when production is done, then the gate opens.
    first = [span for span in behind if span.start_us < request.end_us + 400]
    assert sum(span.end_us - span.start_us for span in first[:5]) <= 120
    assert outcome.tenants[1].held_s > 0.001


class TolerantFromTheSecondTick(Fixed):
    def tick(self, view: View) -> Knobs:
        knobs = TenantKnobs(tolerant=view.now_us >= 10_000)
        return Knobs(rule=Rule.strict, tenants={0: knobs})


def test_a_graph_goes_on_where_its_gate_opens_before_it_got_there() -> None:
    # The request comes 50 us before the tick: the gate closes, and the graph is 52 us from its next gate inside.
    serving = Job("serving", ops=(Op(us=100),), arrivals=listed(0.00995), requests=1)
    training = once("training", Op(OpKind.graph, us=50_000), tenant_class=OPPORTUNISTIC)
    outcome = run(serving, training, under=TolerantFromTheSecondTick)
    assert outcome.tenants[1].held_s == pytest.approx(48e-6, abs=1e-6)
    assert outcome.tenants[1].work_us == pytest.approx(50_000, abs=1)


def test_equals_take_turns_by_weight() -> None:
    jobs = [
        Job(name, STANDARD, (Op(us=100, repeat=50),), waits=False, weight=weight)
        for name, weight in (("heavy", 3.0), ("light", 1.0))
    ]
    heavy, light = run(*jobs, under=STRICT, seconds=5).tenants
    assert heavy.work_us / light.work_us == pytest.approx(3, rel=0.05)


def test_who_had_the_gpu_to_itself_comes_back_without_a_debt() -> None:
    # It used a second alone; the other has used a tenth of one when it comes back, and then both have turns.
    first = Job("first", STANDARD, (Op(us=100, repeat=2000),), arrivals=listed(0, 0.2, 0.4, 0.6, 0.8, 1.2))
    endless = Job("endless", STANDARD, (Op(us=100, repeat=50),), waits=False, begins_s=1.1)
    outcome = run(first, endless, under=STRICT, seconds=1.7)
    assert outcome.tenants[0].requests == 6
    assert outcome.tenants[1].share == pytest.approx(0.6, abs=0.1)  # alone for 0.1 and 0.1 s, half of 0.4


def test_who_was_idle_comes_back_without_a_right_to_all_that_the_others_used() -> None:
    endless = Job("endless", STANDARD, (Op(us=100, repeat=50),), waits=False)
    late = Job("late", STANDARD, (Op(us=100, repeat=50),), waits=False, begins_s=1.0)
    outcome = run(endless, late, under=STRICT, seconds=1.5)
    assert outcome.tenants[0].work_us == pytest.approx(1.25e6, rel=0.02)
    assert outcome.tenants[1].work_us == pytest.approx(0.25e6, rel=0.1)


def test_a_rate_is_kept() -> None:
    limited = policy(Knobs(rule=Rule.strict, tenants={0: TenantKnobs(rate=0.3)}))
    job = Job("job", OPPORTUNISTIC, (Op(us=50, repeat=50),), waits=False)
    neighbour = Job("neighbour", ops=(Op(us=10),), arrivals=Arrivals(ArrivalKind.uniform, rate=2))
    assert run(job, neighbour, under=limited, seconds=5).tenants[0].share == pytest.approx(0.3, abs=0.03)
    assert run(job, under=limited, seconds=5).tenants[0].share == pytest.approx(0.3, abs=0.03)


def test_a_rate_of_nothing_is_next_to_nothing_and_none_is_no_limit() -> None:
    job = Job("job", OPPORTUNISTIC, (Op(us=100, repeat=10),), waits=False)
    for rate, share in ((0.0, 0.0), (None, 1.0)):
        limited = policy(Knobs(rule=Rule.strict, tenants={0: TenantKnobs(rate=rate)}))
        assert run(job, under=limited).tenants[0].share == pytest.approx(share, abs=0.05)


def test_a_floor_is_kept_beside_production_that_never_rests() -> None:
    serving = Job("serving", ops=(Op(us=1000, sms=5, repeat=10),), waits=False)
    floor = Job("floor", OPPORTUNISTIC, (Op(us=50, sms=5, repeat=50),), waits=False, floor=0.1)
    without = Job("without", OPPORTUNISTIC, (Op(us=50, sms=5, repeat=50),), waits=False)
    side_by_side = policy(Knobs(rule=Rule.strict), sharing="together")
    outcome = run(serving, floor, without, under=side_by_side, seconds=5)
    assert outcome.tenants[2].work_us <= 100  # launched before anybody had closed its gate
    assert outcome.tenants[1].share == pytest.approx(0.1, abs=0.03)


@pytest.mark.parametrize("work", [Op(us=50, repeat=50), Op(us=20_000), Op(OpKind.graph, us=20_000)])
def test_a_floor_is_kept_where_contexts_take_turns(work: Op) -> None:
    serving = Job("serving", ops=(Op(us=1000, repeat=10),), waits=False)
    floor = Job("floor", OPPORTUNISTIC, (work,), waits=False, floor=0.2)
    production, below = run(serving, floor, under=STRICT, seconds=5).tenants
    assert below.share == pytest.approx(0.2, abs=0.01)
    assert production.share > 0.7


def test_under_fair_classes_take_turns_by_weight_alone() -> None:
    fair = policy(Knobs(rule=Rule.fair))
    jobs = [
        Job(name, tenant_class, (Op(us=100, repeat=50),), waits=False, weight=weight)
        for name, tenant_class, weight in (("below", OPPORTUNISTIC, 3.0), ("above", PRODUCTION, 1.0))
    ]
    below, above = run(*jobs, under=fair, seconds=5).tenants
    assert below.work_us / above.work_us == pytest.approx(3, rel=0.05)


def test_gates_are_passed_only_where_somebody_may_have_to_be_waited_for() -> None:
    training = Job("training", OPPORTUNISTIC, (Op(us=50, repeat=50),), waits=False)
    idle = Job("idle", ops=(Op(us=10),), arrivals=listed(10))
    below = Job("below", OPPORTUNISTIC, (Op(us=10),), arrivals=listed(10))
    standard = replace(training, tenant_class=STANDARD)
    assert run(training, under=STRICT).tenants[0].gates <= 1e6 / 5000  # alone: one for 5 ms at most
    assert run(training, idle, under=STRICT).tenants[0].gates > 1000
    assert run(training, below, under=STRICT).tenants[0].gates > 1000  # an equal has turns
    assert run(standard, below, under=STRICT).tenants[0].gates <= 1e6 / 5000  # what is below it has not
    limited = policy(Knobs(rule=Rule.strict, tenants={0: TenantKnobs(rate=0.9)}))
    assert run(training, under=limited).tenants[0].gates > 1000


@pytest.mark.parametrize("rule", [Rule.orion, Rule.lanes])
def test_whoever_is_shut_or_over_its_rate_waits_under_modelled_rules_too(rule: Rule) -> None:
    job = Job("job", OPPORTUNISTIC, (Op(us=50, repeat=50),), waits=False)
    shut = policy(Knobs(rule=rule, tenants={0: TenantKnobs(shut=True)}), sharing="together")
    assert run(job, under=shut).tenants[0].work_us == 0
    limited = policy(
        Knobs(rule=rule, tenants={0: TenantKnobs(rate=0.3)}, parameters=(10, 1e9)), sharing="together"
    )
    assert run(job, under=limited, seconds=5).tenants[0].share == pytest.approx(0.3, abs=0.05)


def test_whoever_is_shut_does_not_run_and_keeps_no_equal_waiting() -> None:
    shut = policy(Knobs(rule=Rule.strict, tenants={0: TenantKnobs(shut=True)}))
    jobs = [Job(name, OPPORTUNISTIC, (Op(us=50, repeat=50),), waits=False) for name in ("shut", "free")]
    outcome = run(*jobs, under=shut)
    assert outcome.tenants[0].work_us < 200  # what it had launched before the first gate
    assert outcome.tenants[1].share > 0.9


def test_production_that_tolerates_company_keeps_nobody_waiting() -> None:
    tolerant = policy(Knobs(rule=Rule.strict, tenants={0: TenantKnobs(tolerant=True)}))
    serving = Job("serving", ops=(Op(us=100, repeat=10),), waits=False)
    training = Job("training", OPPORTUNISTIC, (Op(us=100, repeat=10),), waits=False)
    assert run(serving, training, under=STRICT).tenants[1].held_s > 0.9
    assert run(serving, training, under=tolerant).tenants[1].held_s == 0


def test_an_sm_share_bounds_a_kernel() -> None:
    half = policy(Knobs(rule=Rule.none, tenants={0: TenantKnobs(sm_share=0.5)}), sharing="together")
    outcome = run(Job("job", ops=(Op(us=100, repeat=10),)), under=half)
    assert outcome.tenants[0].share == pytest.approx(0.5, rel=0.01)
    assert outcome.sm_activity == pytest.approx(0.5, rel=0.01)


def test_an_sm_share_bounds_every_kernel_also_behind_one_that_fits() -> None:
    half = policy(Knobs(rule=Rule.none, tenants={0: TenantKnobs(sm_share=0.5)}), sharing="together")
    outcome = run(once("job", *(Op(us=100, sms=2), Op(us=100, sms=10)) * 10), under=half)
    assert ended_us(outcome) == pytest.approx(LAUNCH_US + 10 * (100 + 200))


def test_a_time_slice_can_be_chosen() -> None:
    jobs = [Job(name, ops=(Op(us=50_000),), waits=False) for name in ("long", "short")]
    slices = {0: TenantKnobs(time_slice_us=4000), 1: TenantKnobs(time_slice_us=1000)}
    long, short = run(*jobs, under=policy(Knobs(rule=Rule.none, tenants=slices)), seconds=5).tenants
    assert long.work_us / short.work_us == pytest.approx(4, rel=0.02)


def test_the_grace_is_learned_from_the_jobs_own_pauses() -> None:
    # Pauses of 1 ms inside a request are waited out, so the other is let in once a request and not five times.
    ops = (Op(us=500), *(Op(us=500, gap_us=1000, sync=True) for _ in range(4)))
    serving = Job("serving", ops=ops, arrivals=Arrivals(ArrivalKind.uniform, rate=10))
    training = Job("training", OPPORTUNISTIC, (Op(us=100, repeat=10),), waits=False)
    outcome = run(serving, training, under=STRICT, seconds=10)
    assert outcome.tenants[0].bursts < 1.5 * outcome.tenants[0].requests


def test_the_grace_is_learned_from_pauses_in_which_nobody_else_could_have_run() -> None:
    # Pauses of 202 us: the shortest grace above them is 40 us times the tenth quarter of a doubling, 226 us, not 300.
    serving = once("serving", Op(us=100), Op(us=100, gap_us=200, sync=True, repeat=20))
    training = Job("training", OPPORTUNISTIC, (Op(us=100, repeat=10),), waits=False)
    outcome = run(
        replace(serving, requests=2, arrivals=listed(0.01, 1)), training, under=STRICT, seconds=0.03
    )
    ended = max(span.end_us for span in outcome.spans if span.tenant == "serving")
    first = min(span.start_us for span in outcome.spans if span.start_us >= ended)
    assert first - ended == pytest.approx(40 * 2**2.5 + OPEN_US + DRAIN_US, abs=2)


def test_a_pause_longer_than_its_grace_is_given_away_whoever_ticks() -> None:
    seldom = policy(Knobs(rule=Rule.strict), every_ms=10_000)
    serving = Job("serving", ops=(Op(us=500, gap_us=5000, sync=True, repeat=1000),))
    training = Job("training", OPPORTUNISTIC, (Op(us=100, repeat=10),), waits=False)
    assert run(serving, training, under=seldom, seconds=2).tenants[1].share > 0.7


def test_a_context_that_pauses_leaves_the_gpu_to_one_that_waits() -> None:
    # A kernel, a switch, a slice of the other's, a cut: 1000 of 1450 us.
    eager = Job("eager", ops=(Op(us=100, gap_us=100, sync=True, repeat=1000),))
    endless = Job("endless", ops=(Op(us=5000),), waits=False)
    assert run(eager, endless).tenants[1].share == pytest.approx(1000 / 1450, abs=0.03)


def test_each_gate_costs_its_time() -> None:
    job = once("job", Op(us=50, repeat=1000), tenant_class=OPPORTUNISTIC)
    idle = Job("idle", ops=(Op(us=10),), arrivals=listed(10))
    outcome = run(job, idle, under=STRICT, gpu=small_gpu(gate_us=3))
    assert outcome.tenants[0].gates == pytest.approx(500, abs=2)  # one for 100 us
    assert ended_us(outcome) == pytest.approx(LAUNCH_US + 50_000 + 3 * outcome.tenants[0].gates, abs=1)


def test_requests_wait_for_the_one_before_and_latency_counts_from_arrival() -> None:
    serving = Job("serving", ops=(Op(us=1000),), arrivals=listed(0.0, 0.0, 0.0), requests=3)
    tenant = run(serving).tenants[0]
    latency, service = tenant.latency, tenant.service
    assert latency.least_us == pytest.approx(1000 + LAUNCH_US)
    assert latency.most_us == pytest.approx(3 * (1000 + LAUNCH_US))
    assert service.least_us == pytest.approx(1000 + LAUNCH_US)  # from when it was taken up
    assert service.most_us == pytest.approx(1000 + LAUNCH_US)


def test_bursts_and_pauses_last_as_long_as_was_said_and_the_mean_rate_is_kept() -> None:
    arrivals = Arrivals(ArrivalKind.bursty, rate=100, burst_s=0.4, pause_s=0.6)
    outcome = run(Job("job", ops=(Op(us=10),), arrivals=arrivals), seconds=60)
    starts = [span.start_us for span in outcome.spans]
    assert len(starts) == pytest.approx(6000, rel=0.25)
    # Within a burst they are 4 ms apart; a pause of over 100 ms follows six bursts of seven.
    pauses = [after - before for before, after in pairwise(starts) if after - before > 100_000]
    assert len(pauses) == pytest.approx(60 * 6 / 7, rel=0.35)
    assert sum(pauses) / len(pauses) == pytest.approx(700_000, rel=0.35)


def test_what_was_not_answered_has_waited() -> None:
    serving = Job("serving", ops=(Op(us=1000),), arrivals=Arrivals(ArrivalKind.uniform, rate=2000))
    tenant = run(serving, seconds=1).tenants[0]
    assert tenant.unanswered == pytest.approx(1000, abs=5)
    assert tenant.latency.count == tenant.requests + tenant.unanswered
    assert tenant.latency.most_us > 400_000


def test_memory_that_is_full_keeps_the_next_job_out() -> None:
    jobs = [
        Job(name, ops=(Op(us=10_000),), requests=10, memory_bytes=6 << 30) for name in ("first", "second")
    ]
    first, second = run(*jobs, under=NONE, seconds=2).tenants
    assert first.completion_s == pytest.approx(0.1, rel=0.01)
    assert second.completion_s == pytest.approx(0.2, rel=0.01)


def test_a_job_that_ends_gives_back_all_of_its_memory() -> None:
    jobs = [
        Job(name, ops=(Op(us=10_000),), requests=10, memory_bytes=2 << 30, ephemeral_bytes=6 << 30)
        for name in ("first", "second", "third")
    ]
    ended = [one.completion_s for one in run(*jobs, under=NONE).tenants]
    assert ended == pytest.approx([0.1, 0.2, 0.3], rel=0.01)


def test_how_far_the_cpu_runs_ahead_is_a_knob_where_gates_are_passed() -> None:
    # 10 ms of work and then 5 ms of the CPU's own: hidden, where it may be 10 ms ahead.
    ops = (Op(us=100, gap_us=5000), Op(us=100, repeat=99))
    job = Job("job", OPPORTUNISTIC, ops, waits=False)
    idle = Job("idle", ops=(Op(us=10),), arrivals=listed(10))
    near = policy(Knobs(rule=Rule.strict, in_flight_us=100))
    assert run(job, under=near).tenants[0].sm_share == pytest.approx(1, abs=0.01)
    assert run(job, idle, under=STRICT).tenants[0].sm_share == pytest.approx(1, abs=0.03)
    assert run(job, idle, under=near).tenants[0].sm_share == pytest.approx(10 / 15, abs=0.03)


def test_nobody_small_overtakes_somebody_large_that_waits_for_memory() -> None:
    large, larger = (
        Job(name, ops=(Op(us=10_000),), requests=10, memory_bytes=6 << 30) for name in ("large", "larger")
    )
    small = Job("small", ops=(Op(us=1000),), requests=1, memory_bytes=2 << 30, begins_s=0.01)
    outcome = run(large, larger, small, under=NONE, seconds=2)
    assert outcome.tenants[2].completion_s == pytest.approx(0.1 - 0.01 + 0.001, abs=0.005)


class Watched(Fixed):
    """What a controller is shown, at each tick."""

    sharing = "together"
    rule = Rule.lanes
    views: ClassVar[list[View]] = []

    def tick(self, view: View) -> Knobs:
        self.views.append(view)
        return Knobs(rule=self.rule)


class WatchedInTurns(Watched):
    """Alone its operations have no event each."""

    sharing = "timeslice"
    rule = Rule.none


def test_a_controller_is_shown_what_a_job_has_left_and_has_had() -> None:
    Watched.views.clear()
    job = Job("job", STANDARD, (Op(us=1000, repeat=10),), requests=10)
    other = Job("other", STANDARD, (Op(us=1000, repeat=10),), requests=10, begins_s=0.025)
    run(job, other, under=Watched, seconds=0.05)  # one lane: iterations of 10 ms in turn
    first, second = next(view.tenants for view in Watched.views if view.now_us == 40_000)
    assert first.alone_us == second.alone_us == pytest.approx(10_000)
    assert first.remaining_us == pytest.approx(70_000, abs=20)
    assert second.remaining_us == pytest.approx(90_000, abs=20)
    assert (first.requests, second.requests, second.arrived_us) == (3, 0, 25_000)
    assert first.used_us == pytest.approx(30_000, abs=20)  # the time that it waits is not its own
    assert second.used_us == pytest.approx(10_000, abs=20)
    assert first.busy_us == pytest.approx(40_000, abs=20)


@pytest.mark.parametrize("policy", [Watched, WatchedInTurns])
def test_a_controller_is_shown_how_long_a_job_waits_works_and_sleeps(policy: type[Watched]) -> None:
    Watched.views.clear()
    ops = (Op(us=500), Op(us=500, gap_us=100, sync=True))
    run(Job("job", STANDARD, ops, arrivals=listed(0.001, 0.011, 0.045)), under=policy, seconds=0.05)
    job = next(view.tenants[0] for view in Watched.views if view.now_us == 40_000)
    assert (job.requests, job.bursts, job.blocking_calls) == (2, 2, 4)
    # From the first kernel's start to the last one's end, without the grace period; in between the stream is empty.
    assert job.busy_us == pytest.approx(2 * (500 + 100 + LAUNCH_US + 500))
    assert job.gap_us == pytest.approx(2 * (100 + LAUNCH_US))
    assert job.blocked_us == pytest.approx(4 * (LAUNCH_US + 500))
    assert job.own_cpu_us == pytest.approx(2 * 100)
    # As soon as it is known: until the third request comes.
    assert job.asleep_us == pytest.approx(45_000 - 2 * (2 * (LAUNCH_US + 500) + 100))


def test_alone_there_is_no_event_for_each_operation() -> None:
    outcome = run(Job("job", ops=(Op(us=10, gap_us=2, repeat=1000),), waits=False), seconds=10)
    assert outcome.operations > 900_000
    assert outcome.gpus[0].events < outcome.operations / 100


def test_a_kernel_that_is_killed_begins_anew() -> None:
    serving = Job("serving", ops=(Op(us=100),), arrivals=listed(0.001), requests=1)
    training = once("training", Op(us=5000), tenant_class=OPPORTUNISTIC)
    outcome = Study(Workload("test", (serving, training)), small_gpu(), 1.0).run("reef")
    killed = outcome.tenants[1]
    assert killed.preemptions == 1
    assert killed.wasted_us == pytest.approx(1000, abs=1)
    assert killed.work_us == pytest.approx(5000, abs=1)
    assert killed.completion_s is not None and killed.completion_s > 0.006


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (Job("job"), "it needs ops or a program"),
        (Job("job", ops=(Op(us=-1),)), "cannot be"),
        (Job("job", ops=(Op(),)), "has no length"),
        (Job("job", ops=(Op(us=1),), arrivals=Arrivals(ArrivalKind.poisson)), "need a rate"),
        (Job("job", ops=(Op(us=1),), floor=1.0), "the floors on one GPU add up to 100%"),
        (Job("job", ops=(Op(us=1),), weight=0), "its weight"),
    ],
)
def test_a_job_that_cannot_be_is_refused(job: Job, said: str) -> None:
    with pytest.raises(Problem, match=said):
        Study(Workload("test", (job,)), small_gpu())


@pytest.mark.parametrize(("ephemeral_bytes", "fits"), [(4 << 30, True), ((4 << 30) + 1, False)])
@pytest.mark.parametrize("requests", [0, 1])
def test_a_job_may_need_all_of_the_memory_and_no_more(
    ephemeral_bytes: int, fits: bool, requests: int
) -> None:
    job = Job("job", ops=(Op(us=1),), requests=requests, gpu=0, memory_bytes=6 << 30)
    workload = Workload("test", (replace(job, ephemeral_bytes=ephemeral_bytes),))
    if fits:
        Study(workload, small_gpu(), 0.001)
    else:
        with pytest.raises(Problem, match=r"needs? 10\.0 GiB"):
            Study(workload, small_gpu(), 0.001)


@pytest.mark.parametrize("gpu", [-1, 1])
def test_a_job_on_a_gpu_that_is_not_there_is_refused(gpu: int) -> None:
    with pytest.raises(Problem, match=f"is on GPU {gpu}, there are 1"):
        Study(Workload("test", (Job("job", ops=(Op(us=1),), gpu=gpu),)), small_gpu())


def test_a_timeline_shows_the_middle_of_the_run() -> None:
    job = Job("job", ops=(Op(us=10_000),), arrivals=listed(0.2, 0.47, 0.548, 0.8), requests=4)
    recording = Recording(timeline_places=10, timeline_s=0.1)
    outcome = Study(Workload("test", (job,)), small_gpu(), 1.0, recording=recording).run(NONE)
    assert outcome.timeline_span_s == pytest.approx((0.45, 0.1))
    expected = [0, 0, 10, 0, 0, 0, 0, 0, 0, 2]
    assert outcome.tenants[0].timeline == pytest.approx(expected, abs=0.01)
