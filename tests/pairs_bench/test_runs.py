"""bench/pairs: whole runs, with jobs that only sleep, and on the software GPU."""

from __future__ import annotations

import itertools
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TREE, clean_environment
from tests.pairs_bench.loading import BENCH, load

catalogue = load("catalogue")
promises = load("promises")


# Whole runs, with jobs that sleep

# Does what the benchmark expects of `cotenant run --require --class CLASS -- COMMAND...` and of `cotenant explain PID`.
STAND_IN = """
import os, sys
from cotenant.launch import job_name
if sys.argv[1] == "explain":
    os.kill(int(sys.argv[2]), 0)
    print("It does as it is told.")
    sys.exit(0)
assert sys.argv[1:4] == ["run", "--require", "--class"], sys.argv
job_name.checked(os.environ["COTENANT_NAME"])
command = sys.argv.index("--") + 1
with open(os.environ["STAND_IN_LOG"], "a") as log:
    told = [sys.argv[4], os.environ["COTENANT_NAME"], *sys.argv[5:command - 1]]
    log.write(" ".join(told) + "\\t" + os.environ["XDG_CACHE_HOME"] + "\\n")
os.execv(sys.argv[command], sys.argv[command:])
"""
# As much of nvidia-cuda-mps-control as the benchmark uses.
MPS_CONTROL = """#!/bin/sh
[ -d "$CUDA_MPS_PIPE_DIRECTORY" ] && [ -d "$CUDA_MPS_LOG_DIRECTORY" ] || exit 3
if [ "$1" = -d ]; then
    echo started >>"$MPS_LOG"
    [ -z "$MPS_BROKEN" ] || { echo "no MPS today" >&2; exit 1; }
else
    cat >>"$MPS_LOG"
fi
"""


class Bench:
    def __init__(self, folder: Path) -> None:
        self.output = folder / "pairs.json"
        self.page = folder / "page.md"
        self.page.write_text((TREE / "docs" / "benchmarks.md").read_text())
        self.mps_log = folder / "mps.log"
        self.told = folder / "told.log"
        (folder / "stand_in.py").write_text(STAND_IN)
        programs = folder / "bin"
        programs.mkdir()
        control = programs / "nvidia-cuda-mps-control"
        control.write_text(MPS_CONTROL)
        control.chmod(control.stat().st_mode | stat.S_IXUSR)
        self.env = clean_environment() | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "MPS_LOG": str(self.mps_log),
            "STAND_IN_LOG": str(self.told),
        }
        self.command = [sys.executable, str(BENCH / "run.py"), "--output", str(self.output), "--rounds", "1"]
        self.command += ["--hurry"]
        self.command += ["--cotenant", f"{sys.executable} {folder / 'stand_in.py'}"]

    def run(self, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *options],
            env=self.env | env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def runs(self) -> list[tuple[str, str]]:
        """What each `cotenant run` was told, with the job's name, and its cache."""
        lines = [line.split("\t") for line in self.told.read_text().splitlines()]
        return [(told, cache) for told, cache in lines]

    def section(self, name: str) -> Any:
        return json.loads(self.output.read_text())[name]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_pair_that_fails_or_is_skipped_does_not_stop_the_others(bench: Bench) -> None:
    done = bench.run(
        "--pairs",
        "toy-service+toy-missing,toy-service+toy-dying,toy-service+toy-work",
        *("--modes", "mps-priority,cotenant", "--seconds", "1.2", "--markdown", str(bench.page)),
    )
    assert done.returncode == 1, done.stderr
    missing, dying, work = bench.section("pairs")["pairs"]
    assert "a_library_that_does_not_exist" in missing["skipped"]
    assert "toy-dying" in dying["failed"] and "died on purpose" in dying["failed"]
    modes = work["figures"]["modes"]
    assert list(modes) == ["alone", "mps-priority", "cotenant"]
    for mode in modes.values():
        assert mode["production_results"] == "same" and mode["requests"] == modes["alone"]["requests"] > 0
    for mode in ("mps-priority", "cotenant"):
        assert (
            modes[mode]["opportunistic_share"]["value"] > 0 and modes[mode]["opportunistic_results"] == "same"
        )
    assert len(work["samples"]["alone"][0]["latencies_ms"]) == modes["alone"]["requests"]
    assert bench.mps_log.read_text().split() == ["started", "quit"]
    assert {told.split()[0] for told, _ in bench.runs()} == {"production", "opportunistic"}
    assert work["explained"] == {
        "toy-service (production)": ["It does as it is told."],
        "toy-work (opportunistic)": ["It does as it is told."],
    }
    assert "**toy-service+toy-work**" in done.stdout
    assert "**toy-service+toy-work**" in bench.page.read_text()
    assert "error: toy-service+toy-dying" in done.stderr and "died on purpose" in done.stderr


