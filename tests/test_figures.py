"""Figures are declared once (cotenant/figures.py): every form has them from there, under one name, and the page too."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import figures, figures_page, segment
from cotenant.api import write_types
from cotenant.daemon import report
from cotenant.daemon.clocks import Reading
from cotenant.figures import FIGURES, Figure, Kind, Of, Width
from cotenant.gpus import states
from cotenant.policies.interface import GpuState
from cotenant.simulator.figures import OF_OUTCOME, OF_TENANT
from cotenant.tenants import lately, looking
from cotenant.tenants import waits as waits_us
from cotenant.tenants.lately import Lately
from tests.compiling import TREE
from tests.segments import UUID, Written

if TYPE_CHECKING:
    from tests.conftest import Run

ENDINGS = {"ms": "_ms", "bytes": "_bytes", "seconds": "_seconds", "us": "_us", "MHz": "_mhz", "W": "_w"}


def named(of: Of) -> list[str]:
    return [figure.name for figure in FIGURES if figure.of is of and figure.in_data]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_figure_is_named_by_its_unit_and_explained(figure: Figure) -> None:
    assert figure.help.endswith(".")
    if figure.in_data and figure.unit in ENDINGS and figure.name != "seconds_ago":
        assert figure.name.endswith(ENDINGS[figure.unit])
    if not figure.in_data:
        assert figure.width is Width.table or figure.kind is Kind.histogram


def test_a_name_is_one_figure() -> None:
    names = [figure.name for figure in FIGURES]
    assert len(set(names)) == len(names)


def test_the_page_has_what_is_declared() -> None:
    assert (TREE / "docs" / "figures.md").read_text() == figures_page.page() + "\n", "run 'make figures'"


def test_the_types_of_the_python_functions_are_what_is_declared() -> None:
    written = (TREE / "src" / "cotenant" / "api" / "figure_types.py").read_text()
    assert written == write_types.text() + "\n", "run 'make figures'"


@pytest.fixture
def one_tenant(plain_env: dict[str, str]) -> dict[str, str]:
    written = Written()
    written.gpu(0, UUID)
    slot = written.tenant(0, pid=100, name=b"serve.py", tenant_class=0)
    here = slot.gpus[0]
    here.figures.kernels, here.used_ns, here.memory_bytes = 5, 2_500_000_000, 6 << 20
    slot.weight, slot.slowdown, slot.memory_limit = 1500, 50, 20 << 30
    written.tenant(1, pid=200, name=b"without", tenant_class=7)
    written.to(Path(plain_env["COTENANT_SEGMENT"]))
    return plain_env


def test_json_csv_and_tables_agree(cotenant: Run, one_tenant: dict[str, str]) -> None:
    data = json.loads(cotenant("status", "-o", "json", env=one_tenant).stdout)
    tenant, without = data["tenants"]
    assert list(tenant) == [*named(Of.tenant), "gpus"]
    (here,) = tenant["gpus"]
    assert list(here) == named(Of.on_gpu)
    assert list(data["gpus"][0]) == ["gpu", "uuid", *named(Of.gpu)]
    assert (tenant["weight"], tenant["slowdown"], tenant["memory_limit"]) == (1.5, 0.05, "20G")
    assert (here["used_seconds"], here["memory_bytes"], here["nvml_bytes"]) == (2.5, 6 << 20, None)
    assert (without["class"], without["gpus"]) == ("class 7", [])

    rows = list(csv.DictReader(io.StringIO(cotenant("status", "-o", "csv", env=one_tenant).stdout)))
    for name, value in (tenant | here).items():
        if name != "gpus":
            assert rows[0][name] == ("" if value is None else str(value)), name
    assert rows[0].keys() == tenant.keys() - {"gpus"} | here.keys() | {"schema"}
    assert data["schema"] == figures.SCHEMA == int(rows[0]["schema"])
    assert (rows[1]["gpu"], rows[1]["kernels"], rows[1]["state"]) == ("", "0", "idle")

    head, row, _ = cotenant("status", env=one_tenant).stdout.splitlines()
    assert row.split() == ["0", "100", "serve.py", "production", "idle", "0%", "<5%", "6M/20G"]
    assert head.split() == [figure.column for figure in figures.columns(Width.table)]
    wide = cotenant("status", "-o", "wide", env=one_tenant).stdout
    assert "NVML_BYTES" in wide and {"1.5", "2.5", "<5%", "6M/20G"} <= set(wide.split())


def test_the_schema_is_another_where_a_figure_has_changed() -> None:
    """A reader of JSON or CSV goes by names and units: tests/figures_schema.json has those of this version. A new
    figure is added there; one that goes or changes needs another SCHEMA, and the file written anew."""
    known = json.loads((Path(__file__).parent / "figures_schema.json").read_text())
    live = {figure.name: figure.unit for figure in FIGURES if figure.in_data}
    simulated = {figure.name: figure.unit for figure in (*OF_OUTCOME, *OF_TENANT)}
    assert known == {"schema": figures.SCHEMA, "live": live, "simulated": simulated}


def test_a_figure_of_both_worlds_has_one_unit() -> None:
    live = {figure.name: figure.unit for figure in FIGURES}
    for figure in (*OF_OUTCOME, *OF_TENANT):
        assert live.get(figure.name, figure.unit) == figure.unit
        if figure.unit in ENDINGS:
            assert figure.name.endswith(ENDINGS[figure.unit])


def test_explain_has_the_same_figures(cotenant: Run, one_tenant: dict[str, str]) -> None:
    status = json.loads(cotenant("status", "-o", "json", env=one_tenant).stdout)
    (about,) = json.loads(cotenant("explain", "100", "-o", "json", env=one_tenant).stdout)["tenants"]
    (here,), (of_status,) = about.pop("gpus"), status["tenants"][0].pop("gpus")
    assert about | status["tenants"][0] == about
    assert here | of_status == here
    assert here["device"].keys() == status["gpus"][0].keys() - {"gpu", "uuid"}


def test_help_explains_the_columns(cotenant: Run, plain_env: dict[str, str]) -> None:
    text = cotenant("status", "--help", env=plain_env).stdout
    assert all(f"  {figure.column} " in text for figure in figures.columns(Width.table))


def a_tenant(**changed: object) -> segment.Tenant:
    """Every figure of it has a value of its own, so that no two can be confused."""
    about: dict[str, object] = {
        "pid": 101, "uid": 0, "started": 3, "program": "python3", "run_id": "ab" * 16, "tenant_class": 2,
        "unknown_functions": 4, "time_slice_us": 2005, "time_slice_refused": True, "weight": 1500,
        "slowdown": 50, "floor": 125, "export_tables": 6, "ungated_graphs": 7, "checkpoints": 8, "sms": 300,
        "sms_refused": 2, "job": "train.py", "mps_daemon": 0x1_0000_00AB, "mps_fault": 999, "grace_us": 1209,
        "memory_limit": 3 << 30, "host_bytes": 10, "where": segment.Where.evicted, "paused": True,
        "refusal": segment.Refusal.host_budget, "wanted_bytes": 11, "evictions": 12,
        "transfer_ns": 13_500_000_000, "host_pinned_bytes": 14, "saved_bytes": 15, "dropped_bytes": 16,
        "lane": 2, "process": 100,
    }  # fmt: skip
    return segment.Tenant(uses=(a_use(),), **(about | changed))  # type: ignore[arg-type]


def a_use(**changed: object) -> segment.Use:
    about: dict[str, object] = {
        "gpu": 1, "uuid": "GPU-1", "busy": True, "gated": False, "used_ns": 21_500_000_000,
        "busy_ns": 22_500_000_000, "in_flight_us": 23, "sms": 250, "sms_until_ns": 2**62, "sms_now": 24,
        "detours": 25, "undetoured": 26, "below_floor": True, "memory_bytes": 27, "driver_bytes": 28,
        "refused": 29, "movable_bytes": 30, "waits": 31, "waited_ns": 32_500_000_000,
        "gap_ns": 33_500_000_000, "blocking_calls": 34, "blocked_ns": 35_500_000_000, "operation_ns": 36_500,
        "operation_alone_ns": 37_500, "switch_us": 38, "turn_us": 39, "preemptions": 40,
        "wait_counts": (1, 2, 3), "wait_sum_ns": 41_500_000_000, "copies_gated": True,
        "figures": {name: 50 + at for at, name in enumerate(COUNTED)},
    }  # fmt: skip
    return segment.Use(**(about | changed))  # type: ignore[arg-type]


COUNTED = ("kernels", "graphs", "copies", "memory_ops", "host_calls", "gates", "escaped", "bursts")
LATELY = Lately(0.61, 0.62, 0.63, False, 64.0, 65.0, 66.0, 67.0)


def test_every_figure_is_what_its_name_says() -> None:
    assert set(COUNTED) == set(segment.FIGURES)
    tenant = a_tenant()
    (use,) = tenant.uses
    found = figures.record(tenant, {("GPU-1", 101): 29_999, ("GPU-1", 100): 1}, {(101, 3, 1): LATELY})
    (here,) = found.pop("gpus")
    assert found.pop("user") == "root"
    assert found.pop("command") is None and found.pop("began_at") is not ...
    assert found == {
        "pid": 101, "job": "train.py", "class": "opportunistic", "weight": 1.5, "unknown_functions": 4,
        "run_id": "ab" * 16, "program": "python3", "process": 100, "lane": 2, "uid": 0, "time_slice_us": 2005,
        "export_tables": 6, "ungated_graphs": 7, "checkpoints": 8, "mps": "000000ab", "memory_limit": "3G",
        "host_bytes": 10, "evictions": 12, "slowdown": 0.05, "floor": 0.125, "sms": 0.3,
        "sms_refused": "its driver makes no green contexts", "time_slice_refused": True, "grace_us": 1209,
        "mps_fault": 999, "where": "evicted", "paused": True, "evicted_for": "pause", "wanted_bytes": 11,
        "saved_bytes": 15, "dropped_bytes": 16, "host_pinned_bytes": 14, "transfer_seconds": 13.5,
        "refusal": "the host memory budget is used up",
    }  # fmt: skip
    assert here == {
        "gpu": 1, "state": "paused", "gpu_share": 0.61, "used_seconds": 21.5, "kernels": 50, "graphs": 51,
        "copies": 52, "gates": 55, "escaped": 56, "uuid": "GPU-1", "in_flight_us": 23, "memory_ops": 53,
        "host_calls": 54, "bursts": 57, "memory_bytes": 27, "driver_bytes": 28, "movable_bytes": 30,
        "nvml_bytes": 29_999, "refused_allocations": 29, "preemptions": 40, "wait_p50_us": 66.0,
        "wait_p99_us": 67.0, "promise_kept": False, "promise_seconds": 64.0, "share_asked": 0.62,
        "share_got": 0.63, "wait_us": 65.0, "has_work": True, "gated": False, "copies_gated": True,
        "below_floor": True, "busy_seconds": 22.5, "sms_by_policy": 0.25, "sms_now": 24, "detours": 25,
        "undetoured": 26, "turn_us": 39, "switch_us": 38, "timed_bursts": 31, "waited_seconds": 32.5,
        "gap_seconds": 33.5, "blocking_calls": 34, "blocked_seconds": 35.5, "operation_us": 36.5,
        "operation_alone_us": 37.5,
    }  # fmt: skip
    waits = figures.waits_of(figures.OnGpu(tenant, use))
    assert waits is not None and (waits.counts, waits.sum) == ((1, 2, 3), 41.5)
    assert waits.bounds[0] == waits_us.BOUNDS_US[0] / 1e6
    assert figures.waits_of(figures.OnGpu(tenant, a_use(wait_counts=()))) is None


def test_what_was_not_set_or_seen_is_left_open() -> None:
    tenant = a_tenant(
        slowdown=0, floor=0, mps_daemon=0, memory_limit=0, refusal=None, sms_refused=0, where=segment.Where.resident,
        paused=False,
    )  # fmt: skip
    found = figures.record(tenant, {})
    (here,) = found["gpus"]
    for name in ("slowdown", "mps", "memory_limit", "refusal", "sms_refused", "evicted_for"):
        assert found[name] is None, name
    assert found["floor"] == 0
    for name in ("nvml_bytes", "gpu_share", "promise_kept", "wait_p99_us"):
        assert here[name] is None, name
    idle = figures.OnGpu(tenant, a_use(operation_ns=0, operation_alone_ns=0, sms_until_ns=1))
    assert figures.operation_us("operation_ns")(idle) is None
    assert figures.sms_by_policy(idle) == 0


@pytest.mark.parametrize(
    "where, paused, limit, host, wanted, why",
    [
        ("resident", False, 1, 1, 0, None),
        ("restoring", True, 1, 1, 0, None),
        ("evicting", True, 0, 0, 0, "pause"),
        ("evicted", False, 5, 7, 0, "limit"),
        ("evicted", False, 0, 7, 0, "space"),
        ("evicted", False, 5, 0, 0, "space"),
        ("evicted", False, 5, 7, 9, "space"),
        ("evicting", False, 5, 7, 0, "space"),
    ],
)
def test_why_memory_is_on_the_host(
    where: str, paused: bool, limit: int, host: int, wanted: int, why: str | None
) -> None:
    tenant = a_tenant(
        where=segment.Where[where], paused=paused, memory_limit=limit, host_bytes=host, wanted_bytes=wanted
    )
    assert figures.cause_of_eviction(tenant) == why


@pytest.mark.parametrize(
    "slowdown, floor, kept, seconds, told",
    [
        (50, 0, None, None, "<5%"),
        (50, 200, True, 7.0, "<5% kept"),
        (0, 200, True, None, ">20% kept"),
        (0, 200, False, 90.0, ">20% BROKEN 1m"),
        (0, 200, False, None, ">20% BROKEN"),
        (5, 0, False, 0.0, "<0.5% BROKEN 0s"),
        (0, 0, True, 9.0, ""),
    ],
)
def test_a_promise_in_a_table(
    slowdown: int, floor: int, kept: bool | None, seconds: float | None, told: str
) -> None:
    lately = Lately(promise_kept=kept, promise_seconds=seconds)
    here = figures.OnGpu(a_tenant(slowdown=slowdown, floor=floor), a_use(), None, lately)
    assert figures.promise(here) == told


@pytest.mark.parametrize(
    "asked, got, told",
    [(None, 0.5, ""), (0.25, None, "-/25%"), (0.75, 0.604, "60/75%"), (1.0, 0.0, "0/100%")],
)
def test_a_share_in_a_table(asked: float | None, got: float | None, told: str) -> None:
    lately = Lately(share_asked=asked, share_got=got)
    assert figures.share(figures.OnGpu(a_tenant(), a_use(), None, lately)) == told


def test_a_cell_is_rounded_as_its_unit_is_read() -> None:
    def cell(name: str, value: object) -> str:
        return next(figure for figure in FIGURES if figure.name == name).cell(value)

    assert cell("used_seconds", 12.345) == "12.3" and cell("gpu_share", 0.456) == "46%"
    assert cell("wait_p99_us", 12.6) == "13" and cell("weight", 1.5) == "1.5"
    assert cell("nvml_bytes", None) == "" and cell("kernels", 0) == "0"


def test_rows_go_by_gpu_class_and_pid_and_who_used_none_comes_last() -> None:
    def one(pid: int, tenant_class: int, *gpus: int) -> segment.Tenant:
        uses = tuple(a_use(gpu=gpu, uuid=f"GPU-{gpu}") for gpu in gpus)
        return replace(a_tenant(pid=pid, tenant_class=tenant_class), uses=uses)

    seen = segment.Snapshot({}, (one(5, 0), one(4, 2, 1, 0), one(3, 0, 1), one(9, 0, 0), one(2, 0, 0)), 0)
    wanted = [figure for figure in FIGURES if figure.name in ("gpu", "pid")]
    assert list(figures.rows(seen, {}, {}, wanted)) == [[0, 2], [0, 9], [0, 4], [1, 3], [1, 4], [None, 5]]


def test_of_a_tenant_in_a_container_nvml_knows_the_machines_number_and_the_daemon_its_own() -> None:
    tenant, use = a_tenant(pid=5000, own_pid=7), a_use()
    nvml = {("GPU-1", 5000): 9, ("GPU-1", 7): 1, ("GPU-0", 5000): 2}
    assert figures.place(tenant, use, nvml, {}).nvml_bytes == 9
    state = Reading(GpuState(0.0, 1000.0, 2000.0))
    clocks = {(7, 3, 1): 500.0, (5000, 3, 1): 1000.0, (7, 3, 0): 2000.0}
    shown = report.Shown(1, "guard", "", (), {0: state, 1: state}, clocks, {})
    told = states.at_work(shown, tenant, 1)
    assert told is not None and (told["clock_mhz"], told["slower"]) == (500.0, 3.0)


def test_a_slowdown_is_that_of_what_was_in_between() -> None:
    def at(times: int, waited_ms: int) -> segment.Use:
        return a_use(
            figures=dict.fromkeys(COUNTED, 10 * times), busy_ns=100_000_000 * times, gap_ns=20_000_000 * times,
            waits=10 * times, waited_ns=waited_ms * 1_000_000, operation_ns=0, operation_alone_ns=0,
        )  # fmt: skip

    # A burst takes 10 ms; 1 ms of it waited lately, 5 ms before.
    assert lately.slowdown_between(at(1, 50), at(2, 60)) == pytest.approx(1 / 9)
    assert lately.slowdown_between(at(1, 50), at(1, 50)) is None


def test_two_looks_tell_what_was_between_them(tmp_path: Path) -> None:
    written = Written()
    written.gpu(0, UUID)
    written.tenant(0, 7).gpus[0].figures.bursts = 1
    path = written.to(tmp_path / "segment")
    for apart, share in ((0.001, 0.0), (0.0, None)):
        _, found = looking.twice(path, apart)
        assert [one.gpu_share for one in found.values()] == [share]
