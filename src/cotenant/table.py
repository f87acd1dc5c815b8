"""Tables for people that fit a width: where there is no room, the least important column is left out. No figure is cut
off or wrapped; only a name that is longer than LONGEST_NAME is shortened.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

WHOLE = 1000  # into a pipe or file nothing is left out
LONGEST_NAME, LEAST_NAME = 16, 8


@dataclass(frozen=True)
class Column:
    heading: str  # of one line or two
    is_number: bool = False
    goes: int = 0  # where the table is too wide, the highest goes first; 0: stays
    is_name: bool = False  # of a job: it has any length


def width_of_stdout() -> int:
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    is_said = os.environ.get("COLUMNS", "").isdecimal()
    return shutil.get_terminal_size().columns if is_terminal or is_said else WHOLE


def lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, gap: int = 2) -> list[str]:
    """The heading first, of as many lines as the highest has. Where not all fits with the gap, there is one space."""
    heads = [column.heading.split("\n") for column in columns]
    height = max(len(head) for head in heads)
    above = [[""] * (height - len(head)) + head for head in heads]
    every = [*([cells[line] for cells in above] for line in range(height)), *rows]
    widths = [max(cells_of(cells[at]) for cells in every) for at in range(len(columns))]
    shortest = [
        min(w, LONGEST_NAME) if column.is_name else w for column, w in zip(columns, widths, strict=True)
    ]
    if sum(shortest) + gap * (len(columns) - 1) > width:
        gap = 1
    shown = fitted(columns, widths, width, gap)
    return [text(columns, cells, shown, widths, gap) for cells in every]


def cells_of(text: str) -> int:
    """How many cells of a terminal it takes: a Chinese character takes two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def shortened(text: str, width: int) -> str:
    while cells_of(text) > width - 1:
        text = text[:-1]
    return text + "…"


def fitted(columns: Sequence[Column], widths: list[int], width: int, gap: int) -> list[int]:
    """Which columns there is room for; makes a name's column as narrow as it must be."""
    shown = list(range(len(columns)))
    name = next((at for at in shown if columns[at].is_name), None)

    def too_wide() -> int:
        return sum(widths[at] for at in shown) + gap * (len(shown) - 1) - width

    def shorten_names(least: int) -> None:
        if name is not None and too_wide() > 0:
            widths[name] = max(min(least, widths[name]), widths[name] - too_wide())

    whole = widths[name] if name is not None else 0
    shorten_names(LONGEST_NAME)
    while too_wide() > 0:
        unneeded = max(shown, key=lambda at: columns[at].goes)
        if not columns[unneeded].goes:
            break
        shown.remove(unneeded)
    if name is not None:
        widths[name] = whole
    shorten_names(LEAST_NAME)
    return shown


def text(
    columns: Sequence[Column], cells: Sequence[str], shown: Sequence[int], widths: Sequence[int], gap: int
) -> str:
    parts = []
    for at in shown:
        cell = cells[at] if cells_of(cells[at]) <= widths[at] else shortened(cells[at], widths[at])
        room = " " * (widths[at] - cells_of(cell))
        parts.append(room + cell if columns[at].is_number else cell + room)
    return (" " * gap).join(parts).rstrip()