def test_an_interrupted_run_goes_on_with_what_it_has_not_measured(bench: Bench) -> None:
    asked = ["--modes", "timeslice", "--seconds", "1"]
    assert bench.run("--pairs", "toy-service+toy-dying,toy-service+toy-work", *asked).returncode == 1
    before = bench.section("pairs")["pairs"]
    everything = ["--pairs", "toy-service+toy-work,toy-training+toy-work", *asked, "--resume"]
    done = bench.run(*everything)
    assert done.returncode == 0, done.stderr
    kept, new = bench.section("pairs")["pairs"]
    assert kept == before[1] and new["pair"] == "toy-training+toy-work" and "figures" in new
    assert "**toy-service+toy-work**" in done.stdout and "**toy-training+toy-work**" in done.stdout

    other = bench.run(*everything, "--rounds", "2")
    assert other.returncode == 2 and "is of a run with other rounds: 1" in other.stderr
    assert bench.section("pairs")["pairs"] == [kept, new]


def test_without_mps_its_modes_are_skipped_with_the_reason(bench: Bench) -> None:
    options = ("--pairs", "toy-training+toy-work", "--modes", "mps,timeslice", "--seconds", "0.3")
    done = bench.run(*options, MPS_BROKEN="1")
    assert done.returncode == 0, done.stderr
    section = bench.section("pairs")
    assert "no MPS today" in section["skipped_modes"]["mps"]
    assert list(section["pairs"][0]["figures"]["modes"]) == ["alone", "timeslice"]


def test_where_cotenant_goes_by_the_last_run_there_was_one(bench: Bench, tmp_path: Path) -> None:
    pairs = ("--pairs", "toy-service+toy-work,toy-training+toy-work")
    done = bench.run(*pairs, "--modes", "cotenant,strict,orion,spatial", "--seconds", "0.3")
    assert done.returncode == 0, done.stdout + done.stderr
    first, *others = [told for told, _ in bench.runs()]
    assert first == "opportunistic toy-work"
    assert "opportunistic toy-work --share spatial" in others
    assert others.count(first) == 1  # the mode `cotenant`; a second pair needs no second rehearsal
    (cache,) = {cache for _, cache in bench.runs()}
    assert cache != bench.env.get("XDG_CACHE_HOME") and not Path(cache).exists()  # it went with the benchmark


