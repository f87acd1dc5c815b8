"""`cotenant trace`: what people and other programs get, and what mistakes get."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant.traces import Kind, read
from cotenant.traces.writer import write
from tests.traces.made_up import requests, shape, trace

if TYPE_CHECKING:
    from tests.conftest import Run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.trace"
    write(requests(count=3, kernels=6), path)
    return path


def test_info_counts_and_names(cotenant: Run, file: Path) -> None:
    done = cotenant("trace", "info", "-o", "json", file)
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert figures["by_kind"] == {
        "kernel": 18, "graph": 0, "copy": 3, "fill": 0, "wait": 3, "allocate": 1, "free": 1,
    }  # fmt: skip
    assert (figures["operations"], figures["requests"], figures["complete"]) == (26, 3, True)
    assert (figures["bytes_copied"], figures["peak_memory_bytes"]) == (3 * 4096, 1 << 20)
    assert [entry["name"] for entry in figures["top"]] == ["second", "first", "copy to device"]
    assert figures["top"][0]["total_us"] == pytest.approx(9 * 20)
    table = cotenant("trace", "info", file).stdout
    assert "in order" in table and "second" in table and "A made-up GPU" in table


def test_names_in_a_trace_cannot_steer_the_terminal(cotenant: Run, tmp_path: Path) -> None:
    path = tmp_path / "evil.trace"
    made = trace([shape(name="evil\x1b[2Jkernel", us=5)], [(Kind.kernel, 0, 0, 0, 0)])
    write(replace(made, facts={**made.facts, "program": "evil\x1b]0;program\x07"}), path)
    shown = cotenant("trace", "info", path).stdout
    assert "evil?[2Jkernel" in shown and "evil?]0;program?" in shown and "\x1b" not in shown


def test_a_timeline_has_an_event_for_all_that_ran(cotenant: Run, file: Path, tmp_path: Path) -> None:
    for form in ("perfetto", "chrome"):
        out = tmp_path / f"{form}.json"
        done = cotenant("trace", "export", file, "--format", form, "-o", out)
        assert (done.returncode, done.stdout) == (0, "")
        events = json.loads(out.read_text())["traceEvents"]
        assert all({"ph", "name", "pid", "tid"} <= event.keys() for event in events)
        ran = [event for event in events if event["ph"] == "X" and event["cat"] != "host"]
        assert len(ran) == 18 + 3
        assert all(event["dur"] > 0 and event["ts"] >= 0 for event in ran)
        # The host waits from when it asked to when the work was done.
        waits = [event for event in events if event["ph"] == "X" and event["cat"] == "host"]
        over = [event["ts"] + event["dur"] for event in waits]
        times = read(file).operations
        assert over == pytest.approx(times.time_us[times.wait_us > 0].tolist(), abs=0.01) and len(over) == 3
        # One stream: nothing overlaps.
        ends = [event["ts"] + event["dur"] for event in ran]
        assert all(event["ts"] >= end - 0.002 for event, end in zip(ran[1:], ends, strict=False))


def test_a_table_has_a_row_for_each_operation(cotenant: Run, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "job.csv"
    assert cotenant("trace", "export", file, "--format", "csv", "-o", out).returncode == 0
    with out.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 26
    assert [row["kind"] for row in rows[:3]] == ["allocate", "copy", "kernel"]
    assert rows[1]["direction"] == "to_device" and rows[1]["bytes"] == "4096"


def test_a_part_is_a_trace(cotenant: Run, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "part.trace"
    assert cotenant("trace", "cut", file, "--to", "0.00006", "-o", out).returncode == 0
    figures = json.loads(cotenant("trace", "info", "-o", "json", out).stdout)
    assert 0 < figures["operations"] < 26
    for nowhere in (["--from", "5"], ["--from", "0.0001", "--to", "0.00005"]):
        done = cotenant("trace", "cut", file, *nowhere, "-o", out, "--force")
        assert (done.returncode, "is there" in done.stderr) == (2, True)
    assert json.loads(cotenant("trace", "info", "-o", "json", out).stdout) == figures


def test_nothing_is_overwritten_unasked(cotenant: Run, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine.csv"
    out.write_text("mine")
    done = cotenant("trace", "export", file, "--format", "csv", "-o", out)
    assert done.returncode == 2
    assert done.stderr == f"error: {out} exists\nhint: name another file, or add --force\n"
    assert out.read_text() == "mine"
    assert cotenant("trace", "export", file, "--format", "csv", "-o", out, "--force").returncode == 0
    assert out.read_text().startswith("time_us,")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("what", ["info", "export", "cut"])
@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 something else", b"cotrace\0\x01"])
def test_what_is_no_trace_is_an_error(
    cotenant: Run, tmp_path: Path, what: str, content: bytes | None
) -> None:
    path = tmp_path / "job.trace"
    if content is not None:
        path.write_bytes(content)
    out = tmp_path / "out"
    target: list[str | Path] = [] if what == "info" else ["-o", out]
    done = cotenant("trace", what, path, *target)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and "\nhint: " in done.stderr and done.stderr.count("\n") == 2
    assert not out.exists()


def test_a_cut_off_trace_says_so(cotenant: Run, file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])
    done = cotenant("trace", "info", file)
    assert done.returncode == 0
    assert "warning: " in done.stderr and "cut off" in done.stderr
    assert "was cut off" in done.stdout


def test_an_unwritable_target_leaves_nothing(cotenant: Run, file: Path, tmp_path: Path) -> None:
    done = cotenant("trace", "export", file, "-o", tmp_path / "no such folder" / "out")
    assert done.returncode == 2
    assert "there is no folder" in done.stderr
    for what in ("export", "cut"):
        done = cotenant("trace", what, file, "-o", "/proc/out")
        assert (done.returncode, "/proc cannot be written" in done.stderr) == (2, True)


@pytest.mark.parametrize("form", ["perfetto", "chrome", "csv"])
def test_a_dash_is_stdout(cotenant: Run, file: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / "out"
    assert cotenant("trace", "export", file, "--format", form, "-o", out).returncode == 0
    done = cotenant("trace", "export", file, "--format", form, "-o", "-")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", out.read_text())
    assert not Path("-").exists()
    done = cotenant("trace", "cut", file, "-o", "-")
    assert (done.returncode, done.stdout) == (2, "") and not Path("-").exists()
