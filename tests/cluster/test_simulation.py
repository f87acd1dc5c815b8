"""A cluster in virtual time: speeds, ends, moves, promises, and `cotenant simulate --cluster`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from cotenant.cli import main
from cotenant.cluster.logs.interface import LoggedJob
from cotenant.cluster.placement import registry
from cotenant.cluster.placement.fleet import Job
from cotenant.cluster.placement.interference import PairTable
from cotenant.cluster.simulation.engine import Cluster
from cotenant.cluster.simulation.kinds import interference, kinds
from cotenant.cluster.simulation.outcome import ClusterOutcome
from cotenant.cluster.simulation.scenario import Coming, Scenario, at_load, repeated, scenario
from tests.cluster.placing import GB, KINDS, opportunistic, production, table

TURNS = table(
    train_beside_train=2.0,
    train_beside_SERVE=1.5,
    SERVE_beside_train=1.2,
    light_beside_light=1.0,
    unknown=2.0,
)


def simulated(
    policy: str,
    coming: Sequence[tuple[Job, float, float]],
    gpus: int = 1,
    services: Sequence[Job] = (),
    truth: PairTable = TURNS,
) -> ClusterOutcome:
    jobs = tuple(Coming(job, at, seconds, False) for job, at, seconds in coming)
    there = Scenario("test", gpus, 80 * GB, tuple(services), jobs)
    return Cluster(there, registry.find(policy)(), KINDS, truth, truth, round_s=1.0).run()


def train(id: str, share: float = 0.5) -> Job:
    return opportunistic(id, share=share, kind="train")


def test_jobs_that_take_turns_end_when_their_work_is_done() -> None:
    outcome = simulated("first-fit", [(train("a"), 0, 100), (train("b"), 50, 100)])
    ends = {job.id: job.ended_s for job in outcome.jobs}
    # 50 s alone, then 100 s at half speed; then the other has 50 s of work left.
    assert ends == pytest.approx({"a": 150.0, "b": 200.0})
    assert outcome.makespan_s == pytest.approx(200.0)


def test_who_finds_no_room_waits_in_the_queue() -> None:
    outcome = simulated("first-fit", [(train("a", 1.0), 0, 100), (train("b", 1.0), 10, 100)])
    b = outcome.jobs[1]
    assert (b.queued_s, b.completion_s, b.stretch) == pytest.approx((90.0, 190.0, 1.9))


def test_without_sharing_a_service_keeps_its_gpu_idle() -> None:
    service = production("s", kind="serve")
    coming = [(train("a", 1.0), 0, 100), (train("b", 1.0), 1000, 100)]
    alone = simulated("exclusive", coming, services=[service])
    shared = simulated("first-fit", coming, services=[service])
    assert (alone.never_ran, shared.never_ran) == (2, 0)
    assert alone.utilisation == pytest.approx(0.25)
    # 150 s of the 1000 in which jobs come have an opportunistic job at 2/3 of its speed: 0.25 + 0.67 of the GPU.
    assert shared.utilisation == pytest.approx(0.25 + 0.15 * 2 / 3, rel=0.01)
    assert shared.sm_activity == pytest.approx(shared.utilisation / 2, rel=0.01)


def test_a_broken_promise_counts_for_as_long_as_it_is_broken() -> None:
    coming = [(train("a", 1.0), 0, 100), (train("b", 1.0), 1000, 100)]
    for promise, broken in ((0.05, 0.15), (0.25, 0.0)):
        service = production("s", kind="serve", slowdown=promise)
        outcome = simulated("first-fit", coming, services=[service])
        assert outcome.broken == pytest.approx(broken, abs=0.002)


def test_a_job_that_comes_can_have_a_promise_too() -> None:
    serving = production("p", kind="serve", slowdown=0.05)
    outcome = simulated("first-fit", [(serving, 0, 1000), (train("a", 1.0), 0, 100)])
    broken = {job.id: job.broken_s for job in outcome.jobs}
    assert broken == pytest.approx({"p": 150.0, "a": 0.0})
    assert outcome.broken_s == pytest.approx(150.0)


def test_the_policy_sees_what_is_predicted_and_jobs_get_what_is_true() -> None:
    service = production("s", kind="serve", slowdown=0.05)
    harmless = table(SERVE_beside_train=1.0, train_beside_SERVE=1.0)
    jobs = (Coming(train("a", 1.0), 0, 100, False), Coming(train("b", 1.0), 1000, 100, False))
    there = Scenario("test", 1, 80 * GB, (service,), jobs)
    misled = Cluster(there, registry.find("muxflow")(), KINDS, TURNS, harmless, round_s=1.0).run()
    warned = Cluster(there, registry.find("muxflow")(), KINDS, TURNS, TURNS, round_s=1.0).run()
    assert (misled.never_ran, warned.never_ran) == (0, 2)
    assert misled.broken > 0.1 and warned.broken == 0
    assert misled.jobs[0].completion_s == pytest.approx(150.0)


def test_a_job_of_several_gpus_is_as_slow_as_on_its_slowest() -> None:
    wide = opportunistic("wide", share=0.5, kind="train", gpus=2)
    outcome = simulated("first-fit", [(train("a"), 0, 1000), (wide, 0, 100)], gpus=2)
    assert next(job for job in outcome.jobs if job.id == "wide").completion_s == pytest.approx(200.0)


def test_a_move_costs_time_and_frees_both() -> None:
    coming = [(train("a", 1.0), 0, 100), (train("b"), 0, 300), (train("c"), 1, 300)]
    gentle = table(train_beside_train=1.5)
    outcome = simulated("gandiva", coming, gpus=2, truth=gentle)
    assert outcome.moves == 1
    moved = next(job for job in outcome.jobs if job.moves)
    stayed = next(job for job in outcome.jobs if job.id in "bc" and not job.moves)
    # Until the first GPU is free at 100 s both run at 2/3; then each has one of its own.
    assert stayed.ended_s == pytest.approx(333, abs=5)
    # It came a second earlier, and a move takes a second, and its 10 GB to the host and back at 25 GB/s.
    assert moved.ended_s == pytest.approx(stayed.ended_s - 1 + 1.8, abs=0.1)


@pytest.mark.parametrize("policy", registry.names())
def test_all_work_is_done_and_none_twice(policy: str) -> None:
    truth, predicted = interference("cotenant")
    logged = [LoggedJob(f"{n}", n * 20.0, 300.0 + n, 1 + n % 3, 0.5 if n % 2 else 1.0) for n in range(120)]
    there = scenario("log", logged, kinds(), 12, 80 * GB, services=4, production=0.1, seed=3)
    outcome = Cluster(there, registry.find(policy)(), kinds(), truth, predicted).run()
    assert len(outcome.jobs) + outcome.never_ran == 120
    assert len({job.id for job in outcome.jobs}) == len(outcome.jobs)
    assert all(job.completion_s >= job.alone_s - 1e-6 for job in outcome.jobs)
    assert 0 < outcome.utilisation <= 1 and 0 <= outcome.broken <= 1


def test_the_same_seed_gives_the_same_outcome() -> None:
    logged = [LoggedJob(f"{n}", n * 20.0, 300.0) for n in range(40)]
    one, two, other = (
        scenario("log", logged, kinds(), 4, 80 * GB, production=0.3, seed=seed) for seed in (1, 1, 2)
    )
    assert one == two != other


def test_a_log_is_repeated_end_to_end_and_moved_together_for_a_load() -> None:
    logged = [LoggedJob(f"{n}", n * 10.0, 100.0) for n in range(5)]
    longer = repeated(logged, 12)
    assert [job.at_s for job in longer] == [n * 10.0 for n in range(12)]
    assert len({job.id for job in longer}) == 12
    dense = at_load(longer, 0.5, gpus=4)
    asked = sum(job.seconds for job in dense)
    assert asked / (max(job.at_s for job in dense) * 4) == pytest.approx(0.5)


def test_services_use_about_as_much_as_muxflows_online_work_did() -> None:
    there = scenario("x", [LoggedJob("a", 0, 1)], kinds(), 3000, GB, services=3000)
    draw = [kinds()[job.kind].busy for job in there.services]
    assert sum(draw) / len(draw) == pytest.approx(0.26, abs=0.01)


# ---- the command


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    status = main([str(word) for word in ("simulate", "--cluster", *words)])
    return (status, *capsys.readouterr())


SMALL = ("made-up-alibaba2020", "--gpus", "8", "--jobs", "60", "--load", "100%", "--services", "4")


def test_all_placement_policies_stand_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, *SMALL)
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines() if line.strip()][-8:] == registry.names()
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 110


def test_json_and_csv_have_every_job(capsys: pytest.CaptureFixture[str]) -> None:
    [record] = json.loads(run(capsys, *SMALL, "--policy", "iadeep", "-o", "json")[1])["outcomes"]
    rows = list(csv.DictReader(io.StringIO(run(capsys, *SMALL, "--policy", "iadeep", "-o", "csv")[1])))
    assert len(rows) == len(record["jobs"]) == 60 - record["never_ran"]
    assert record["promises_broken"] > 0 and record["utilisation"] <= 1


def test_a_picture_is_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "cluster.png"
    status, _, err = run(capsys, *SMALL, "--policy", "exclusive,muxflow", "--plot", picture)
    assert status == 0, err
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_list_has_logs_and_policies(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "--list")[1]
    assert "made-up-openb" in out and "made up" in out and "weighted matching" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "a cluster has one log, not 0"),
        (("nosuch.csv",), "there is no log 'nosuch.csv'"),
        (("made-up-openb", "--policy", "guard"), "unknown placement policy 'guard'"),
        (("made-up-openb", "--seconds", "3"), "--seconds is not for clusters"),
        (("made-up-openb", "--services", "65"), "65 services do not fit on 64 GPUs"),
        (("made-up-openb", "--load", "zero"), "no share: 'zero'"),
        (("made-up-openb", "--plot", "x.txt"), "'x.txt' is no picture"),
    ],
)
def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    error, hint = err.splitlines()
    assert error.startswith("error: ") and said in error and hint.startswith("hint: ")


def test_options_for_clusters_are_refused_without_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "serve-and-train", "--gpus", "4"]) == 2
    assert "hint: add --cluster" in capsys.readouterr().err
