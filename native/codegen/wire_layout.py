"""Writes down for Python what native/wire lays out, with the rules and the knobs' defaults, and for the compiler what
Python was told.

wire_layout.py native/admission/knobs.h native/wire/wire.h native/wire/row.h --python wire.py --checks wire_layout.inc

It reads the headers' text, so that it works for a machine on which nothing can be run. What it takes from there it
computes as a 64-bit machine's C++ does; the checks, compiled into the library, are static_asserts of every number that
Python gets. A structure is read if Header or Slot holds it; of constants those named kSomething; enumerations all. A
Row becomes a named tuple and the format by which `struct` unpacks it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

ROOTS = ("Header", "Slot")
ROW = "Row"
# C++'s types: the name that Python's ctypes has, and how many bytes it takes.
SCALARS = {
    "char": ("c_char", 1),
    "uint8_t": ("c_uint8", 1),
    "uint32_t": ("c_uint32", 4),
    "uint64_t": ("c_uint64", 8),
}
CODES = {"uint32_t": "I", "uint64_t": "Q"}  # of Python's struct
TOKEN = re.compile(r"""[A-Za-z_][\w:]*|0x[0-9a-fA-F]+|\d+|'[^']'|<<|[^\s\w]""")


class NotPlain(Exception):
    """The header has what this does not read; the text says where."""


@dataclass(frozen=True)
class Field:
    name: str
    type: str  # in C++: a scalar's name, or a structure's with those it lies in
    dimensions: tuple[int, ...]
    offset: int
    size: int


@dataclass
class Structure:
    name: str  # as C++ has it: Slot::Asked
    fields: list[Field] = field(default_factory=list)
    size: int = 0
    alignment: int = 1

    @property
    def python_name(self) -> str:
        return self.name.rpartition("::")[2]


@dataclass
class Layout:
    constants: dict[str, int | bytes] = field(default_factory=dict)
    enumerations: dict[str, dict[str, int]] = field(default_factory=dict)
    namespaces: dict[str, str] = field(default_factory=dict)  # of constants and enumerations
    structures: list[Structure] = field(default_factory=list)  # each after those that it holds


def tokens_of(text: str) -> list[str]:
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return TOKEN.findall(re.sub(r"^\s*#[^\n]*", "", text, flags=re.MULTILINE))


def closing(tokens: list[str], at: int) -> int:
    """The place of the bracket that closes the one at this place."""
    pairs = {"{": "}", "(": ")", "[": "]"}
    depth = 0
    for place in range(at, len(tokens)):
        depth += (tokens[place] == tokens[at]) - (tokens[place] == pairs[tokens[at]])
        if depth == 0:
            return place
    raise NotPlain(f"{tokens[at]} is not closed")


