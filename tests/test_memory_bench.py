"""The benchmark of oversubscription itself, on the software GPU: it runs through, and what it compares is the same."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import Run

BENCH = Path(__file__).resolve().parent.parent / "bench" / "memory"


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("numpy")
    monkeypatch.syspath_prepend(BENCH)
    # Other benchmarks have a module of that name, too.
    spec = importlib.util.spec_from_file_location("memory_report", BENCH / "report.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(markdown: str) -> dict[str, str]:
    return dict(line.strip("| ").split(" | ") for line in markdown.splitlines())


def test_two_jobs_that_do_not_fit_and_a_server_that_grows(
    cotenant: Run, softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("cuda.bindings")
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- memory: begin -->\nold\n<!-- memory: end -->\nafter\n")
    options = ("--toy", "--seconds", "20", "--evictions", "3", "--steps", "40", "--pauses", "2")
    done = cotenant(
        "softgpu",
        "--",
        sys.executable,
        BENCH / "run.py",
        *options,
        "--output",
        tmp_path / "memory.json",
        "--markdown",
        page,
        env=softgpu_env,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "memory.json").read_text())
    assert [one["same"] for one in found["losses"]] == [True, True]
    assert min(found["evictions"]) >= 3
    assert sum(found["steps"]) > 0
    # Those between the pauses by hand come after.
    assert all(steps < one["steps"] for steps, one in zip(found["steps"], found["losses"], strict=True))
    assert found["most_bytes_at_once"] <= 24 << 20
    assert len(found["server"]["growth_ms"]) == 30
    assert found["problems"] == []
    assert "| evictions of each |" in page.read_text()
    assert "| not copied, amid a step | 0.00 MiB of 20.00 MiB, 0% |" in page.read_text()
    assert page.read_text().startswith("before\n")
    assert_that_moves_were_seen(found)


def assert_that_moves_were_seen(found: dict[str, Any]) -> None:
    due, latency = found["server"]["due"], found["server"]["latency_ms"]
    assert {part: len(times) for part, times in due.items()} == {
        part: len(all_ms) for part, all_ms in latency.items()
    }
    moves = found["moves"]
    assert all(set(where) <= {"resident", "evicting", "evicted", "restoring"} for *_, where in moves)
    # They do not fit on it together.
    assert moves and not any(where == ["resident", "resident"] for *_, where in moves)
    looks = [at for began, ended, _ in moves for at in (began, ended)]
    assert looks == sorted(looks)
    # One clock: the server was alone before that and after.
    assert due["alone"][0] < looks[0] <= looks[-1] < due["alone"][-1]


def test_copies_while_another_job_moves(cotenant: Run, softgpu_env: dict[str, str]) -> None:
    pytest.importorskip("cuda.bindings")
    command = (sys.executable, BENCH / "copies.py", "--mib", "64", "--times", "2")
    done = cotenant("softgpu", "--", *command, env=softgpu_env, timeout=600)
    assert done.returncode == 0, done.stderr
    assert {line.split(" | ")[0] for line in done.stdout.splitlines() if "GPU |" in line} == {
        "| eviction",
        "| evicted",
        "| restore",
    }
    assert done.stdout.count("(median of 2)") == 2


def test_the_first_pause_and_the_next(cotenant: Run, softgpu_env: dict[str, str]) -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    # Two programs start and move six times: on a busy machine that takes what it takes.
    command = (sys.executable, BENCH / "first_pause.py", "--mib", "16", "--jobs", "2")
    done = cotenant("softgpu", "--", *command, env=softgpu_env, timeout=600)
    assert done.returncode == 0, done.stderr
    header, _, *rows = done.stdout.splitlines()
    assert header == "| first, s | second | third |"
    figures = [[float(cell) for cell in row.strip("| ").split("|")] for row in rows]
    assert [len(row) for row in figures] == [3, 3]


def test_a_command_that_is_not_there(softgpu_env: dict[str, str]) -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    command = [sys.executable, str(BENCH / "copies.py"), "--cotenant", "/not/there"]
    done = subprocess.run(command, env=softgpu_env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.splitlines()[:1]) == (
        1,
        ["error: cannot start /not/there: No such file or directory"],
    )


def test_a_promise_is_kept_where_all_of_the_interval_is_within_it(report: ModuleType) -> None:
    alone = [1.0, 1.1, 0.9, 1.0] * 50
    latency = {"alone": alone, "kept": [1.15 * one for one in alone], "broken": [1.4 * one for one in alone]}
    # A few that are very late, among few: nobody knows.
    latency["unsure"] = [1.0] * 20 + [30.0]
    assert report.promise_broken({"server": {"latency_ms": latency}}) == ["broken", "unsure"]
    assert report.promise_broken({}) == []


LEAVES, RETURNS, STILL = "one leaves", "one returns", "both are still"


def looks(*seen: tuple[float, str]) -> list[Any]:
    """As run.py notes them."""
    moves = importlib.import_module("moves")
    spans: list[Any] = []
    for now, where in seen:
        moves.saw(spans, now, where.split())
    return spans


def test_a_request_counts_for_every_move_that_it_meets(report: ModuleType) -> None:
    spans = looks(
        (1.000, "resident evicted"),
        (1.005, "resident evicted"),
        (1.010, "evicting evicted"),
        (1.015, "evicting evicted"),
        (1.020, "evicted restoring"),
        (1.025, "evicted restoring"),
        (1.030, "evicted resident"),
        (1.035, "evicted resident"),
    )
    assert [(span.began, span.ended) for span in spans] == [
        (1.000, 1.005),
        (1.010, 1.015),
        (1.020, 1.025),
        (1.030, 1.035),
    ]
    requests = {
        (1.001, 2.0): [STILL],
        (1.004, 7.0): [LEAVES],  # it may owe its length to the move
        (1.006, 1.0): [LEAVES],  # the move may have begun by then
        (1.011, 1.0): [LEAVES],
        (1.012, 9.0): [LEAVES, RETURNS],
        (1.016, 2.0): [LEAVES, RETURNS],
        (1.004, 28.0): [LEAVES, RETURNS],
        (1.027, 1.0): [RETURNS],
        (1.031, 2.0): [STILL],
        # Before the first look and after the last one.
        (0.900, 1.0): [],
        (0.999, 2.0): [],
        (1.034, 2.0): [],
        (1.024, 90.0): [RETURNS],
    }
    for (due, took), states in requests.items():
        found = report.latency_while(spans, [due], [took])
        assert [state for state in found if found[state] == [took]] == states, (due, took)
    found = report.latency_while(spans, [due for due, _ in requests], [took for _, took in requests])
    assert found[STILL] == [2.0, 2.0]
    assert [len(found[state]) for state in (LEAVES, RETURNS)] == [6, 5]


def test_one_who_does_not_look_knows_nothing(report: ModuleType) -> None:
    # The benchmark does not look while the server grows.
    spans = looks((1.000, "resident evicted"), (3.000, "resident evicted"), (3.005, "resident evicted"))
    assert [(span.began, span.ended) for span in spans] == [(1.000, 1.000), (3.000, 3.005)]
    found = report.latency_while(spans, [2.0, 3.001, 2.999], [1.0, 2.0, 3.0])
    assert found == {LEAVES: [], RETURNS: [], STILL: [2.0]}
    spans = looks((1.000, "evicting evicted"), (3.000, "evicted restoring"), (3.005, "evicted restoring"))
    assert not any(report.latency_while(spans, [2.0], [1.0]).values())
    # A move too quick to be seen.
    spans = looks((1.000, "resident evicted"), (1.005, "evicted evicted"), (1.010, "evicted evicted"))
    assert report.latency_while(spans, [1.002, 1.006], [1.0, 2.0])[STILL] == [2.0]


def test_the_table_says_what_the_latency_is_while_one_moves(report: ModuleType) -> None:
    steps = ["resident evicted"] * 100 + ["evicting evicted"] * 100 + ["evicted restoring"] * 100
    spans = looks(*((1 + 0.005 * number, where) for number, where in enumerate(steps)))
    due = [1.0 + 0.02 * number for number in range(75)]
    latency = {"alone": [1.0] * 50, "turns": [1.0] * 25 + [2.0] * 25 + [3.0] * 25}
    server: dict[str, Any] = {"latency_ms": latency, "growth_ms": [4.0]}
    found: dict[str, Any] = {"toy": False, "job_gib": 20, "growth_gib": 10, "server": server}
    old = rows(report.as_markdown(found))
    assert "its latency, turns, p50 / p95 / p99" in old
    assert not any("while" in name for name in old)
    found["moves"] = json.loads(json.dumps(spans))
    assert rows(report.as_markdown(found)) == old
    server["due"] = {"alone": [], "turns": due}
    new = rows(report.as_markdown(found))
    assert {name: new[name] for name in new if name not in old} == {
        f"its latency, turns, while {state}, p50 / p95 / p99": figures
        for state, figures in {
            LEAVES: "2.0 / 2.0 / 2.0 ms; mean 2.00 [2.00, 2.00] of alone; 25 requests",
            RETURNS: "3.0 / 3.0 / 3.0 ms; mean 3.00 [3.00, 3.00] of alone; 25 requests",
            STILL: "1.0 / 1.0 / 1.0 ms; mean 1.00 [1.00, 1.00] of alone; 25 requests",
        }.items()
    }
    # Where nobody moved there is nothing to say of moves.
    found["moves"] = json.loads(json.dumps(spans[:1]))
    assert [name for name in rows(report.as_markdown(found)) if "while" in name] == [
        f"its latency, turns, while {STILL}, p50 / p95 / p99"
    ]


def test_the_first_pause_of_a_job_is_apart_where_it_pinned_its_host_memory(report: ModuleType) -> None:
    def hand(*seconds: float) -> dict[str, Any]:
        return {
            "samples": [
                {
                    "pause_seconds": one,
                    "eviction_seconds": one,
                    "restore_seconds": one / 2,
                    "saved_bytes": 10e9,
                    "dropped_bytes": 0,
                }
                for one in seconds
            ]
        }

    found = {
        "toy": False,
        "capacity_gib": 24,
        "job_gib": 20,
        "copy": {"to_host": 50.0, "to_gpu": 50.0, "gpu": "some GPU"},
        "step_end": hand(0.9, 0.3, 0.3, 0.9),
        "no_helper": hand(5.0, 0.4, 0.6),
    }
    table = rows(report.as_markdown(found))
    assert table["eviction"].startswith("20.8 GB/s, 42% ")
    assert table["restore"].startswith("41.7 GB/s, 83% ")
    assert {name: value for name, value in table.items() if "pause" in name} == {
        "`cotenant pause`, the first of a job, host memory not pinned yet": "5.00 s",
        "`cotenant pause`, at the end of a step, median of 4": "0.60 s",
        "`cotenant pause`, without the helper, median of the next 2": "0.50 s",
    }
    # There was no other: its bandwidth is that of pinning, and nobody's.
    table = rows(report.as_markdown({**found, "no_helper": hand(5.0)}))
    assert "`cotenant pause`, without the helper, median of the next 0" not in table
    assert table["eviction"].startswith("22.2 GB/s")


def test_what_is_there_is_written_whatever_is_missed(
    cotenant: Run, softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("cuda.bindings")
    output = tmp_path / "memory.json"
    options = ("--toy", "--seconds", "1", "--evictions", "100000", "--steps", "5", "--pauses", "1")
    command = (sys.executable, BENCH / "run.py", *options, "--output", output)
    done = cotenant("softgpu", "--", *command, env=softgpu_env, timeout=120)
    assert done.returncode == 1
    assert "| **missed** | fewer than the 100000 evictions wanted of each, within 1 s |" in done.stdout
    found = json.loads(output.read_text())
    assert [one["same"] for one in found["losses"]] == [True, True]
    assert "no_helper" in found
    # Nothing at all works: still one line that says why, and what is known.
    done = cotenant("softgpu", "--", *command, "--python", "false", env=softgpu_env, timeout=120)
    assert done.returncode == 1
    assert "error: the bandwidth (alone) ended with status 1" in done.stderr
    assert json.loads(output.read_text())["problems"][0] == "the bandwidth (alone) ended with status 1"
