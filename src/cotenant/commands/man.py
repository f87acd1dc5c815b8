"""`cotenant man`: the manual's pages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import click

from cotenant.errors import Problem, unknown
from cotenant.terminal import say


@click.command(
    "man",
    short_help="Show or write the manual's pages.",
    epilog="""\b
Examples:
  cotenant man
  cotenant man segment create
  cotenant man --output ~/.local/share/man/man1""",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    envvar="COTENANT_MAN_OUTPUT",
    help="Write all pages into this folder, for man(1).",
)
@click.argument("words", metavar="[COMMAND...]", nargs=-1)
def command(output: Path | None, words: tuple[str, ...]) -> None:
    """Show the page of a command, or write all pages.

    On a terminal man(1) shows the page; elsewhere, and where there is no man(1), it is printed as man(1) reads it.
    """
    from cotenant import manual
    from cotenant.cli import cli

    pages = {page.name: page for page in manual.pages(cli)}
    if output:
        try:
            output.mkdir(parents=True, exist_ok=True)
            for page in pages.values():
                (output / f"{page.name}.1").write_text(manual.roff(page))
        except OSError as error:
            raise Problem(f"cannot write into {output}: {error.strerror}", "name another folder") from None
        return
    name = "-".join(("cotenant", *words))
    if name not in pages:
        raise unknown("page", " ".join(words), [" ".join(page.words[1:]) for page in pages.values()])
    text = manual.roff(pages[name])
    if sys.stdout.isatty() and shutil.which("man"):
        subprocess.run(["man", "-l", "-"], input=text, text=True, check=False)
    else:
        say(text.rstrip("\n"))
