"""What holds of every setting now, and where it comes from: for `cotenant config show`, and `ctl` without changes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cotenant import segment, table
from cotenant.config import files, live, settings
from cotenant.config.live import DEFAULT, LIVE, VARIABLE, Holds
from cotenant.errors import Problem
from cotenant.policies import registry
from cotenant.tenants import jobs
from cotenant.terminal import printable, say


@dataclass(frozen=True)
class Standing:
    """`value` as a user writes it."""

    setting: settings.Setting
    value: str
    holds: Holds

    def record(self) -> dict[str, Any]:
        return {
            "key": self.setting.key,
            "value": self.value,
            "source": self.holds.source,
            "file": self.holds.file or None,
            "flag": f"{self.setting.table} {self.setting.flag}".strip(),
            "variable": self.setting.environment_variable,
            "default": self.setting.default_in_words(),
        }


def of_commands(environment: Mapping[str, str], found: files.Settings) -> Iterator[Standing]:
    """What is not the daemon's: each command reads it when it starts."""
    for setting in settings.SETTINGS:
        if setting.table == "daemon":
            continue
        holds = from_here(setting, environment, found)
        value = holds.value if isinstance(holds.value, str) else setting.default_in_words()
        if setting.key == "segment" and holds.source == DEFAULT:
            value = str(segment.path_for({}))  # an administrator's, or the user's own
        yield Standing(setting, str(value), holds)


def from_here(setting: settings.Setting, environment: Mapping[str, str], found: files.Settings) -> Holds:
    if said := environment.get(setting.environment_variable):
        return Holds(said, VARIABLE)
    if setting.key in found.values:
        one = found.values[setting.key]
        text = ("true" if one.value else "false") if isinstance(one.value, bool) else str(one.value)
        return Holds(text, f"{one.file.which} file", str(one.file.path))
    return Holds(0)


def of_segment(path: Path, environment: Mapping[str, str], found: files.Settings) -> Iterator[Standing]:
    """The daemon's settings: as its segment has them. Raises Problem for what is no segment."""
    seen = jobs.look(path)
    left = live.read(path) if is_there(path) else live.NOTHING
    wanted = left.settings or live.of_daemon(given_by(environment), found.values, registry.DEFAULT)
    for setting in settings.SETTINGS:
        if setting.table != "daemon":
            continue
        name = setting.name
        holds = wanted.get(name, Holds(0))
        if name == "policy" and seen.policy:
            holds = Holds(seen.policy, LIVE)
        if name in live.KNOBS:
            yield Standing(setting, *knob(name, seen, holds, left.applied.get(name, 0)))
        else:
            yield Standing(setting, settings.shown(holds.value), holds)


def knob(name: str, seen: segment.Snapshot, wanted: Holds, applied: int) -> tuple[str, Holds]:
    values = seen.memory_knobs[name]
    if not any(values):  # nobody has set it yet: the next daemon does
        return live.knob_in_words(name, int(wanted.value)), wanted
    if all(one in (0, applied) for one in values):
        return live.knob_in_words(name, applied), wanted if wanted.value == applied else Holds(applied)
    texts = dict.fromkeys(live.knob_in_words(name, one) for one in values)
    return ", ".join(texts), Holds(max(values), LIVE)


def is_there(path: Path) -> bool:
    return os.path.lexists(path)


def given_by(environment: Mapping[str, str]) -> dict[str, Holds]:
    """What a daemon that is started from here is given. Raises Problem."""
    given = {}
    for setting in settings.SETTINGS:
        if setting.table == "daemon" and (said := environment.get(setting.environment_variable)):
            try:
                given[setting.name] = Holds(live.encoded(setting.name, setting.parsed(said)), VARIABLE)
            except click.UsageError as error:
                raise Problem(f"{setting.environment_variable}: {error.format_message()}") from None
    return given


def source_in_words(one: Standing) -> str:
    if one.setting.key == "daemon.policy" and one.holds.source == LIVE:
        return "named by ctl, run or daemon"
    if one.holds.source == VARIABLE:
        return f"environment: {one.setting.environment_variable}"
    return "default" if one.holds.source == DEFAULT else one.holds.in_words()


def print_table(every: list[Standing]) -> None:
    columns = [table.Column("SETTING"), table.Column("VALUE"), table.Column("FROM")]
    rows = [[one.setting.key, printable(one.value), printable(source_in_words(one))] for one in every]
    for line in table.lines(columns, rows, table.WHOLE):
        say(line)
