"""The command line is what scripts are written against: tests/command_line.json has each option with its variable, its
default and what it takes. A new option is added there (`python -m tests.test_command_line` writes the file); one that
goes, or takes something else, breaks somebody's script and belongs into the changelog."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from cotenant.cli import Subcommands, cli

FILE = Path(__file__).parent / "command_line.json"


def taken(type: Any) -> str:
    """What an option takes, in a word."""
    if isinstance(type, click.Choice):
        return "one of " + ", ".join(map(str, type.choices))
    if isinstance(type, click.IntRange | click.FloatRange):
        low = "" if type.min is None else f"{'over' if type.min_open else 'from'} {type.min:g} "
        return f"{type.name.removesuffix(' range')} {low}" + ("" if type.max is None else f"to {type.max:g}")
    if isinstance(type, click.Path):
        wanted = ("exists", "file_okay", "dir_okay", "writable", "readable", "resolve_path", "allow_dash")
        return "path " + " ".join(name for name in wanted if getattr(type, name))
    return str(type.name)


def shown(one: click.Parameter) -> str:
    parts = [taken(one.type).strip()] + ([] if one.nargs == 1 else [f"nargs {one.nargs}"])
    parts += [f"variable {one.envvar}"] if one.envvar else []
    # Releases of click differ in what the default of an option without one is.
    if isinstance(one.default, str | int | float | tuple | Path) and one.default not in (False, ()):
        parts.append(f"default {one.default}")
    if isinstance(one, click.Option):
        flags = ("is_flag", "multiple", "hidden", "required", "count")
        parts += [name for name in flags if getattr(one, name)]
        if one.metavar:
            parts.append(f"metavar {one.metavar}")
        parts += [f"or {name}" for name in one.secondary_opts]
        if one.is_flag and isinstance(one.flag_value, str):
            parts.append(f"means {one.flag_value}")
    elif one.required:
        parts.append("required")
    return "; ".join(parts)


def commands(name: str, one: click.Command) -> Iterator[tuple[str, dict[str, str]]]:
    yield name, {" ".join(option.opts): shown(option) for option in one.params}
    if isinstance(one, Subcommands):
        context = click.Context(one)
        below = {word: one.get_command(context, word) for word in one.list_commands(context)}
    else:
        below = dict(one.commands) if isinstance(one, click.Group) else {}
    for word, found in below.items():
        assert found is not None
        yield from commands(f"{name} {word}", found)


def today() -> dict[str, Any]:
    return dict(commands("cotenant", cli))


def test_the_options_are_those_that_scripts_know() -> None:
    assert today() == json.loads(FILE.read_text()), "python -m tests.test_command_line, and the changelog"


if __name__ == "__main__":
    FILE.write_text(json.dumps(today(), indent=1) + "\n")
