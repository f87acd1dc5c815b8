"""The documentation's site builds without a warning, and has what the code says: commands, policies, fields, findings.
The manual's pages are ones that man(1) reads."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import manual
from cotenant.cli import cli
from cotenant.doctor import checks
from cotenant.policies import interface, registry
from tests.conftest import TREE

if TYPE_CHECKING:
    from tests.conftest import Run

PAGES = list(manual.pages(cli))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=TREE, env=env, check=False, capture_output=True, text=True, timeout=240
    )
    assert (done.returncode, done.stderr.strip()) == (0, ""), done.stdout
    return folder


def test_the_site_has_every_page_and_every_command(site: Path) -> None:
    for source in (TREE / "docs").glob("*.md"):
        assert (site / source.with_suffix(".html").name).exists(), source
    contents = (site / "index.html").read_text()
    for page in PAGES:
        assert f"commands/{page.name}.html" in contents
        text = (site / "commands" / f"{page.name}.html").read_text()
        assert all(one.variable in text for one in page.options)


def test_the_site_has_policies_fields_and_findings(site: Path) -> None:
    policies = (site / "reference" / "policies.html").read_text()
    assert all(f'id="{name}"' in policies for name in registry.BUILT_IN)
    fields = (site / "reference" / "view.html").read_text()
    for one in (interface.View, interface.Tenant):
        assert all(f"<code>{field.name}</code>" in fields for field in dataclasses.fields(one))
    findings = (site / "reference" / "troubleshooting.html").read_text()
    assert all(f'id="{name}"' in findings for name in checks.CHECKS)
    # A check that can fail says what to do.
    assert findings.count("<td>fail</td>") >= 5
    assert "does not answer" in findings and "run all jobs with one version" in findings
    assert findings.count("<td>...</td>") <= 4, "a remedy that the page cannot show"


def test_nothing_on_the_site_names_this_machine(site: Path) -> None:
    home = str(TREE)
    assert not [page for page in site.rglob("*.html") if home in page.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_says_what_the_command_says(page: manual.Page) -> None:
    assert page.short and page.synopsis.startswith(" ".join(page.words))
    text = manual.roff(page)
    # A line that begins with a dot or an apostrophe is a request: only ours are.
    known = (".TH", ".SH", ".PP", ".TP", ".B", ".nf", ".fi")
    assert all(line.split()[0] in known for line in text.splitlines() if line[:1] in (".", "'"))
    for one in page.options:
        assert manual.escaped(one.words) in text


def test_man_reads_the_pages(cotenant: Run, plain_env: dict[str, str], tmp_path: Path) -> None:
    done = cotenant("man", "--output", tmp_path, env=plain_env)
    assert done.returncode == 0, done.stderr
    assert {file.name for file in tmp_path.iterdir()} == {f"{page.name}.1" for page in PAGES}
    if not shutil.which("groff"):
        pytest.skip("groff is not installed")
    for file in sorted(tmp_path.iterdir()):
        command = ["groff", "-man", "-Tutf8", "-ww", str(file)]
        read = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        assert (read.returncode, read.stderr) == (0, ""), file


def test_man_prints_the_page_of_a_command_and_knows_the_nearest(
    cotenant: Run, plain_env: dict[str, str]
) -> None:
    done = cotenant("man", "segment", "create", env=plain_env)
    assert done.stdout.startswith('.TH "COTENANT-SEGMENT-CREATE" 1')
    done = cotenant("man", "segmnt", env=plain_env)
    assert done.returncode == 2 and "did you mean 'segment'?" in done.stderr


def test_a_paragraph_that_keeps_its_lines_does() -> None:
    assert list(manual.paragraphs("One\ntwo.\n\n\b\na b\nc d\n")) == ["One two.", "    a b\n    c d"]
    assert manual.escaped(".SH x-y\\") == "\\&.SH x\\-y\\e"


def test_a_page_as_man_reads_it() -> None:
    option = manual.Option("-o, --output FILE", "The file.", "COTENANT_OUT")
    flag = manual.Option("--now", "At once.", "")
    page = manual.Page(
        ("cotenant", "made-up"), "Do it", "cotenant made-up [OPTIONS]", ("Text.", "    a\n    b"), (option, flag),
        ("cotenant made-up -o x",), (("below", "Do less"), ("above", "Do more")),
    )  # fmt: skip
    head, *lines = manual.roff(page).splitlines()
    assert head.startswith('.TH "COTENANT-MADE-UP" 1 "" "cotenant ')
    assert lines == [
        ".SH NAME", "cotenant\\-made\\-up \\- Do it", ".SH SYNOPSIS", ".B cotenant made\\-up [OPTIONS]",
        ".SH DESCRIPTION", ".PP", "Text.", ".PP", ".nf", "    a", "    b", ".fi",
        ".SH OPTIONS", ".TP", ".B \\-o, \\-\\-output FILE", "The file.", "Variable: COTENANT_OUT.",
        ".TP", ".B \\-\\-now", "At once.",
        ".SH COMMANDS", ".TP", ".B cotenant\\-made\\-up\\-below(1)", "Do less",
        ".TP", ".B cotenant\\-made\\-up\\-above(1)", "Do more",
        ".SH EXAMPLES", ".nf", "cotenant made\\-up \\-o x", ".fi",
    ]  # fmt: skip
    assert manual.markdown(page).splitlines() == [
        "# cotenant made-up", "", "Do it.", "", "    cotenant made-up [OPTIONS]", "", "Text.", "", "    a", "    b", "",
        "| command | what it does |", "| --- | --- |", "| [below](cotenant-made-up-below.md) | Do less |",
        "| [above](cotenant-made-up-above.md) | Do more |", "",
        "| option | variable | meaning |", "| --- | --- | --- |",
        "| `-o, --output FILE` | `COTENANT_OUT` | The file. |", "| `--now` |  | At once. |", "",
        "## Examples", "", "    cotenant made-up -o x",
    ]  # fmt: skip
