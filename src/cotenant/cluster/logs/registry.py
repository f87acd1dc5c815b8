"""Finding a log: a file in one of the schemas, or a made-up log that is shipped."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from cotenant.cluster.logs import alibaba2020, helios, openb, philly
from cotenant.cluster.logs.interface import LoggedJob
from cotenant.errors import USAGE, Problem, nearest

SCHEMAS = (philly, helios, alibaba2020, openb)
HEAD = 4000  # characters that tell the schema


def shipped() -> dict[str, Path]:
    """Made up by us in the schemas of the public logs; none of their lines is in them."""
    folder = Path(str(files("cotenant.cluster.logs") / "made_up"))
    return {
        f"made-up-{path.stem}": path for path in sorted(folder.iterdir()) if path.suffix in (".csv", ".json")
    }


def read(item: str) -> list[LoggedJob]:
    known = shipped()
    path = known.get(item) or Path(item)
    if not path.is_file():
        hint = nearest(item, known) or f"give a log's file, or one of {', '.join(known)}"
        raise Problem(f"there is no log '{item}'", hint, USAGE)
    try:
        with path.open(errors="replace") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise Problem(f"{path} cannot be read: {error.strerror}", "give a log's file", USAGE) from None
    for schema in SCHEMAS:
        if schema.is_it(head):
            found: list[LoggedJob] = schema.read(path)
            return found
    names = ", ".join(schema.NAME for schema in SCHEMAS)
    raise Problem(f"{path} is in no known schema", f"known: {names}; docs/cluster.md describes them", USAGE)
