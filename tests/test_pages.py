"""The pages agree with each other and with the tree: links, anchors, paths and make targets that they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TREE = Path(__file__).parents[1]
PAGES = [
    TREE / "README.md",
    TREE / "CHANGELOG.md",
    TREE / "SECURITY.md",
    *sorted((TREE / "docs").glob("*.md")),
]

LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
PATH = re.compile(r"(?<![\w./-])(?:src|native|tests|bench|docs|deploy|examples|packaging)(?:/[\w.+-]+)+/?")
TARGET = re.compile(r"(?:^    |`)make ([a-z][a-z0-9-]*)\b", re.MULTILINE)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    slugs = (re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(prose))
    return set(slugs)


@each_page
def test_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    lost = []
    for name, anchor in LINK.findall(page.read_text()):
        target = page.parent / name if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            lost.append(f"{name}#{anchor}")
    assert lost == []


@each_page
def test_paths_that_a_page_names_are_in_the_tree(page: Path) -> None:
    made_by_make = {line.lstrip("/") for line in (TREE / ".gitignore").read_text().split()}
    named = {match.group().rstrip("./") for match in PATH.finditer(page.read_text())} - made_by_make
    # NAME stands for a name of the reader's.
    assert [path for path in sorted(named) if "NAME" not in path and not (TREE / path).exists()] == []


@each_page
def test_make_targets_that_a_page_names_exist(page: Path) -> None:
    known = set(re.findall(r"^([a-z0-9-]+):", (TREE / "Makefile").read_text(), re.MULTILINE))
    assert set(TARGET.findall(page.read_text())) - known == set()


def test_the_defaults_of_knobs_are_those_of_the_code() -> None:
    code = (TREE / "native" / "admission" / "knobs.h").read_text()
    defaults = {
        re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(): int(value)
        for name, value in re.findall(r"kDefault(\w+) = (\d+);", code)
    }
    named = 0
    for page in PAGES:
        for knob, value, unit in re.findall(r"`(\w+_[um]s)` \((\d+)( ms)?\)", page.read_text()):
            assert int(value) * (1000 if unit and knob.endswith("_us") else 1) == defaults[knob], (page, knob)
            named += 1
    assert named >= 4
