"""Policies are found by name, in other packages, and in files; what is wrong with one is said in a line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cotenant.commands import policies
from cotenant.errors import USAGE, Problem
from cotenant.policies import registry
from cotenant.policies.interface import Knobs, Policy, View

MINE = """
from cotenant.policies.interface import Knobs
class Mine:
    name, title, every_ms = "mine", "does nothing", 50
    def tick(self, view): return Knobs()
    def explain(self, tenant): return []
"""


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_a_built_in_policy_is_complete(name: str) -> None:
    found = registry.find(name)
    about = registry.about(found)
    assert about.name == name
    assert about.title and about.every_ms >= registry.SHORTEST_TICK_MS
    assert about.sharing in ("timeslice", "together")
    assert found.__module__ == registry.BUILT_IN[name].partition(":")[0]


# Those that steer within a burst look every 10 ms, as docs/published-policies.md says of their papers.
OFTEN = {"guard", "guard-spatial", "orion", "gemini", "paella"} | {
    f"salus-{way}" for way in ("pack", "fair", "srtf", "rr", "fifo")
}


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_a_policy_ticks_every_10_or_100_ms(name: str) -> None:
    assert registry.find(name).every_ms == (10 if name in OFTEN else 100)


def test_the_default_runs_live() -> None:
    assert registry.about(registry.find_live(registry.DEFAULT)).runs_live


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(Problem) as caught:
        registry.find("zzzz")
    assert caught.value.status == USAGE
    assert all(name in caught.value.hint for name in ("guard", "strict", "fair", "none"))
    with pytest.raises(Problem, match="unknown policy 'gard'") as caught:
        registry.find("gard")
    assert caught.value.hint == "did you mean 'guard'?"


def test_a_file_is_a_policy(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    for name in (f"{file}", f"{file}:Mine"):
        assert registry.find_live(name).title == "does nothing"


def test_a_file_of_this_folder_needs_no_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    for name in ("mine.py", "mine.py:Mine"):
        assert registry.is_file(name) and registry.find_live(name).title == "does nothing"
        assert registry.source_of(name) is not None
    assert not registry.is_file("guard") and registry.source_of("guard") is None


LEAST = """
from cotenant.policies.interface import Policy
class Least(Policy):
    name, title = "least", "does nothing"
"""


@pytest.mark.parametrize("content", [LEAST, MINE])
def test_what_a_policy_does_not_define_is_as_in_the_base_class(tmp_path: Path, content: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(content)
    found = registry.find_live(str(file))
    assert issubclass(found, Policy)
    assert registry.about(found).rule == "strict" and found.sharing == "timeslice" and not found.priorities
    assert found().tick(View(0, ())) == Knobs() and found().explain(1) == []


@pytest.mark.parametrize(
    ("content", "wanted", "complaint"),
    [
        (MINE, ":Yours", "has no policy Yours"),
        (MINE + MINE.replace("Mine", "Yours"), "", "2 policies"),
        ("", "", "0 policies"),
        ("1 / 0", "", "ZeroDivisionError"),
        ("def", "", "SyntaxError"),
        ("class Half:\n    def tick(self, view): ...\n", "", "lacks name, title"),
        (MINE.replace("50", "1"), "", "a tick every 1 ms"),
        (MINE + "    rule = 'strict'", "", "has the rule 'strict'"),
        (MINE + "    sharing = 'sometimes'", "", "has the sharing 'sometimes'"),
        (
            MINE.replace('"mine", "d', '"mine", "d').replace("50", "50\n    runs_live = False"),
            "",
            "simulator",
        ),
    ],
)
def test_a_file_that_is_none_is_told_why(tmp_path: Path, content: str, wanted: str, complaint: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(content)
    with pytest.raises(Problem, match=complaint):
        registry.find_live(f"{file}{wanted}")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="there is no policy file"):
        registry.find(f"{tmp_path}/gone.py")


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Another package with a policy `theirs`, as pip leaves it."""
    about = folder / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{registry.GROUP}]\ntheirs = {place}\n")
    (folder / "their_policies.py").write_text(MINE)
    monkeypatch.syspath_prepend(folder)


def test_an_installed_package_brings_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch, "their_policies:Mine")
    assert "theirs" in registry.names()
    assert registry.find("theirs").title == "does nothing"


def test_a_package_is_loaded_again_only_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch, "their_policies:Mine")
    monkeypatch.delitem(sys.modules, "their_policies", raising=False)
    first = registry.find("theirs")
    (tmp_path / "their_policies.py").write_text(MINE.replace("does nothing", "does something else"))
    assert registry.find("theirs").title == first.title == "does nothing"
    assert registry.find("theirs", anew=True).title == "does something else"


def test_what_a_package_calls_a_policy_is_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch, "their_policies:Mine.tick")
    monkeypatch.delitem(sys.modules, "their_policies", raising=False)
    with pytest.raises(Problem, match="the policy 'theirs' is no class"):
        registry.find("theirs")


def test_a_broken_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch, "not_there:Mine")
    with pytest.raises(Problem, match="'theirs' of not_there:Mine cannot be loaded"):
        registry.find("theirs")


def test_the_command_lists_every_policy_and_marks_the_default() -> None:
    lines = CliRunner().invoke(policies.command).output.splitlines()
    rows = {line.split()[0]: line for line in lines[1:]}
    assert list(rows) == registry.names()
    assert [name for name, line in rows.items() if line.endswith("(default)")] == [registry.DEFAULT]
    for name, line in rows.items():
        about = registry.about(registry.find(name))
        assert line.split()[1:3] == [about.rule, "live" if about.runs_live else "simulated"]