class Reader:
    def __init__(self, texts: Iterable[str]) -> None:
        self.layout = Layout()
        self.aliases: dict[str, str] = {}
        self.bodies: dict[str, list[str]] = {}
        for tokens in map(tokens_of, texts):
            if tokens[:1] != ["namespace"] or tokens[2] != "{":
                raise NotPlain("a header does not begin with its namespace")
            self.read_namespace(tokens[1], tokens[3 : closing(tokens, 2)])
        for root in (*ROOTS, *({ROW} & self.bodies.keys())):
            self.structure(root)

    def read_namespace(self, namespace: str, tokens: list[str]) -> None:
        at = 0
        while at < len(tokens):
            end = self.statement_end(tokens, at)
            statement = tokens[at:end]
            if statement[0] == "constexpr":
                self.read_constant(namespace, statement)
            elif statement[0] == "enum":
                self.read_enumeration(namespace, statement)
            elif statement[0] == "using":
                self.read_alias(statement)
            elif statement[0] == "struct":
                self.bodies[statement[1]] = statement[3:-1]
            at = end + 1 if end < len(tokens) and tokens[end] == ";" else end

    def statement_end(self, tokens: list[str], at: int) -> int:
        """The place of its semicolon, or the one behind a function's body."""
        is_function = False
        while tokens[at] != ";":
            if tokens[at] in "({":
                is_body = tokens[at] == "{" and is_function
                is_function = is_function or tokens[at] == "("
                at = closing(tokens, at)
                if is_body:
                    return at + 1
            at += 1
        return at

    def read_constant(self, namespace: str, statement: list[str]) -> None:
        before, value = statement[: statement.index("=")], statement[statement.index("=") + 1 :]
        if before[-1] == "]":
            name = before[before.index("[") - 1]
            found: int | bytes = "".join(one[1] for one in value if one[0] == "'").encode()
        else:
            name, found = before[-1], self.value(value)
        if re.match(r"k[A-Z]", name):
            self.layout.constants[name] = found
            self.layout.namespaces[name] = namespace

    def read_enumeration(self, namespace: str, statement: list[str]) -> None:
        name, body = statement[1], statement[statement.index("{") + 1 : -1]
        if statement[2:4] != [":", "uint32_t"]:
            raise NotPlain(f"enum {name} is no uint32_t")
        members = " ".join(body).split(",")
        pairs = [member.split("=") for member in members if member.strip()]
        if any(len(pair) != 2 for pair in pairs):
            raise NotPlain(f"enum {name} does not number its members")
        self.layout.namespaces[name] = namespace
        self.layout.enumerations[name] = {
            member.strip(): self.value(number.split()) for member, number in pairs
        }

    def read_alias(self, statement: list[str]) -> None:
        if statement[3:5] == ["std::atomic", "<"]:
            self.aliases[statement[1]] = statement[5]

    def value(self, tokens: list[str]) -> int:
        """Of a number, a constant, or two of these and what is done with them."""
        operations = {
            "+": int.__add__,
            "-": int.__sub__,
            "*": int.__mul__,
            "/": int.__floordiv__,
            "<<": int.__lshift__,
        }
        if len(tokens) == 3 and tokens[1] in operations:
            return operations[tokens[1]](self.value(tokens[:1]), self.value(tokens[2:]))
        [one] = tokens if len(tokens) == 1 else [" ".join(tokens)]
        if isinstance(known := self.layout.constants.get(one), int):
            return known
        try:
            return int(one, 0)
        except ValueError:
            raise NotPlain(f"'{one}' is no number") from None

    def structure(self, name: str) -> Structure:
        for known in self.layout.structures:
            if known.name == name:
                return known
        made = Structure(name)
        tokens = self.bodies[name]
        at = 0
        while at < len(tokens):
            alignment = 1
            if tokens[at] == "alignas":
                alignment = self.value([tokens[at + 2]])
                at += 4
            if tokens[at] == "struct":
                end = closing(tokens, at + 2)
                kind = f"{name}::{tokens[at + 1]}"
                self.bodies[kind] = tokens[at + 3 : end]
                at = end + 1
            else:
                kind = self.kind(tokens[at], name)
                at += 1
            while tokens[at - 1] != ";":
                at = self.declarator(made, kind, alignment, tokens, at)
        made.size = -(-made.size // made.alignment) * made.alignment
        self.layout.structures.append(made)
        return made

    def kind(self, name: str, inside: str) -> str:
        name = self.aliases.get(name, name)
        if name in SCALARS or name in self.bodies:
            return name
        raise NotPlain(f"{inside} has a field of type {name}")

    def declarator(self, into: Structure, kind: str, alignment: int, tokens: list[str], at: int) -> int:
        """Adds a field; the place behind its comma or semicolon."""
        name = tokens[at]
        at += 1
        dimensions = []
        while tokens[at] == "[":
            end = closing(tokens, at)
            dimensions.append(self.value(tokens[at + 1 : end]))
            at = end + 1
        if not name.isidentifier() or tokens[at] not in ",;":
            raise NotPlain(f"{into.name} has more than plain fields, at '{name} {tokens[at]}'")
        if kind in SCALARS:
            size = natural = SCALARS[kind][1]
        else:
            held = self.structure(kind)
            size, natural = held.size, held.alignment
        alignment = max(alignment, natural)
        for dimension in dimensions:
            size *= dimension
        offset = -(-into.size // alignment) * alignment
        into.fields.append(Field(name, kind, tuple(dimensions), offset, size))
        into.size = offset + size
        into.alignment = max(into.alignment, alignment)
        return at + 1


def constant_name(name: str) -> str:
    """kSmallestPlace: SMALLEST_PLACE."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name[1:]).upper()


def python_module(layout: Layout) -> str:
    names = [structure.python_name for structure in layout.structures]
    if len(set(names)) != len(names):
        raise NotPlain(f"two structures have the same name: {sorted(names)}")
    lines = [
        '"""The layout of a segment, from native/wire by native/codegen/wire_layout.py."""',
        "",
        "from __future__ import annotations",
        "",
        f"from ctypes import Structure, {', '.join(sorted(kind for kind, _ in SCALARS.values()))}",
        "from enum import IntEnum",
        "from typing import NamedTuple",
        "",
        *(f"{constant_name(name)} = {value!r}" for name, value in layout.constants.items()),
    ]
    for name, members in layout.enumerations.items():
        lines += ["", "", f"class {name}(IntEnum):"]
        lines += [f"    {member} = {number}" for member, number in members.items()]
    alignments: dict[str, int] = {}
    for structure in layout.structures:
        if structure.name == ROW:
            lines += python_row(structure)
            continue
        alignments[structure.name] = natural = python_fields(structure, alignments, lines)
        assert structure.size % natural == 0
    return "\n".join(lines) + "\n"


def python_row(structure: Structure) -> list[str]:
    if sum(one.size for one in structure.fields) != structure.size:
        raise NotPlain(f"{structure.name} has gaps between its fields")
    if any(one.type not in CODES or one.dimensions for one in structure.fields):
        raise NotPlain(f"{structure.name} has more than numbers")
    return [
        "",
        "",
        f"class {structure.name}(NamedTuple):",
        *(f"    {one.name}: int" for one in structure.fields),
        "",
        "",
        f'ROW_FORMAT = "={"".join(CODES[one.type] for one in structure.fields)}"',
    ]


def python_fields(structure: Structure, alignments: dict[str, int], lines: list[str]) -> int:
    """How ctypes aligns it: it knows no alignas, so bytes fill what that leaves free."""
    lines += ["", "", f"class {structure.python_name}(Structure):", "    _fields_ = ["]
    end, natural = 0, 1

    def fill(to: int, alignment: int) -> None:
        if -(-end // alignment) * alignment != to:
            lines.append(f'        ("_fill_{end}", c_uint8 * {to - end}),')

    for one in structure.fields:
        alignment = SCALARS[one.type][1] if one.type in SCALARS else alignments[one.type]
        kind = SCALARS[one.type][0] if one.type in SCALARS else one.type.rpartition("::")[2]
        for dimension in reversed(one.dimensions):
            kind += f" * {dimension}"
        fill(one.offset, alignment)
        lines.append(f'        ("{one.name}", {kind}),')
        end, natural = one.offset + one.size, max(natural, alignment)
    fill(structure.size, natural)
    lines += ["    ]"]
    return natural


def checks(layout: Layout) -> str:
    lines = ["// What Python was told of wire.h (native/codegen/wire_layout.py)."]
    for name, constant in layout.constants.items():
        whole = f"{layout.namespaces[name]}::{name}"
        if isinstance(constant, int):
            lines.append(f"static_assert({whole} == {constant});")
        else:
            lines.append(f"static_assert(sizeof {whole} == {len(constant)});")
            lines += [f"static_assert({whole}[{at}] == {one});" for at, one in enumerate(constant)]
    for name, members in layout.enumerations.items():
        whole = f"{layout.namespaces[name]}::{name}"
        lines += [f"static_assert({whole}::{member} == {number});" for member, number in members.items()]
    for structure in layout.structures:
        whole = f"wire::{structure.name}"
        lines.append(f"static_assert(sizeof({whole}) == {structure.size});")
        for one in structure.fields:
            lines.append(f"static_assert(offsetof({whole}, {one.name}) == {one.offset});")
            lines.append(f"static_assert(sizeof({whole}::{one.name}) == {one.size});")
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("headers", type=Path, nargs="+")
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--checks", type=Path)
    options = parser.parse_args()
    try:
        layout = Reader(header.read_text() for header in options.headers).layout
        write(options.python, python_module(layout))
        if options.checks:
            write(options.checks, checks(layout))
    except NotPlain as error:
        print(f"error: {error}; {Path(__file__).name} says what can be read", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
