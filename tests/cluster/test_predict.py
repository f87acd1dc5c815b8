"""Predicting what a pair does: the regression, its error, and `cotenant predict`."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from cotenant.cli import main
from cotenant.cluster.predict import observations
from cotenant.cluster.predict.model import (
    Model,
    Observation,
    Pair,
    Prediction,
    errors,
    simulator_alone,
    unseen,
)
from cotenant.cluster.predict.pairs import predict
from cotenant.cluster.predict.traits import Traits
from tests.compiling import TREE

TRACES = TREE / "examples" / "traces"
PLAIN = Traits(busy=0.3, idle_inside=0.0, long_kernels=0.0, host_copies=0.0)
LONG = Traits(busy=1.0, idle_inside=0.0, long_kernels=1.0, host_copies=0.0)


def pair(other: Traits = PLAIN, slowdown: float = 1.1, mode: str = "cotenant") -> Pair:
    return Pair(mode, PLAIN, other, slowdown, 0.7)


def test_without_observations_the_simulator_stands() -> None:
    assert Model().predict(pair(LONG)) == Prediction(1.1, 0.7)


def test_what_was_observed_of_a_trait_is_expected_of_others_that_have_it() -> None:
    seen = [Observation(f"{of}", pair(LONG, of), of * 1.2, 0.7) for of in (1.0, 1.1, 2.0)]
    model = Model(seen * 10)
    assert model.predict(pair(LONG, 1.5)).slowdown == pytest.approx(1.5 * 1.2, rel=0.02)
    assert model.predict(pair(PLAIN, 1.5)).slowdown == 1.5


def test_a_job_that_does_not_keep_up_teaches_nothing_and_is_not_corrected() -> None:
    model = Model([Observation("a", pair(LONG, 60.0), 80.0, 1.0)])
    assert model.predict(pair(LONG)).slowdown == 1.1
    assert model.predict(pair(LONG, 60.0)) == Prediction(60.0, 0.7, keeps_up=False)


def test_on_pairs_not_seen_the_error_is_small_and_less_than_the_simulators_alone() -> None:
    seen = observations.shipped()
    with_model, alone = errors(unseen(seen)), errors(simulator_alone(seen))
    assert with_model.slowdown <= 10 and with_model.share <= 10
    assert with_model.slowdown < alone.slowdown
    assert len({one.name for one in seen}) == 9 and with_model.shares == 36


def test_the_page_says_the_error_as_it_is() -> None:
    page = (TREE / "docs" / "cluster.md").read_text()
    seen = observations.shipped()
    for name, found in (
        ("the simulator alone", simulator_alone(seen)),
        ("with the regression", unseen(seen)),
    ):
        row = re.search(rf"^\| {name} \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
        assert row, name
        assert (row[1], row[2]) == (f"{errors(found).slowdown:.1f}", f"{errors(found).share:.1f}")


def test_an_unseen_pair_is_predicted_without_itself() -> None:
    wild = Observation("wild", pair(LONG, 1.0), 3.0, 0.5)
    calm = Observation("calm", pair(LONG, 1.0), 1.0, 0.5)
    found = dict((one.name, said.slowdown) for one, said in unseen([wild, calm]))
    assert found["wild"] == pytest.approx(1.0) and found["calm"] > 1.5


def test_observations_are_read_as_they_were_written() -> None:
    file = io.StringIO()
    observations.write(observations.shipped(), file)
    assert observations.parsed(file.getvalue(), "again") == list(observations.shipped())


def test_the_shipped_simulated_figures_are_those_of_todays_simulator() -> None:
    """bench/simulator/kinds.py has to run again when the simulator has changed."""
    [seen] = [
        one for one in observations.shipped() if (one.name, one.pair.mode) == ("encoder+gpt", "cotenant")
    ]
    said = predict(TRACES / "encoder.trace", TRACES / "gpt.trace", rate=100, seen=[])
    assert said.slowdown == pytest.approx(seen.pair.slowdown, rel=0.005)
    assert said.share == pytest.approx(seen.pair.share, rel=0.005)


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    status = main([str(word) for word in words])
    return (status, *capsys.readouterr())


def test_predict_says_the_slowdown_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("predict", TRACES / "encoder.trace", TRACES / "longk.trace", "--rate", "100")
    status, out, err = run(capsys, *words)
    assert (status, err) == (0, "")
    assert re.fullmatch(r"encoder +1\.\d\d times as long as alone .*\nlongk +\d\d% of its speed alone\n", out)
    figures = json.loads(run(capsys, *words, "-o", "json")[1])
    assert figures["keeps_up"] and 1 < figures["slowdown"] < 1.5 < 2 * figures["other_slowdown"]


def test_a_profile_can_stand_for_a_trace(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    profile = tmp_path / "training.toml"
    profile.write_text('[[job]]\nname = "training"\ntrains = true\n[[job.ops]]\nus = 10000\n')
    status, out, _ = run(capsys, "predict", TRACES / "encoder.trace", profile, "-o", "json")
    assert status == 0 and json.loads(out)["other"] == "training"


def test_observations_of_ones_own_are_learned_from(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("predict", TRACES / "encoder.trace", TRACES / "longk.trace", "--rate", "100", "-o", "json")
    before = json.loads(run(capsys, *words)[1])["slowdown"]
    mine = tmp_path / "mine.csv"
    with mine.open("w") as file:
        observations.write([Observation(f"m{n}", pair(LONG, 1.0), 2.0, 0.5) for n in range(20)], file)
    assert json.loads(run(capsys, *words, "--observed", mine)[1])["slowdown"] > before + 0.2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("predict",), "two jobs are needed"),
        (("predict", "a.trace"), "two jobs are needed"),
        (("predict", "a.csv", "b.csv"), "'a.csv' is no recorded job"),
        (("predict", "nosuch.trace", "b.trace"), "nosuch.trace"),
        (("predict", "--error", "--observed", "nosuch.csv"), "nosuch.csv cannot be read"),
        (("predict", "--sharing", "mig", "a.trace", "b.trace"), "unknown way of sharing 'mig'"),
    ],
)
def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    error, hint = err.splitlines()
    assert error.startswith("error: ") and said in error and hint.startswith("hint: ")


def test_an_observation_that_makes_no_sense_is_named(tmp_path: Path) -> None:
    file = io.StringIO()
    observations.write([Observation("a", pair(), 1.0, 0.5)], file)
    from cotenant.errors import Problem

    for wrong, said in (("cotenant", "the mode is one of"), ("1.1", "simulated_slowdown is")):
        with pytest.raises(Problem) as problem:
            observations.parsed(file.getvalue().replace(wrong, "-7"), "mine.csv")
        assert said in problem.value.message
