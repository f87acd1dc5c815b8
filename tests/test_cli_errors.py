"""A mistake on the command line: one line `error:`, one line `hint:` with the nearest right word, status 2."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from cotenant import __version__
from cotenant.cli import cli
from cotenant.errors import nearest
from cotenant.segment.folder import create_folder

if TYPE_CHECKING:
    from tests.conftest import Run

DOCUMENT = Path(__file__).parent.parent / "docs" / "commands.md"
COMMANDS = cli.list_commands(click.Context(cli))


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["rum"], "unknown subcommand 'rum'", "did you mean 'run'?"),
        (["stauts"], "unknown subcommand 'stauts'", "did you mean 'status'?"),
        (["zzz"], "unknown subcommand 'zzz'", "known: "),
        (["--verson"], "unknown option '--verson'", "did you mean '--version'?"),
        (["run", "--clas", "x"], "unknown option '--clas'", "did you mean '--class'?"),
        (["run", "--requir", "true"], "unknown option '--requir'", "did you mean '--require'?"),
        (["run", "--zzz", "true"], "unknown option '--zzz'", "see cotenant run --help"),
        (["run", "--class", "prodution", "true"], "unknown class 'prodution'", "did you mean 'production'?"),
        (["run", "--class", "opp", "true"], "unknown class 'opp'", "did you mean 'opportunistic'?"),
        (
            ["run", "--class", "Production", "true"],
            "unknown class 'Production'",
            "did you mean 'production'?",
        ),
        (["run", "--class"], "requires an argument", "see cotenant --help"),
        (["run"], "no command given", "cotenant run [options] [--] command..."),
        (["run", "--"], "no command given", "cotenant run [options] [--] command..."),
        (["status", "-o", "jsn"], "unknown output 'jsn'", "did you mean 'json'?"),
        (["policies", "extra"], "unexpected extra argument", "see cotenant policies --help"),
        (["doctor", "-o", "csv"], "unknown output 'csv'", "known: json, table"),
        (["status", "-o", "js\nn"], "unknown output 'js?n'", "did you mean 'json'?"),
        (["top", "--interval", "nan"], "'nan' is not a number", "see cotenant top --help"),
        (["dashboard", "--interval", "NaN"], "'NaN' is not a number", "see cotenant dashboard --help"),
        (["softgpu"], "no command given", "cotenant softgpu [options] [--] command..."),
        (["softgpu", "--sharing", "timeslices", "true"], "unknown sharing", "did you mean 'timeslice'?"),
    ],
)
def test_a_mistake_is_an_error_and_a_hint(cotenant: Run, arguments: list[str], error: str, hint: str) -> None:
    done = cotenant(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first.startswith("error: ") and error in first
    assert second.startswith("hint: ") and hint in second


def test_a_mistake_in_a_variable_is_one_too(cotenant: Run, plain_env: dict[str, str]) -> None:
    done = cotenant("run", "true", env=plain_env | {"COTENANT_CLASS": "standart"})
    assert done.returncode == 2
    assert "did you mean 'standard'?" in done.stderr


def test_without_arguments_the_help_is_narration(cotenant: Run) -> None:
    done = cotenant()
    assert (done.returncode, done.stdout) == (2, "")
    assert "Commands:" in done.stderr


def test_ctrl_c_while_the_command_is_being_loaded_is_no_traceback(
    cotenant: Run, plain_env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "click.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    env = plain_env | {"PYTHONPATH": os.pathsep.join([str(tmp_path), plain_env["PYTHONPATH"]])}
    done = cotenant("status", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("arguments", "closed", "status"),
    [
        ("status -o csv", ">&-", 0),
        ("man", ">&-", 0),
        ("doctor", ">&-", 1),  # there is no driver
        ("segment show", ">&-", 0),
        ("run --dry-run -- true", ">&-", 0),
        ("simulate serve-and-train --seconds 0.1", "2>&-", 0),
        ("status", "<&- >&- 2>&-", 0),
    ],
)
def test_a_closed_stream_is_as_one_that_leads_nowhere(
    plain_env: dict[str, str], tmp_path: Path, arguments: str, closed: str, status: int
) -> None:
    create_folder(tmp_path / "segment", None, [], [])
    env = plain_env | {"COTENANT_DRIVER": "/no/such/libcuda.so.1"}
    command = f"{shlex.quote(sys.executable)} -m cotenant {arguments} {closed}"
    done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == status and "Traceback" not in done.stderr


def test_version(cotenant: Run) -> None:
    assert cotenant("--version").stdout == f"cotenant {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples(cotenant: Run, name: str) -> None:
    for flag in ("--help", "-h"):
        done = cotenant(name, flag)
        assert (done.returncode, done.stderr) == (0, "")
        assert "Examples:" in done.stdout
        assert f"cotenant {name}" in done.stdout


def with_subcommands(name: str, one: click.Command | None = None) -> Iterator[tuple[str, click.Command]]:
    """By their names, as `segment` and `segment create`."""
    one = one or command(name)
    yield name, one
    for word, below in one.commands.items() if isinstance(one, click.Group) else ():
        yield from with_subcommands(f"{name} {word}", below)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_the_variable_of_every_option(name: str) -> None:
    for _, one in with_subcommands(name):
        shown = one.get_help(click.Context(one, terminal_width=1000, max_content_width=1000))
        options = [option for option in one.params if isinstance(option, click.Option) and not option.hidden]
        assert [option.envvar for option in options if str(option.envvar) not in shown] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_80_columns(name: str) -> None:
    for _, one in with_subcommands(name):
        shown = one.get_help(click.Context(one, info_name=f"cotenant {name}", terminal_width=80))
        assert [line for line in shown.splitlines() if len(line) > 80] == []


def rows(heading: str) -> list[list[str]]:
    """Of the first table below a heading of the page."""
    below = DOCUMENT.read_text().partition(f"{heading}\n")[2].splitlines()
    table = itertools.dropwhile(lambda line: not line.startswith("|"), below)
    lines = list(itertools.takewhile(lambda line: line.startswith("|"), table))[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_every_command_is_documented_and_no_other() -> None:
    known = {name: one for top in COMMANDS for name, one in with_subcommands(top)}
    listed = set()
    for cell, _ in rows("# Commands"):
        for words in re.findall("`(?:cotenant )?([^`]+)`", cell):
            name, *rest = words.split()
            listed.add(name)
            if rest and isinstance(known.get(name), click.Group):
                listed |= {f"{name} {below}" for below in rest[0].strip("[]").split("\\|")}
    assert sorted(known.keys() - listed) == []
    assert sorted(listed - known.keys()) == []


def test_every_flag_has_a_variable_and_both_are_documented_and_no_other() -> None:
    known = {
        (name, flag, str(option.envvar))
        for top in COMMANDS
        for name, one in with_subcommands(top)
        for option in one.params
        if isinstance(option, click.Option) and not option.hidden
        for flag in (*option.opts, *option.secondary_opts)
    }
    # What Kubernetes' manifests call the name of a pod's node.
    assert {variable for *_, variable in known if not variable.startswith("COTENANT_")} == {"NODE_NAME"}
    listed = {
        (name, flag, variable.strip("`"))
        for names, flags, variable, *_ in rows("## All flags and their variables")
        for name in re.findall("`([^`]+)`", names)
        for flag in re.findall("`(-[^`= ]+)", flags)
    }
    assert sorted(known - listed) == []
    assert sorted(listed - known) == []


def test_the_variables_without_a_flag_are_in_the_code() -> None:
    files = [file for folder in ("src", "native") for file in (DOCUMENT.parents[1] / folder).rglob("*.*")]
    code = "".join(file.read_text() for file in files if file.suffix in (".py", ".h", ".cpp"))
    named = [
        name for cell, _ in rows("These variables have no flag:") for name in re.findall("`(.+?)`", cell)
    ]
    assert named
    assert [name for name in named if f'"{name}"' not in code] == []


def test_shell_completion_knows_commands_and_classes(cotenant: Run, plain_env: dict[str, str]) -> None:
    asking = plain_env | {"_COTENANT_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    names = cotenant(env=asking | {"COMP_WORDS": "cotenant "}).stdout
    assert {line.split(",")[1] for line in names.splitlines()} == set(COMMANDS)
    asking |= {"COMP_WORDS": "cotenant run --class o", "COMP_CWORD": "3"}
    assert cotenant(env=asking).stdout == "plain,opportunistic\n"


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("prod", "production"),
        ("OPPORTUNISTIC", "opportunistic"),
        ("stnadard", "standard"),
        ("", ""),
        ("q", ""),
    ],
)
def test_the_nearest_word(word: str, answer: str) -> None:
    hint = nearest(word, ["production", "standard", "opportunistic"])
    assert hint == (f"did you mean '{answer}'?" if answer else "")
