"""The manual: a page for each command, from what the command says of itself. `cotenant man` shows them, `make man`
writes them for man(1), and the documentation's site has them as Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import click

from cotenant import __version__


@dataclass(frozen=True)
class Option:
    words: str  # "-o, --output table|json"
    help: str
    variable: str


@dataclass(frozen=True)
class Page:
    words: tuple[str, ...]  # ("cotenant", "segment", "create")
    short: str
    synopsis: str
    paragraphs: tuple[str, ...]  # one that begins with "    " is shown as it is
    options: tuple[Option, ...]
    examples: tuple[str, ...]
    subcommands: tuple[tuple[str, str], ...]  # and what they do

    @property
    def name(self) -> str:
        return "-".join(self.words)


def pages(command: click.Command, words: tuple[str, ...] = ("cotenant",)) -> Iterator[Page]:
    """Of a command and all below it."""
    context = click.Context(command, info_name=" ".join(words))
    below = {}
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            below[name] = found
    pieces = " ".join(command.collect_usage_pieces(context))
    yield Page(
        words,
        command.get_short_help_str(200).rstrip("."),
        f"{' '.join(words)} {pieces}",
        tuple(paragraphs(command.help or "")),
        tuple(option(one, context) for one in command.get_params(context) if isinstance(one, click.Option)),
        tuple(examples(command.epilog or "")),
        tuple((name, found.get_short_help_str(200).rstrip(".")) for name, found in below.items()),
    )
    for name, found in below.items():
        yield from pages(found, (*words, name))


def paragraphs(text: str) -> Iterator[str]:
    """As click has them: one with \\b keeps its lines."""
    for part in re.split(r"\n\s*\n", text.strip()):
        lines = [line.rstrip() for line in part.splitlines()]
        if lines and lines[0].strip() == "\b":
            yield "\n".join(f"    {line}" for line in lines[1:])
        elif lines:
            yield " ".join(line.strip() for line in lines)


def option(one: click.Option, context: click.Context) -> Option:
    # Click wraps nothing here: the width is the reader's.
    words, told = one.get_help_record(context) or ("", "")
    variable = one.envvar if isinstance(one.envvar, str) else ""
    told = re.sub(r"\s*\[env var: [^\];]*;?\s*", "  [", told).replace("  []", "").replace("  [", " [")
    return Option(words, re.sub(r"\s*\[\]?$", "", told).strip(), variable)


def examples(epilog: str) -> Iterator[str]:
    lines = [line.strip() for line in epilog.splitlines()]
    yield from (line for line in lines if line not in ("", "\b", "Examples:"))


def markdown(page: Page) -> str:
    lines = [f"# {' '.join(page.words)}", "", f"{page.short}.", "", f"    {page.synopsis}", ""]
    for paragraph in page.paragraphs:
        lines += [paragraph, ""]
    if page.subcommands:
        lines += ["| command | what it does |", "| --- | --- |"]
        lines += [f"| [{name}]({page.name}-{name}.md) | {cell(short)} |" for name, short in page.subcommands]
        lines.append("")
    if page.options:
        lines += ["| option | variable | meaning |", "| --- | --- | --- |"]
        for one in page.options:
            variable = f"`{one.variable}`" if one.variable else ""
            lines.append(f"| `{cell(one.words)}` | {variable} | {cell(one.help)} |")
        lines.append("")
    if page.examples:
        lines += ["## Examples", "", *(f"    {line}" for line in page.examples), ""]
    return "\n".join(lines)


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def roff(page: Page) -> str:
    """For man(1)."""
    lines = [f'.TH "{page.name.upper()}" 1 "" "cotenant {__version__}" "Cotenant"', ".SH NAME"]
    lines += [
        f"{escaped(page.name)} \\- {escaped(page.short)}",
        ".SH SYNOPSIS",
        f".B {escaped(page.synopsis)}",
    ]
    if page.paragraphs:
        lines.append(".SH DESCRIPTION")
    for paragraph in page.paragraphs:
        if paragraph.startswith("    "):
            lines += [".PP", ".nf", *(escaped(line) for line in paragraph.splitlines()), ".fi"]
        else:
            lines += [".PP", escaped(paragraph)]
    if page.options:
        lines.append(".SH OPTIONS")
    for one in page.options:
        lines += [".TP", f".B {escaped(one.words)}", escaped(one.help)]
        if one.variable:
            lines.append(f"Variable: {one.variable}.")
    if page.subcommands:
        lines.append(".SH COMMANDS")
    for name, short in page.subcommands:
        lines += [".TP", f".B {escaped(page.name)}\\-{escaped(name)}(1)", escaped(short)]
    if page.examples:
        lines += [".SH EXAMPLES", ".nf", *(escaped(line) for line in page.examples), ".fi"]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """No line of it is a request, and a hyphen is one that can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