def test_a_first_run_has_no_rehearsal(bench: Bench) -> None:
    done = bench.run(
        "--pairs", "toy-service+toy-work", "--modes", "spatial,spatial 10%", "--seconds", "0.3", "--first-run"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = [told for told, _ in bench.runs()]
    assert "opportunistic toy-work" not in told
    assert "production toy-service --share spatial --slowdown 10%" in told


def test_an_interrupted_run_keeps_what_it_has_and_stops_mps(bench: Bench) -> None:
    command = [*bench.command, "--seconds", "0.3", "--modes", "mps"]
    command += ["--pairs", "toy-service+toy-work,toy-training+toy-work"]
    with subprocess.Popen(
        command, env=bench.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        told = list(
            itertools.takewhile(lambda line: "toy-training+toy-work: round 1" not in line, running.stderr)
        )
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130, (told, out, err)
    assert "Traceback" not in err
    (entry,) = bench.section("pairs")["pairs"]
    assert entry["pair"] == "toy-service+toy-work" and "figures" in entry
    assert bench.mps_log.read_text().split() == ["started", "quit"]


def test_overhead_is_told_for_both_classes(bench: Bench) -> None:
    done = bench.run(
        "overhead", "--jobs", "toy-work", "--rounds", "2", "--seconds", "0.5", "--processes", "2"
    )
    assert done.returncode == 0, done.stderr
    rows = bench.section("overhead")["rows"]
    assert [row["class"] for row in rows] == ["production", "opportunistic"]
    for row in rows:
        for rates in row["by_process"].values():
            assert [len(rounds) for rounds in rates] == [2, 2]
        assert row["cost_interval"][0] <= row["cost"] <= row["cost_interval"][1]
    assert "toy-work" in done.stdout
    assert "toy-work" not in bench.page.read_text()
    assert bench.run("page", "--markdown", str(bench.page)).returncode == 0
    assert "| toy-work | opportunistic |" in bench.page.read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--pairs", "decode+gtp"], "hint: did you mean 'gpt'?"),
        (["--modes", "timeslices"], "hint: did you mean 'timeslice'?"),
        (["overhead", "--jobs", "eagre"], "hint: did you mean 'eager'?"),
        (["page"], "hint: give --markdown PAGE"),
        (["--markdown", "/nowhere/page.md"], "no place for the results"),
        (["--output", "/nowhere/pairs.json"], "no place for the results"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(bench: Bench, options: list[str], said: str) -> None:
    done = bench.run(*options)
    assert done.returncode != 0 and said in done.stderr
    assert "Traceback" not in done.stderr and not bench.mps_log.exists()


def test_the_help_names_every_mode(bench: Bench) -> None:
    done = bench.run("--help")
    assert done.returncode == 0
    assert all(mode in " ".join(done.stdout.split()) for mode in catalogue.CHOOSABLE)


def test_the_list_names_jobs_pairs_and_modes(bench: Bench) -> None:
    done = bench.run("--list")
    assert done.returncode == 0
    assert all(word in done.stdout for word in (*catalogue.JOBS, *catalogue.PAIRS, *catalogue.CHOOSABLE))


def test_promises_and_the_sweep_beside_them_on_the_software_gpu(
    native: Path, softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    if not (native / "shim" / "libcuda.so.1").exists():
        pytest.skip("the interposer is not built")
    output = tmp_path / "pairs.json"
    command = [
        sys.executable,
        str(BENCH / "run.py"),
        "promises",
        "--rounds",
        "1",
        "--seconds",
        "2",
        "--hurry",
    ]
    # One of requests that arrive, one that sets its own pace.
    pairs = ["tiny+spin-100us", "toy-training+spin-100us"]
    command += ["--pairs", ",".join(pairs), "--modes", "alone again,cotenant 5%,duty 0%,duty 10%,duty 100%"]
    done = subprocess.run(
        [*command, "--output", str(output)],
        env={name: value for name, value in softgpu_env.items() if name != "COTENANT_NO_DAEMON"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    entries = json.loads(output.read_text())["promises"]["pairs"]
    assert [entry["pair"] for entry in entries] == pairs
    for entry in entries:
        shares = {row["mode"]: row["share"]["value"] for row in entry["figures"]["rows"]}
        assert set(shares) == {"alone again", "cotenant 5%", "duty 0%", "duty 10%", "duty 100%"}
        # Each says what it has seen when it ends, so that a run that is cut short was not for nothing. The process of
        # all duties is alone once, the other job idle.
        alone = ["alone", promises.alone_of("cotenant 5%"), promises.alone_of("duty 10%")]
        assert promises.alone_of("duty 100%") == alone[-1]
        assert all(
            done.stderr.count(f"{entry['pair']}: {mode}: mean service ") == 1
            for mode in (*shares, *alone, "solo")
        )
        assert all(entry["samples"][mode][0]["steps"] == 0 for mode in alone)
        # A rate is kept, however little a busy machine lets a job do without one: the promise is compared with that.
        assert shares["duty 0%"] < 0.02 and shares["duty 10%"] < 0.3
    # What guard thought at the end of the promise's window, and of no other's. (The other production uses no GPU.)
    samples = entries[0]["samples"]
    assert [mode for mode, seen in samples.items() if "explained" in seen[0]] == ["cotenant 5%"]
    explained = samples["cotenant 5%"][0]["explained"]
    thoughts = promises.of_policy(explained)
    assert any(line.startswith("policy guard, daemon ") for line in explained) and thoughts
    assert all(f"{pairs[0]}: cotenant 5%: {line}" in done.stderr for line in thoughts)


def test_preemption_on_the_software_gpu(native: Path, softgpu_env: dict[str, str], tmp_path: Path) -> None:
    if not (native / "shim" / "libcuda.so.1").exists():
        pytest.skip("the interposer is not built")
    output = tmp_path / "pairs.json"
    command = [
        sys.executable,
        str(BENCH / "run.py"),
        "preemption",
        "--rounds",
        "1",
        "--seconds",
        "0.3",
        "--hurry",
    ]
    done = subprocess.run(
        [*command, "--output", str(output)],
        env=softgpu_env,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(output.read_text())["preemption"]["rows"]
    held = [
        ("nobody", "alone"),
        ("spin-11ms", "timeslice"),
        ("spin-11ms", "cotenant"),
        ("spin-100us", "timeslice"),
        ("spin-100us", "cotenant"),
    ]
    assert [(row["request"], row["held_by"], row["mode"]) for row in rows] == [
        (request, *one) for request in ("tiny", "ten") for one in held
    ]
    assert all(0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"] for row in rows)


def test_copies_beside_copies_on_the_software_gpu(
    native: Path, softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    if not (native / "shim" / "libcuda.so.1").exists():
        pytest.skip("the interposer is not built")
    output = tmp_path / "pairs.json"
    command = [sys.executable, str(BENCH / "run.py"), "bus", "--rounds", "1", "--seconds", "0.3", "--hurry"]
    done = subprocess.run(
        [*command, "--pairs", "send+flood,fetch-pageable+flood-pageable", "--output", str(output)],
        env=softgpu_env,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(output.read_text())["bus"]["rows"]
    pairs = ("send+flood", "fetch-pageable+flood-pageable")
    assert [(row["pair"], row["mode"]) for row in rows] == [
        (pair, mode) for pair in pairs for mode in ("alone", "timeslice", "cotenant")
    ]
    assert all(0 < row["p50_us"] <= row["tail_us"] <= row["max_us"] for row in rows)
    assert not any("differs" in row["results"] for row in rows)
    assert "1 MiB to the GPU, pinned" in done.stdout
