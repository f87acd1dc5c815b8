"""`cotenant status`: data on stdout in the form asked for, narration on stderr."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import figures, segment
from cotenant.cli import main
from cotenant.commands import status
from cotenant.config import live
from cotenant.segment import Where, paths
from tests.segments import UUID, UUID_TEXT, Written

if TYPE_CHECKING:
    from tests.conftest import Run


@pytest.fixture
def two_tenants(plain_env: dict[str, str]) -> dict[str, str]:
    written = Written()
    written.gpu(0, UUID)
    serve = written.tenant(0, pid=100, name=b"serve.py", tenant_class=0)
    serve.gpus[0].busy = 1
    serve.gpus[0].figures.kernels = 5
    train = written.tenant(1, pid=200, name=b"train.py", tenant_class=2)
    train.gpus[0].gate = 0
    train.gpus[0].figures = segment.Figures(kernels=1, graphs=2, copies=3, gates=4, escaped=6)
    train.unknown_functions = 9
    train.export_tables, train.ungated_graphs, train.checkpoints = 3, 2, 1
    written.tenant(2, pid=300, name=b"lost", owner=segment.OWNER_DIED | 300)
    written.to(Path(plain_env["COTENANT_SEGMENT"]))
    return plain_env


def test_json_has_every_live_tenant(cotenant: Run, two_tenants: dict[str, str]) -> None:
    done = cotenant("status", "-o", "json", env=two_tenants)
    assert (done.returncode, done.stderr) == (0, "")
    seen = json.loads(done.stdout)
    (gpu,) = seen["gpus"]
    assert (gpu["gpu"], gpu["uuid"]) == (0, UUID_TEXT)
    assert gpu["clock_mhz"] is None and "no daemon runs" in gpu["in_words"]
    serve, train = seen["tenants"]
    assert (serve["pid"], serve["program"], serve["class"]) == (100, "serve.py", "production")
    assert (
        serve["gpus"][0] | {"kernels": 5, "has_work": True, "gated": False, "state": "busy"}
        == serve["gpus"][0]
    )
    assert train["class"] == "opportunistic"
    assert train["unknown_functions"] == 9
    assert (train["export_tables"], train["ungated_graphs"], train["checkpoints"]) == (3, 2, 1)
    on_gpu = train["gpus"][0]
    assert (
        on_gpu | {"has_work": False, "gated": True, "graphs": 2, "copies": 3, "gates": 4, "escaped": 6}
        == on_gpu
    )


@pytest.mark.parametrize(
    ("where", "paused", "gate", "busy", "state"),
    [
        (Where.resident, 0, segment.GATE_OPEN, 1, "busy"),
        (Where.evicting, 0, segment.GATE_OPEN, 0, "evicting"),
        (Where.resident, 0, 2, 1, "gated"),
        (Where.evicted, 0, 2, 1, "evicted"),
        (Where.restoring, 0, segment.GATE_OPEN, 1, "restoring"),
        (Where.evicted, 1, segment.GATE_OPEN, 0, "paused"),
    ],
)
def test_a_tenant_is_in_one_state(
    tmp_path: Path, where: Where, paused: int, gate: int, busy: int, state: str
) -> None:
    written = Written()
    written.gpu(0, UUID)
    slot = written.tenant(0, pid=100)
    slot.residence.where, slot.residence.paused = where, paused
    slot.gpus[0].gate, slot.gpus[0].busy, slot.gpus[0].figures.kernels = gate, busy, 1
    (one,) = segment.read(written.to(tmp_path / "segment")).tenants
    assert figures.state(figures.OnGpu(one, one.uses[0])) == state


@pytest.mark.parametrize(
    ("ready", "gate_for_copies", "state"), [(0, 1, "busy"), (0, 2, "gated"), (1, 1, "gated")]
)
def test_one_that_only_copies_waits_at_the_gate_for_copies(
    tmp_path: Path, ready: int, gate_for_copies: int, state: str
) -> None:
    written = Written()
    written.gpu(0, UUID)
    slot = written.tenant(0, pid=100)
    slot.gpus[0].gate, slot.gpus[0].busy, slot.gpus[0].ready = 2, 1, ready
    slot.copy_gates[0] = gate_for_copies
    (one,) = segment.read(written.to(tmp_path / "segment")).tenants
    assert figures.state(figures.OnGpu(one, one.uses[0])) == state


def test_csv_has_a_row_for_each_tenant_on_each_gpu(cotenant: Run, two_tenants: dict[str, str]) -> None:
    rows = list(csv.DictReader(io.StringIO(cotenant("status", "-o", "csv", env=two_tenants).stdout)))
    assert [(row["gpu"], row["pid"], row["class"], row["state"]) for row in rows] == [
        ("0", "100", "production", "busy"),
        ("0", "200", "opportunistic", "gated"),
    ]
    assert rows[1]["unknown_functions"] == "9"
    assert rows[0]["uuid"] == UUID_TEXT


@pytest.mark.parametrize("form", ["table", "wide"])
def test_tables_are_whole_and_uncoloured_in_a_pipe(
    cotenant: Run, two_tenants: dict[str, str], form: str
) -> None:
    head, *rows = cotenant("status", "-o", form, env=two_tenants).stdout.splitlines()
    assert head.split()[:5] == ["GPU", "PID", "JOB", "CLASS", "STATE"]
    assert [row.split()[:5] for row in rows] == [
        ["0", "100", "serve.py", "production", "busy"],
        ["0", "200", "train.py", "opportunistic", "gated"],
    ]
    assert "\x1b" not in head + "".join(rows)
    assert (UUID_TEXT in rows[0]) == (form == "wide")


@pytest.fixture
def crowd(plain_env: dict[str, str]) -> dict[str, str]:
    """Names, numbers and states as long as they come."""
    written = Written()
    written.gpu(0, UUID)
    for at, name in enumerate((b"serve.py", b"finetune-llama-3-70b-instruct-on-our-own-data.py")):
        slot = written.tenant(at, pid=4_194_000 + at, name=name, tenant_class=2 * at)
        slot.weight, slot.gpus[0].busy, slot.gpus[0].memory_bytes = 1000, 1, 123 << 30
        slot.slowdown, slot.floor, slot.memory_limit = (50, 0, 140 << 30) if at == 0 else (0, 125, 0)
        slot.residence.where = Where.restoring
    written.to(Path(plain_env["COTENANT_SEGMENT"]))
    return plain_env


@pytest.mark.parametrize("width", [120, 80, 60, 40, 20])
def test_the_table_fits_and_leaves_out_whole_columns(
    cotenant: Run, crowd: dict[str, str], width: int
) -> None:
    whole = cotenant("status", env=crowd).stdout.splitlines()[0].split()
    head, *rows = cotenant("status", env=crowd | {"COLUMNS": str(width)}).stdout.splitlines()
    assert max(map(len, (head, *rows))) <= max(width, 30)
    kept = head.split()
    assert [heading for heading in whole if heading in kept] == kept, "a heading is whole, or not there"
    assert {"GPU", "JOB", "STATE"} <= set(kept)
    if width >= 80:
        assert {"CLASS", "GPU%", "PROMISE", "MEMORY"} <= set(kept)
        assert "123G/140G" in rows[0] and "<5%" in rows[0]


def test_what_is_used_is_watched_for_a_moment(cotenant: Run, crowd: dict[str, str]) -> None:
    """Between two looks: nothing moves in a segment that nobody writes."""
    used = [
        [tenant["gpus"][0]["gpu_share"] for tenant in json.loads(done.stdout)["tenants"]]
        for done in (
            cotenant("status", "-o", "json", "--interval", "0.01", env=crowd),
            cotenant("status", "-o", "json", "--interval", "0", env=crowd),
        )
    ]
    assert used == [[0.0, 0.0], [None, None]]


def test_an_empty_segment_has_no_tenants(cotenant: Run, plain_env: dict[str, str]) -> None:
    Written().to(Path(plain_env["COTENANT_SEGMENT"]))
    for form in ("table", "wide", "json", "csv"):
        done = cotenant("status", "-o", form, env=plain_env)
        assert (done.returncode, done.stderr) == (0, "no tenants\n")
        if form == "json":
            assert json.loads(done.stdout)["tenants"] == []
        elif form == "csv":
            assert list(csv.DictReader(io.StringIO(done.stdout))) == []
            assert done.stdout.startswith("gpu,pid,")
        else:
            assert done.stdout == ""


def test_the_default_segment_need_not_be_there_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COTENANT_SEGMENT", raising=False)
    monkeypatch.setattr(paths, "administrators", lambda: None)
    monkeypatch.setattr(paths, "own_default", lambda: tmp_path / "segment")
    assert main(["status"]) == 0
    assert capsys.readouterr().err == "no tenants\n"


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["top"],
        ["metrics"],
        ["explain", "1"],
        ["pause", "1"],
        ["resume", "1"],
        ["ctl", "1", "--weight", "2"],
    ],
)
def test_a_segment_that_was_named_must_be_there(
    cotenant: Run, plain_env: dict[str, str], words: list[str]
) -> None:
    named_by_variable = cotenant(*words, env=plain_env)
    named_by_option = cotenant(*words, "--segment", "/dev/null/mistyped", env=plain_env)
    for done, name in (
        (named_by_variable, plain_env["COTENANT_SEGMENT"]),
        (named_by_option, "/dev/null/mistyped"),
    ):
        assert (done.returncode, done.stdout) == (1, "")
        error, hint = done.stderr.splitlines()
        assert error == f"error: there is no segment {name}" and "--segment" in hint


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["top", "--once"],
        ["events"],
        ["metrics"],
        ["explain", "1"],
        ["pause", "1"],
        ["ctl", "--policy", "guard"],
        ["daemon"],
        ["dashboard"],
        ["run", "--require", "--", "true"],
        ["timeline", "stop", "1"],
    ],
)
def test_a_folder_that_is_no_segment_is_an_error(
    cotenant: Run, softgpu_env: dict[str, str], tmp_path: Path, words: list[str]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    done = cotenant(*words, env=softgpu_env | {"COTENANT_SEGMENT": str(folder)})
    assert (done.returncode, done.stdout) == (1, "")
    error, hint = done.stderr.splitlines()
    assert error == f"error: {folder} is not a Cotenant segment" and "--segment" in hint


def test_a_program_name_is_only_text(cotenant: Run, plain_env: dict[str, str]) -> None:
    """It is the guest's: neither markup nor an escape sequence of it may reach the terminal."""
    written = Written()
    written.gpu(0, UUID)
    written.tenant(0, pid=1, name=b"[red]\x1b]0;x\x07\xff[/nope]")
    written.to(Path(plain_env["COTENANT_SEGMENT"]))
    done = cotenant("status", env=plain_env)
    assert done.returncode == 0
    assert "[red]" in done.stdout
    assert "\x1b" not in done.stdout and "\x07" not in done.stdout


