"""Nothing that is built on something is needed by it: no cycle of includes in native/, none of imports in src/.

The rooms of native/ are as docs/architecture.md draws them.

A header and the source of the same name are one room. Of Python, what is imported when a module is: imports inside
functions and under TYPE_CHECKING do not count, nor that a submodule's import runs its package's `__init__` first.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TREE = Path(__file__).parents[1]
NATIVE, PYTHON = TREE / "native", TREE / "src"

Graph = dict[str, set[str]]

GENERATED = {"cotenant.segment.wire"}  # by the build, from headers: it imports nothing of ours


def rooms_of_native() -> Graph:
    graph: Graph = {}
    for path in sorted(NATIVE.rglob("*")):
        if path.suffix not in (".h", ".cpp", ".inc"):
            continue
        room = graph.setdefault(room_of(path), set())
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.MULTILINE):
            found = next((place for place in (NATIVE / name, path.parent / name) if place.exists()), None)
            if found:
                room.add(room_of(found.resolve()))
    return without_loops(graph)


def room_of(path: Path) -> str:
    return path.relative_to(NATIVE).with_suffix("").as_posix()


def modules_of_python() -> Graph:
    modules = {module_of(path): path for path in sorted(PYTHON.rglob("*.py"))}
    graph: Graph = {}
    for module, path in modules.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        graph[module] = set()
        for node in executed(ast.parse(path.read_text()).body):
            found = imported(node, package, modules.keys() | GENERATED)
            graph[module] |= {name for name in found if name in modules}
    return without_loops(graph)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PYTHON).with_suffix("").parts).removesuffix(".__init__")


def executed(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a module is imported."""
    for node in body:
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for name, field in ast.iter_fields(node):
            if isinstance(field, list) and not (is_for_types and name == "body"):
                yield from executed([one for one in field if isinstance(one, ast.stmt)])
                for handler in (one for one in field if isinstance(one, ast.ExceptHandler)):
                    yield from executed(handler.body)


def imported(node: ast.stmt, package: str, modules: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (name.name for name in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        source = ".".join([*above, *([node.module] if node.module else [])])
        for name in node.names:
            submodule = f"{source}.{name.name}"
            yield submodule if submodule in modules else source


def without_loops(graph: Graph) -> Graph:
    return {room: needs - {room} for room, needs in graph.items()}


def reached_from(graph: Graph, room: str) -> set[str]:
    reached: set[str] = set()
    ahead = [room]
    while ahead:
        for needed in graph.get(ahead.pop(), set()) - reached:
            reached.add(needed)
            ahead.append(needed)
    return reached


def knots(graph: Graph) -> list[set[str]]:
    """The rooms of which each needs, in the end, each."""
    reached = {room: reached_from(graph, room) for room in graph}
    found: list[set[str]] = []
    for room in sorted(graph):
        knot = {other for other in reached[room] if room in reached[other]}
        if room in knot and knot not in found:
            found.append(knot)
    return found


def a_cycle(graph: Graph, knot: set[str]) -> str:
    """The shortest through the knot's first room: "a -> b -> a"."""
    first = min(knot)
    ways = [[first]]
    while True:
        longer: list[list[str]] = []
        for way in ways:
            for needed in sorted(graph[way[-1]] & knot):
                if needed == first:
                    return " -> ".join([*way, first])
                if not any(needed in other for other in (*ways, *longer)):
                    longer.append([*way, needed])
        ways = longer


def cycles(graph: Graph) -> list[str]:
    return [f"{a_cycle(graph, knot)}  (of {sorted(knot)})" for knot in knots(graph)]


def test_no_room_of_native_includes_what_includes_it() -> None:
    assert cycles(rooms_of_native()) == []


def test_no_module_imports_what_imports_it() -> None:
    assert cycles(modules_of_python()) == []


def folders_of(graph: Graph) -> Graph:
    folders: Graph = {}
    for room, needs in graph.items():
        folders.setdefault(folder_of(room), set()).update(map(folder_of, needs))
    return without_loops(folders)


def folder_of(room: str) -> str:
    return room.partition("/")[0]


def drawn() -> Graph:
    """The drawing in docs/architecture.md: a line has one room, or two with an arrow between them."""
    page = (TREE / "docs" / "architecture.md").read_text()
    drawing = page.partition("```mermaid\ngraph TD\n")[2].partition("```")[0]
    graph: Graph = {}
    for line in drawing.splitlines():
        room, _, needed = line.partition("-->")
        graph.setdefault(room.strip(), set()).update({needed.strip()} - {""})
        graph.setdefault(needed.strip() or room.strip(), set())
    return graph


def test_the_drawing_of_the_rooms_is_what_they_include() -> None:
    assert drawn() == folders_of(rooms_of_native())


def test_every_room_is_described() -> None:
    page = (TREE / "docs" / "architecture.md").read_text()
    native = {f"`native/{path.name}`" for path in NATIVE.iterdir() if path.is_dir()}
    python = {
        f"`{path.name}/`" if path.is_dir() else f"`{path.name}`"
        for path in (PYTHON / "cotenant").iterdir()
        if (path.is_dir() or path.suffix == ".py") and not path.name.startswith("__")
    }
    assert sorted(room for room in native | python if room not in page) == []


def test_a_cycle_is_named() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}
    assert cycles(graph) == ["a -> b -> c -> a  (of ['a', 'b', 'c'])"]
