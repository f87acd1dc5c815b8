"""bench/pairs: its catalogue, its rounds, and its windows on a clock of their own."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pairs_bench.loading import BENCH, load

catalogue = load("catalogue")
crew = load("crew")
rounds = load("rounds")
worker = load("worker")
Problem = load("cotenant.errors").Problem


# The catalogue


def test_every_job_names_a_class_that_exists() -> None:
    for job in catalogue.JOBS.values():
        module, name = job.source.split(":")
        tree = ast.parse((BENCH / f"{module}.py").read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}, job.name


def test_the_default_pairs_are_pairs() -> None:
    assert len(catalogue.parse_pairs(catalogue.PAIRS)) == len(set(catalogue.PAIRS)) >= 8
    assert set(catalogue.QUICK_PAIRS) <= set(catalogue.PAIRS)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("decode", "no pair"),
        ("decoder+gpt", "did you mean 'decode'"),
        ("decode+gtp", "did you mean 'gpt'"),
        ("gpt+decode", "unknown production job"),
    ],
)
def test_a_wrong_pair_is_explained(word: str, said: str) -> None:
    with pytest.raises(Problem) as raised:
        catalogue.parse_pairs([word])
    assert said in f"{raised.value.message} {raised.value.hint}"
    assert raised.value.status == 2


def test_alone_is_always_measured() -> None:
    assert catalogue.parse_modes(["cotenant", "mps"]) == ["alone", "mps", "cotenant"]
    with pytest.raises(Problem, match="unknown mode"):
        catalogue.parse_modes(["solo"])


def test_a_pair_has_one_worker_for_each_way_of_starting_a_job() -> None:
    (pair,) = catalogue.parse_pairs(["decode+gpt"])
    workers = [(job.name, start) for job, start in pair.workers(catalogue.DEFAULT_MODES)]
    assert sorted(workers) == [
        ("decode", "mps"),  # of both MPS modes: its priority is the normal one in either
        ("decode", "plain"),
        ("decode", "production"),
        ("gpt", "mps"),
        ("gpt", "mps-low"),
        ("gpt", "opportunistic"),
        ("gpt", "plain"),
    ]
    assert [start for _, start in pair.workers(["alone"])] == ["plain", "plain"]


def test_opportunistic_tenants_of_different_segments_start_one_after_the_other() -> None:
    (pair,) = catalogue.parse_pairs(["compiled+gpt"])
    keys = pair.workers(["alone", "cotenant", "cotenant 2%", "cotenant 5%"])
    started = crew.waves(keys)
    assert sorted(key[1] for wave in started for key in wave) == sorted(key[1] for key in keys)
    assert [(job.name, start) for job, start in started[0]] == [("compiled", "plain")]
    assert [[(job.name, start) for job, start in wave] for wave in started[2:]] == [
        [("gpt", "opportunistic, beside 2%")],
        [("gpt", "opportunistic, beside 5%")],
    ]


def test_production_with_a_promise_never_shares_a_segment_with_production_that_has_another() -> None:
    segments = [
        {catalogue.OWN_SEGMENTS[start] for start in catalogue.MODES[mode]} for mode in catalogue.PROMISED
    ]
    assert all(len(one) == 1 for one in segments) and len(set.union(*segments)) == len(segments)


# Rounds


@given(
    modes=st.lists(st.sampled_from([*catalogue.MODES]), min_size=1, max_size=6, unique=True),
    count=st.integers(1, 8),
)
def test_every_round_has_every_mode_with_the_same_arrivals(modes: list[str], count: int) -> None:
    planned = rounds.plan(modes, count, 3.0)
    assert len(planned) == count
    for windows in planned:
        assert sorted(window.mode for window in windows) == sorted(modes)
        assert len({window.seed for window in windows}) == 1
        assert all(window.seconds == (1.5 if window.mode == "solo" else 3.0) for window in windows)
    assert len({windows[0].seed for windows in planned}) == count
    firsts = [windows[0].mode for windows in planned]
    assert len(set(firsts)) == min(count, len(modes))


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(worker, "time", made)
    yield made


class Production:
    """Its requests take a second each, its data loader half of one."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def prepare(self) -> None:
        self.clock.sleep(0.1)

    def load_seconds(self, _: object) -> float:
        return 0.5

    def request(self, number: int) -> bytes:
        self.clock.sleep(1.0)
        return bytes([number])


def test_latency_counts_from_the_intended_arrival(clock: Clock) -> None:
    window = worker.Window(start=101.0, seconds=5.0, seed=1, arrivals=[0.0, 0.25, 3.0])
    said = worker.serve(Production(clock), window)
    assert said["latencies_ms"] == pytest.approx([1000, 1750, 1000])
    assert said["services_ms"] == pytest.approx([1000] * 3)
    assert said["digests"] == [worker.digest(bytes([number])) for number in range(3)]
    assert said["unanswered"] == 0 and said["late_ms"] == 0


def test_who_is_never_answered_has_waited_until_the_end(clock: Clock) -> None:
    window = worker.Window(start=101.0, seconds=2.0, seed=1, arrivals=[0.1 * number for number in range(8)])
    said = worker.serve(Production(clock), window)
    # Four begin by 105, the end of the window and as long again; the rest had waited until then.
    assert said["unanswered"] == 4
    assert len(said["services_ms"]) == len(said["digests"]) == 4
    assert said["latencies_ms"][4:] == pytest.approx([3600, 3500, 3400, 3300])
    assert len(said["latencies_ms"]) == 8


def test_a_job_that_is_not_ready_in_time_says_so(clock: Clock) -> None:
    said = worker.serve(Production(clock), worker.Window(start=100.0, seconds=1.0, seed=1, arrivals=[]))
    assert said["late_ms"] == pytest.approx(100)


def test_a_training_step_is_the_data_loader_and_the_work(clock: Clock) -> None:
    said = worker.train(Production(clock), worker.Window(start=101.0, seconds=4.0, seed=1, arrivals=[]))
    assert said["latencies_ms"] == pytest.approx([1500] * 3)
    assert said["services_ms"] == pytest.approx([1000] * 3)


class Opportunistic:
    """Each step takes a tenth of a second after the one before it."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.steps, self.busy_until = clock, 0, 0.0

    def prepare(self) -> None:
        self.steps = 0

    def step(self) -> Callable[[], object]:
        self.steps += 1
        self.busy_until = max(self.clock.now, self.busy_until) + 0.1
        ready = self.busy_until
        return lambda: self.clock.sleep(max(0.0, ready - self.clock.now))

    def snapshot(self) -> Callable[[], bytes]:
        steps = self.steps
        return lambda: bytes([steps])


def test_work_goes_on_until_production_is_done(clock: Clock) -> None:
    window = worker.Window(start=101.0, seconds=2.0, seed=1, arrivals=[])
    said = worker.work(Opportunistic(clock), window, lambda: clock.now > 105)
    assert said["completions"][0] == pytest.approx(101.0 - worker.LEAD_SECONDS)
    assert 105 < said["completions"][-1] < 105.2
    assert rounds.steps_within(said["completions"], window.start, window.end) == pytest.approx(20)
    assert said["digests"] == [worker.digest(bytes([worker.COMPARED_STEPS]))]


def test_work_does_not_stop_inside_its_window(clock: Clock) -> None:
    window = worker.Window(start=101.0, seconds=0.25, seed=1, arrivals=[])
    said = worker.work(Opportunistic(clock), window, lambda: True)
    assert said["completions"][-1] >= window.end
    assert said["digests"] == []  # too few steps to compare


# Intervals