TENANT = """
import sys
from cuda.bindings import driver

def check(result, *values):
    assert result == driver.CUresult.CUDA_SUCCESS, result
    return values[0] if values else None

check(*driver.cuInit(0))
device = check(*driver.cuDeviceGet(0))
check(*driver.cuCtxSetCurrent(check(*driver.cuDevicePrimaryCtxRetain(device))))
memory = check(*driver.cuMemAlloc(1024))
stream = check(*driver.cuStreamCreate(0))
for _ in range(3):
    check(*driver.cuMemcpyHtoDAsync(memory, bytes(1024), 1024, stream))
check(*driver.cuStreamSynchronize(stream))
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_running_tenant_is_shown_until_it_ends(cotenant: Run, softgpu_env: dict[str, str]) -> None:
    pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    run = [sys.executable, "-m", "cotenant", "run", "--require", "--class", "production"]
    command = [*run, sys.executable, "-c", TENANT]
    with subprocess.Popen(
        command, env=softgpu_env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        during = json.loads(cotenant("status", "-o", "json", env=softgpu_env).stdout)
        child.communicate(timeout=60)
    assert child.returncode == 0
    (tenant,) = during["tenants"]
    assert (tenant["pid"], tenant["class"]) == (child.pid, "production")
    assert tenant["program"].startswith("python") and tenant["job"] == "python-code"
    assert tenant["command"].endswith(shlex.quote(TENANT)) and tenant["began_at"]
    assert re.fullmatch("[0-9a-f]{32}", tenant["run_id"])
    (on_gpu,) = tenant["gpus"]
    assert on_gpu["copies"] == 3
    assert on_gpu["uuid"] == during["gpus"][0]["uuid"]
    assert json.loads(cotenant("status", "-o", "json", env=softgpu_env).stdout)["tenants"] == []


def test_a_foreign_segment_is_an_error(cotenant: Run, plain_env: dict[str, str]) -> None:
    Path(plain_env["COTENANT_SEGMENT"]).write_bytes(b"somebody's file")
    done = cotenant("status", env=plain_env)
    assert (done.returncode, done.stdout) == (1, "")
    error, hint = done.stderr.splitlines()
    assert "is not a Cotenant segment" in error
    assert hint.startswith("hint: ")


def test_a_reader_that_goes_away_is_no_traceback(two_tenants: dict[str, str]) -> None:
    command = f"{sys.executable} -m cotenant status -o json | true"
    done = subprocess.run(["sh", "-c", command], check=False, env=two_tenants, capture_output=True, text=True)
    assert done.stderr == ""


def test_settings_that_the_daemon_could_not_take_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status.tell_wrong_settings(Path("segment"))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(live, "problem_of_daemon", lambda path: "user.toml: unknown key")
    status.tell_wrong_settings(Path("segment"))
    assert capsys.readouterr().err.endswith("the last settings that were right: user.toml: unknown key\n")
