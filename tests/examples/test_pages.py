"""Every command line on a page of the documentation is one that this version's command line takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from cotenant.cli import cli
from tests.conftest import TREE

PAGES = [TREE / "README.md", TREE / "SECURITY.md", *sorted((TREE / "docs").glob("*.md"))]
# An indented or quoted line; what a shell does with it is left out.
LINE = re.compile(r"^(?: {4,}|\t)(?:\$ )?(?:sudo )?cotenant (.+)$", re.MULTILINE)


def command_lines(page: Path) -> list[list[str]]:
    found = []
    for text in LINE.findall(page.read_text()):
        words = shlex.split(text, comments=True)
        end = next(
            (place for place, word in enumerate(words) if word in ("|", "&", "&&", ">", ">>", "2>")), None
        )
        found.append(words[:end])
    return found


def taken(words: list[str]) -> None:
    """Raises click's error where a subcommand or an option is none. Values are not looked at."""
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        below = command.get_command(context, words[0])
        if below is None:
            if command is not cli and command.params:  # a group that is a command too
                break
            raise click.UsageError(f"no subcommand {words[0]}")
        command, words = below, words[1:]
    context = click.Context(command, allow_interspersed_args=command.allow_interspersed_args)
    context.allow_extra_args = True
    command.make_parser(context).parse_args(list(words))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_command_lines_of_a_page_are_taken(page: Path) -> None:
    wrong = []
    for words in command_lines(page):
        try:
            taken(words)
        except click.UsageError as error:
            wrong.append(f"cotenant {shlex.join(words)}: {error.format_message()}")
    assert wrong == []


@pytest.mark.parametrize("words", [["run", "--clas", "x", "true"], ["segmnt", "show"], ["segment", "rights"]])
def test_a_mistake_would_be_seen(words: list[str]) -> None:
    with pytest.raises(click.UsageError):
        taken(words)
