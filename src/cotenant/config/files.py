"""The files that hold settings, TOML with a table for each command:

    segment = "/dev/shm/team"
    [run]
    class = "opportunistic"
    memory = "30%"
    [daemon]
    headroom = "2G"

The machine's file is for all users, the user's file counts before it. A file is used whole or not at all: for a key
that is unknown or a value that is none, one line names the file, the key and the remedy.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from cotenant.errors import USAGE, Problem, narrate, nearest

MACHINE = Path("/etc/cotenant/config.toml")
MACHINE_VARIABLE, USER_VARIABLE = "COTENANT_MACHINE_CONFIG", "COTENANT_USER_CONFIG"
MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class File:
    which: str  # "user" or "machine"
    path: Path | None  # None: none is wanted

    @property
    def stamp(self) -> tuple[int, ...] | None:
        """Changes with its contents; None: there is none."""
        try:
            about = os.stat(self.path) if self.path else None
        except OSError:
            return None
        return (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns) if about else None


@dataclass(frozen=True)
class Set:
    """What a file says of a key."""

    value: Any
    file: File


@dataclass(frozen=True)
class Settings:
    """What the files say, by key, and what is wrong with them."""

    values: Mapping[str, Set] = field(default_factory=dict)
    problems: Mapping[str, Problem] = field(default_factory=dict)  # by the file's `which`

    def for_command(self, name: str) -> dict[str, Any]:
        """By the parameters of its function, as click's default_map has it."""
        from cotenant.config import settings

        return {
            parameter: self.values[setting.key].value
            for parameter, setting in settings.of_command(name).items()
            if setting.key in self.values
        }


def files(environment: Mapping[str, str]) -> tuple[File, File]:
    """The machine's, and the user's, which counts before it. A variable may name another, or none if it is empty."""
    home = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME", ""), ".config")
    own = Path(home) / "cotenant" / "config.toml"
    return (
        File("machine", named(environment, MACHINE_VARIABLE, MACHINE)),
        File("user", named(environment, USER_VARIABLE, own if own.is_absolute() else None)),
    )


def named(environment: Mapping[str, str], variable: str, otherwise: Path | None) -> Path | None:
    if variable not in environment:
        return otherwise
    return Path(environment[variable]).absolute() if environment[variable] else None


def load(environment: Mapping[str, str], deep: bool = False) -> Settings:
    """`deep`: also what takes a while to check."""
    values: dict[str, Set] = {}
    problems: dict[str, Problem] = {}
    for file in files(environment):
        try:
            values |= {key: Set(value, file) for key, value in read(file, deep)}
        except Problem as problem:
            problems[file.which] = problem
    return Settings(values, problems)


def for_command(name: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """The defaults of a command's options. A file that is wrong is not used, and one line says so: it does not keep a
    job from running."""
    found = load(environment)
    for problem in found.problems.values():
        narrate(f"cotenant: {problem.message}: this file is not used; hint: {problem.hint}")
    return found.for_command(name)


def read(file: File, deep: bool = False) -> list[tuple[str, Any]]:
    """Keys and values; none where there is no file. Raises Problem."""
    if file.path is None or file.stamp is None:
        return []
    import tomllib

    try:
        with open(file.path, "rb") as opened:
            check_owner(file.path, os.fstat(opened.fileno()))
            found = tomllib.loads(opened.read(MOST_BYTES).decode("utf-8-sig"))
    except FileNotFoundError:
        return []
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Problem(
            f"{file.path} cannot be read: {why}", "mend its permissions, or remove it", USAGE
        ) from None
    except (ValueError, RecursionError) as error:  # ValueError also: a number of thousands of digits
        raise Problem(
            f"{file.path} is no TOML: {error}",
            'a line is a [table], or key = value with text in "quotes"',
            USAGE,
        ) from None
    return [(key, checked(file.path, key, value, deep)) for key, value in keys_in(file.path, found)]


def check_owner(path: Path, about: os.stat_result) -> None:
    """A policy may be a file that is executed: nobody else may write what names it."""
    if about.st_uid not in (0, os.geteuid()):
        raise Problem(f"{path} belongs to user {about.st_uid}", "make it your own or root's", USAGE)
    if stat.S_ISREG(about.st_mode) and about.st_mode & stat.S_IWOTH:
        raise Problem(f"{path} can be written by everybody", f"chmod o-w {path}", USAGE)


def keys_in(path: Path, found: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    from cotenant.config import settings

    for name, value in found.items():
        if isinstance(value, dict) and name in settings.TABLES:
            for key, inner in value.items():
                if f"{name}.{key}" not in settings.BY_KEY:
                    known = [one.name for one in settings.SETTINGS if one.table == name]
                    raise unknown_key(path, f"{name}.{key}", key, known)
                yield f"{name}.{key}", inner
        elif isinstance(value, dict):
            hint = nearest(name, settings.TABLES) or f"known: {', '.join(settings.TABLES)}"
            raise Problem(f"{path}: unknown table [{name}]", hint, USAGE)
        elif name in settings.BY_KEY:
            yield name, value
        else:
            raise unknown_key(path, name, name, [one.name for one in settings.SETTINGS if not one.table])


def unknown_key(path: Path, key: str, name: str, known: list[str]) -> Problem:
    from cotenant.config import settings

    elsewhere = [one.table or "no table" for one in settings.SETTINGS if one.name == name]
    hint = f"{name} is a key of [{elsewhere[0]}]" if elsewhere else nearest(name, known)
    return Problem(f"{path}: unknown key {key}", hint or f"known: {', '.join(sorted(known))}", USAGE)


def checked(path: Path, key: str, value: Any, deep: bool) -> Any:
    """As click shall have it. Raises Problem."""
    from cotenant.config import settings

    setting = settings.BY_KEY[key]
    if setting.is_switch:
        if not isinstance(value, bool):
            raise Problem(
                f"{path}: {key}: '{value}' is no switch", "write true or false, without quotes", USAGE
            )
        return value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        hint = f'write {setting.name} = "..." ({setting.metavar})'
        raise Problem(f"{path}: {key}: {type_name(value)} is no value for it", hint, USAGE)
    if isinstance(value, int) and abs(value) >= 1 << 64:
        raise Problem(f"{path}: {key}: a number of over 64 bits", f"it is {setting.metavar}", USAGE)
    text = settings.shown(value)
    if "\0" in text:  # neither a path, an argument nor a variable can have it
        raise Problem(f"{path}: {key}: a NUL character in it", "remove \\u0000", USAGE)
    try:
        setting.parsed(text)
        if deep and key == "daemon.policy":
            from cotenant.daemon import choice

            choice.for_segment(text)
    except Problem as problem:
        raise Problem(f"{path}: {key}: {problem.message}", problem.hint, USAGE) from None
    except click.UsageError as error:
        message = error.format_message().rstrip(".")
        reason = message.removeprefix("Invalid value: ")
        raise Problem(f"{path}: {key}: {reason}", f"it is {setting.metavar}", USAGE) from None
    return text


def type_name(value: Any) -> str:
    return {bool: "a switch", list: "a list", dict: "a table"}.get(type(value), "a date")
