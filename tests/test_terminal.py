"""No escape sequence that somebody else wrote reaches the terminal, whichever command prints it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len

from cotenant import terminal
from tests.conftest import package_folder
from tests.segments import UUID, Written

if TYPE_CHECKING:
    from tests.conftest import Run

# Title of the window, colours, an eight-bit control sequence, a bell, text turned around.
NASTY = "a\x1b]0;title\x07b\x1b[31mc\x9bd\u202ee"
CLEAN = "a?]0;title?b?[31mc?d?e"


def test_what_moves_the_cursor_is_a_question_mark() -> None:
    assert terminal.printable(NASTY) == CLEAN
    assert terminal.printable("one\ntwo\r\tthree") == "one?two??three"
    assert terminal.printable("Grüße, 世界 µs") == "Grüße, 世界 µs"
    assert terminal.lines(f"{NASTY}\n\tnext\r") == f"{CLEAN}\n\tnext?"


def test_tables_and_lines_are_cleaned(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table

    table = Table(NASTY, box=None)
    table.add_row(NASTY)
    out = terminal.console(width=100)
    out.print(table)
    out.print(NASTY)
    terminal.say(NASTY)
    terminal.Stdout().write(f"{NASTY}\n")
    shown = capsys.readouterr().out
    assert shown.count(CLEAN) == 5 and not set(NASTY) - set(CLEAN) & set(shown)


def test_errors_are_cleaned(cotenant: Run, plain_env: dict[str, str]) -> None:
    done = cotenant("trace", "info", "no\x1b[31msuch", env=plain_env)
    assert done.returncode != 0 and "no?[31msuch" in done.stderr and "\x1b" not in done.stderr


@pytest.mark.parametrize("output", ["table", "wide", "csv", "json"])
def test_status_is_cleaned(cotenant: Run, plain_env: dict[str, str], output: str) -> None:
    written = Written()
    written.gpu(0, UUID)
    written.tenant(0, 100, name=b"evil\x1b[2Jname").gpus[0].busy = 1
    written.to(Path(plain_env["COTENANT_SEGMENT"]))
    done = cotenant("status", "-o", output, env=plain_env)
    assert done.returncode == 0 and "evil?[2Jname" in done.stdout and "\x1b" not in done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_locale_without_unicode_shows_what_it_can_and_stays_in_line(
    cotenant: Run, plain_env: dict[str, str], encoding: str
) -> None:
    written = Written()
    written.gpu(0, UUID)
    for slot, name in enumerate(("train.py", "Größe", "訓練モデル", "training-of-a-long-name")):
        written.tenant(slot, 100 + slot, name=name.encode()).gpus[0].busy = 1
    written.to(Path(plain_env["COTENANT_SEGMENT"]))
    env = plain_env | {"PYTHONIOENCODING": encoding, "COLUMNS": "46"}
    for command in (["status"], ["top", "--once", "--interval", "0.1"]):
        done = cotenant(*command, env=env)  # read as UTF-8
        assert (done.returncode, done.stderr) == (0, "")
        *head, heading, _, _, _, last = done.stdout.splitlines()
        assert all(len(line) <= 46 for line in head)
        rows = done.stdout.splitlines()[-4:]
        assert {cell_len(row.partition("busy")[0]) for row in rows} == {heading.index("STATE")}
        if encoding == "ascii":
            assert done.stdout.isascii() and "Gr??e" in done.stdout and "~" in last
            assert command[0] == "status" or "production      0% _" in done.stdout


def printing_calls(source: str) -> list[str]:
    """Calls that write to stdout by themselves; what goes to stderr may show progress."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name, keywords = ast.unparse(node.func), {keyword.arg for keyword in node.keywords}
        is_print = name in ("print", "click.echo", "click.secho") and not keywords & {"file", "err"}
        is_console = name.endswith("Console") and "stderr" not in keywords
        if (
            is_print
            or is_console
            or name == "sys.stdout.write"
            or "sys.stdout" in map(ast.unparse, node.args)
        ):
            found.append(f"{name} in line {node.lineno}")
    return found


@pytest.mark.parametrize(
    "folder", ["commands", "simulator", "traces", "daemon", "policies", "top", "metrics", "."]
)
def test_nothing_else_prints(folder: str) -> None:
    files = [file for file in (package_folder() / folder).glob("*.py") if file.name != "terminal.py"]
    assert files
    assert {file.name: calls for file in files if (calls := printing_calls(file.read_text()))} == {}


def test_the_search_for_calls_finds_them() -> None:
    for line in ("print(1)", "Console(width=3)", "csv.writer(sys.stdout)", "click.echo('x')"):
        assert printing_calls(line)
    assert not printing_calls("print(1, file=sys.stderr); Console(stderr=True); say(1)")
