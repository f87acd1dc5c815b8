"""`cotenant simulate`: what it prints and writes, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import runpy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cotenant.cli import main
from cotenant.commands import simulate
from cotenant.errors import Problem
from cotenant.policies import registry
from cotenant.simulator import Outcome, find_workload, pictures, shipped, workload_file
from tests.compiling import TREE

PAIR = """
title = "a pair"
seconds = 0.5

[[job]]
name = "serving"
arrivals = "poisson"
rate = 100
[[job.ops]]
us = 50
repeat = 20
gap_us = 4

[[job]]
name = "training"
class = "opportunistic"
trains = true
memory = "2GiB"
[[job.ops]]
us = 400
sms = "80%"
"""


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def cotenant(capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line in this very process: an import of numpy for each case would take longer than all of them."""

    def run(*words: str | Path) -> Done:
        status = main([str(word) for word in words])
        return Done(status, *capsys.readouterr())

    return run


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    path = tmp_path / "pair.toml"
    path.write_text(PAIR)
    return path


def test_a_table_has_a_row_for_each_policy(cotenant: Run, pair: Path) -> None:
    done = cotenant("simulate", pair, "--policy", "timeslice,strict")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines() if line.strip()][-2:] == [
        "timeslice",
        "strict",
    ]


def test_the_table_fits_80_columns(cotenant: Run, pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def table(width: str) -> list[str]:
        monkeypatch.setenv("COLUMNS", width)
        return cotenant("simulate", pair, "--policy", "strict").stdout.splitlines()[2:]

    whole, narrow = table("80"), table("40")
    assert max(map(len, whole)) <= 80 and max(map(len, narrow)) <= 40
    *_, cells = (line.split() for line in whole)
    *_, kept = (line.split() for line in narrow)
    assert len(kept) < len(cells) and set(kept) <= set(cells), "a figure is whole, or not there"


def test_a_promise_of_nothing_is_none(cotenant: Run, tmp_path: Path) -> None:
    path = tmp_path / "pair.toml"
    path.write_text(PAIR.replace("rate = 100", 'rate = 100\nclass = "production"\nslowdown = 0'))
    done = cotenant("simulate", path, "--policy", "guard", "--seconds", "2")
    assert (done.returncode, done.stderr) == (0, "")


def test_json_and_csv_have_every_tenant(cotenant: Run, pair: Path) -> None:
    record = json.loads(cotenant("simulate", pair, "--policy", "strict", "-o", "json").stdout)["outcomes"][0]
    assert [tenant["job"] for tenant in record["tenants"]] == ["serving", "training"]
    assert record["tenants"][0]["latency_p99_ratio"] >= 1
    rows = list(
        csv.DictReader(io.StringIO(cotenant("simulate", pair, "--policy", "strict", "-o", "csv").stdout))
    )
    assert [(row["policy"], row["job"]) for row in rows] == [("strict", "serving"), ("strict", "training")]
    assert float(rows[1]["work_share"]) == pytest.approx(record["tenants"][1]["work_share"])


def test_the_timeline_opens_in_perfetto(cotenant: Run, pair: Path, tmp_path: Path) -> None:
    trace = tmp_path / "out.perfetto"
    done = cotenant("simulate", pair, "--policy", "strict", "--trace", trace)
    assert done.returncode == 0, done.stderr
    events = json.loads(trace.read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert {"strict", "serving (production)", "training (opportunistic)"} == names
    assert {event["tid"] for event in slices} == {1, 2}
    assert all(event["dur"] >= 0 for event in slices)


def test_a_picture_is_drawn(cotenant: Run, pair: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "out.png"
    done = cotenant("simulate", pair, "--policy", "timeslice,strict", "--plot", picture)
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.glob(".out*")) == []


def test_every_policy_has_a_timeline_and_no_panel_is_blank(
    monkeypatch: pytest.MonkeyPatch, cotenant: Run, pair: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    drawn: list[Any] = []
    compose = pictures.composed

    def composed(outcomes: Sequence[Outcome]) -> Any:
        drawn.append(compose(outcomes))
        return drawn[-1]

    monkeypatch.setattr(pictures, "composed", composed)
    policies = "timeslice,mps,strict,guard,fair,none"
    cotenant("simulate", pair, "--policy", policies, "--plot", tmp_path / "six.svg")
    assert [axis.get_ylabel() for axis in drawn[0].axes[2:]] == [
        f"SMs\n{name}" for name in policies.split(",")
    ]
    assert all(axis.lines or axis.collections or axis.texts for axis in drawn[0].axes)
    alone = tmp_path / "alone.toml"
    alone.write_text(PAIR[: PAIR.rindex("[[job]]")])
    cotenant("simulate", alone, "--policy", "strict", "--plot", tmp_path / "alone.svg")
    assert "nothing to compare" in drawn[1].axes[1].texts[0].get_text()


def test_a_policy_that_has_not_learnt_yet_is_told(cotenant: Run, pair: Path) -> None:
    (line,) = cotenant("simulate", pair, "--policy", "tgs,strict").stderr.splitlines()
    assert "tgs keeps the others shut for its first 25 s, of 0.5 s simulated: give --seconds 100" in line


def test_a_trace_of_another_gpu_is_told(cotenant: Run) -> None:
    words = ("simulate", TREE / "examples/traces/encoder.trace", "--policy", "strict", "--seconds", "0.02")
    assert cotenant(*words, "--gpu", "h200").stderr == ""
    (line,) = cotenant(*words, "--gpu", "a100").stderr.splitlines()
    assert "encoder was recorded on NVIDIA H200 (132 SMs): its times are not scaled to a100" in line


def test_every_shipped_workload_can_be_simulated(cotenant: Run) -> None:
    listed = cotenant("simulate", "--list").stdout
    for name in shipped():
        workload = find_workload(name)
        assert f"{name:<16} {workload.title}" in listed
        if name != "cluster":
            done = cotenant("simulate", name, "--policy", "strict", "--seconds", "0.2")
            assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_the_example_compares_five_policies(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(TREE / "examples" / "simulate_pairs.py"), run_name="__main__")
    title, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["timeslice", "mps", "orion", "strict", "guard"]
    assert {len(row) for row in rows} == {len(title)}


@pytest.mark.parametrize(
    ("written", "bytes_"), [(0, 0), (1000, 1000), ("1000", 1000), ("64MiB", 64 << 20), ("1.5 G", 3 << 29)]
)
def test_a_size_is_in_bytes_or_has_a_unit(written: object, bytes_: int) -> None:
    assert workload_file.size(written) == bytes_


@pytest.mark.parametrize("written", [-1, True, 1.5, None, "-1", "10 apples", "G"])
def test_what_is_no_size_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="is a size such as"):
        workload_file.size(written)


def test_traces_share_a_gpu_by_their_order(cotenant: Run, tmp_path: Path) -> None:
    done = cotenant("simulate", tmp_path / "a.trace", tmp_path / "b.toml")
    assert done.returncode == 2 and "error: " in done.stderr and len(done.stderr.splitlines()) == 2


def broken(old: str, new: str) -> str:
    assert old in PAIR
    return PAIR.replace(old, new)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (broken("rate = 100", "rate = -1"), "job 1 ('serving'): 'rate' is a number above 0, not -1"),
        (broken("rate = 100\n", ""), "arrivals 'poisson' need a rate"),
        (broken('"poisson"', '"sometimes"'), "'arrivals' is one of"),
        (broken("repeat = 20", "repeats = 20"), "unknown key 'repeats'"),
        (broken("us = 400", ""), "a kernel needs its length"),
        (broken("us = 400", "us = nan"), "'us' is a number"),
        (broken('"80%"', '"180%"'), "'sms' is a part such as 60%"),
        (broken('"2GiB"', '"2 bananas"'), "'memory' is a size"),
        (broken('"2GiB"', '"900GiB"'), "'training' needs 900.0 GiB, h200 has"),
        (broken("repeat = 20", "repeat = 99999999999"), "'repeat' is a whole number"),
        (broken('class = "opportunistic"', 'class = "lazy"'), "'class' is one of production"),
        (broken("rate = 100", "rate = 100\nfloor = '95%'"), "'floor' is a share of at most 90%"),
        (broken('name = "training"', 'name = "serving"'), "two jobs on one GPU are called 'serving'"),
        (
            broken(
                "repeat = 20",
                "repeat = 20\n[[job]]\nname = 'a'\nfloor = 0.5\ncopies = 2\n[[job.ops]]\nus = 5",
            ),
            "100%",
        ),
        ("title = ", "is no TOML"),
        pytest.param(f"seconds = {'9' * 5000}", "is no TOML", id="digits"),
        pytest.param(
            broken("rate = 100", f"rate = 0x{'f' * 5000}"), "'rate' is a number of", id="hexadecimal"
        ),
        pytest.param(
            broken("rate = 100", f"rate = 100\nmemory = '{'9' * 400}G'"), "'memory' is a", id="size"
        ),
        ("title = 'nobody'", "it has no jobs"),
        (PAIR + "gpu = 3\n", "unknown key 'gpu'"),
    ],
)
def test_a_mistake_in_a_workload_is_one_line(cotenant: Run, tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(content)
    done = cotenant("simulate", path)
    assert done.returncode == 2
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: ") and said in error
    assert hint.startswith("hint: ")
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no workload given"),
        (("nosuch",), "unknown workload 'nosuch'"),
        (("./nosuch.toml",), "there is no workload file"),
        (("serve-and-train", "--policy", "nosuch"), "unknown policy 'nosuch'"),
        (("serve-and-train", "--policy", ","), "no policy given"),
        (("serve-and-train", "--gpu", "nosuch"), "unknown GPU 'nosuch'"),
        (("serve-and-train", "--seconds", "0"), "0 seconds cannot be simulated"),
        (("serve-and-train", "--seconds", "nan"), "nan seconds cannot be simulated"),
        (("serve-and-train", "--seconds", "1e9"), "1e+09 seconds cannot be simulated"),
        (("serve-and-train", "--plot", "out.txt"), "'out.txt' is no picture"),
        (("serve-and-train", "--trace", "/nosuch/out.json"), "there is no folder /nosuch"),
        (("serve-and-train", "--seconds", "1e7", "--trace", "/proc/out.json"), "/proc cannot be written"),
        (("serve-and-train", "--seconds", "1e7", "--plot", "/proc/out.png"), "/proc cannot be written"),
        (("./nosuch.trace",), "nosuch.trace"),
        (("serve-and-train", "tgs"), "cannot share a GPU with the others"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(
    cotenant: Run, arguments: tuple[str, ...], said: str
) -> None:
    done = cotenant("simulate", *arguments)
    assert done.returncode == 2, done.stderr
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: ") and said in error
    assert hint.startswith("hint: ")
    assert done.stdout == ""


def test_a_foreign_trace_is_refused(cotenant: Run, tmp_path: Path) -> None:
    path = tmp_path / "foreign.trace"
    path.write_bytes(b"\x7fELF" + bytes(500))
    done = cotenant("simulate", path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 2 and done.stdout == ""


def test_all_can_stand_among_others_and_nobody_is_simulated_twice(cotenant: Run, pair: Path) -> None:
    done = cotenant("simulate", pair, "--seconds", "0.01", "--policy", "strict,all,mps", "-o", "json")
    names = [outcome["policy"] for outcome in json.loads(done.stdout)["outcomes"]]
    assert names[0] == "strict" and sorted(names) == sorted(registry.names())


def test_the_table_fits_into_a_hundred_columns(cotenant: Run) -> None:
    done = cotenant("simulate", "serve-and-train", "--seconds", "2", "--policy", "all")
    assert max(len(line.rstrip()) for line in done.stdout.splitlines()) <= 100


def bad_policy(tmp_path: Path, answer: str, more: str = "") -> Path:
    path = tmp_path / "mine.py"
    path.write_text(
        "from cotenant.policies.interface import Knobs, TenantKnobs\n"
        "class Mine:\n"
        "    name, title, every_ms = 'mine', 'fails', 10\n"
        f"    {more}\n"
        "    def tick(self, view):\n"
        f"        return {answer}\n"
        "    def explain(self, tenant):\n"
        "        return []\n"
    )
    return path


@pytest.mark.parametrize(
    ("answer", "more", "said"),
    [
        ("5", "", "the policy 'mine' failed: tick answered 5"),
        ("Knobs()", "def __init__(self, wants): pass", "the policy 'mine' failed: TypeError"),
        ("Knobs(gate_every_us=-5)", "", "the policy 'mine' failed: gate_every_us is -5"),
        ("Knobs(tenants={0: TenantKnobs(rate=float('nan'))})", "", "the policy 'mine' failed: rate is nan"),
        ("Knobs(parameters=range(9))", "", "not at most 8 numbers"),
    ],
)
def test_a_policy_that_fails_is_one_line(
    cotenant: Run, pair: Path, tmp_path: Path, answer: str, more: str, said: str
) -> None:
    done = cotenant("simulate", pair, "--policy", bad_policy(tmp_path, answer, more))
    assert done.returncode == 1
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: ") and said in error
    assert hint.startswith("hint: ") and done.stdout == ""


def test_what_was_written_before_stays_when_a_policy_fails(cotenant: Run, pair: Path, tmp_path: Path) -> None:
    policy = bad_policy(tmp_path, "1 / 0")
    trace = tmp_path / "out.json"
    trace.write_text("precious")
    done = cotenant("simulate", pair, "--policy", str(policy), "--trace", trace)
    assert done.returncode == 1
    assert "the policy 'mine' failed: ZeroDivisionError" in done.stderr
    assert "Traceback" not in done.stderr
    assert trace.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.py", "out.json", "pair.toml"]


def test_every_policy_is_looked_up_before_anything_is_simulated() -> None:
    assert simulate.policy_names(" strict,guard,strict ,") == ["strict", "guard"]
    with pytest.raises(Problem, match="unknown policy 'gaurd'"):
        simulate.policy_names("strict,gaurd")
