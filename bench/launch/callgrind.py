"""Reads what callgrind wrote: how many instructions each call from one function to another cost, all told."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

NAME = re.compile(r"\((\d+)\)(?: (.*))?$")


@dataclass(frozen=True)
class Place:
    object: str  # the path of the program or library
    function: str


@dataclass(frozen=True)
class Edge:
    caller: Place
    callee: Place


@dataclass
class Cost:
    calls: int = 0
    instructions: int = 0


class Names:
    """Callgrind writes a name once and its number from then on."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def read(self, text: str) -> str:
        match = NAME.match(text)
        if not match:
            return text
        number, name = match.groups()
        if name is not None:
            self.known[number] = name
        return self.known[number]


def read_edges(lines: Iterable[str]) -> dict[Edge, Cost]:
    objects, functions = Names(), Names()
    edges: dict[Edge, Cost] = defaultdict(Cost)
    here = callee = Place("", "")
    called_object: str | None = None
    pending_calls = 0
    for raw in lines:
        line = raw.rstrip("\n")
        key, separator, value = line.partition("=")
        if separator and key == "ob":
            here = Place(objects.read(value), here.function)
        elif separator and key == "fn":
            here = Place(here.object, functions.read(value))
            called_object = None
        elif separator and key == "cob":
            called_object = objects.read(value)
        elif separator and key == "cfn":
            callee = Place(here.object if called_object is None else called_object, functions.read(value))
            called_object = None
        elif separator and key == "calls":
            pending_calls = int(value.split()[0])
        elif pending_calls and line and (line[0].isdigit() or line[0] in "+-*"):
            cost = edges[Edge(here, callee)]
            cost.calls += pending_calls
            cost.instructions += int(line.split()[1])
            pending_calls = 0
    return edges


def total(edges: dict[Edge, Cost], *, into: str | None = None, out_of: str | None = None) -> Cost:
    """All calls into the function `into`, or out of `out_of`."""
    wanted = [
        cost
        for edge, cost in edges.items()
        if (into is None or edge.callee.function == into)
        and (out_of is None or edge.caller.function == out_of)
    ]
    return Cost(sum(c.calls for c in wanted), sum(c.instructions for c in wanted))
