"""Figures are declared once (cotenant/figures.py): every form has them from there, under one name, and the page too."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import figures, figures_page
from cotenant.api import write_types
from cotenant.figures import FIGURES, Figure, Kind, Of, Width
from cotenant.simulator.figures import OF_OUTCOME, OF_TENANT
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
