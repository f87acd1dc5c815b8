"""The table of docs/metrics.md: `make figures` writes it behind the page's own words."""

from __future__ import annotations

import sys
from pathlib import Path

from cotenant.figures import Kind, Of
from cotenant.metrics.families import SERVED, label_name, series_name

HEADING = "## All metrics\n"


def table() -> str:
    lines = [
        HEADING,
        "`make figures` writes this table from `src/cotenant/figures.py`; [figures.md](figures.md) has the same",
        "figures as `status` shows them.",
    ]
    for of in Of:
        lines += ["", f"Of {of.value}:", "", "| metric | kind | meaning |", "| --- | --- | --- |"]
        for figure in SERVED:
            if figure.of is of:
                is_text = figure.kind is Kind.text
                kind = f"1, with label `{label_name(figure)}`" if is_text else figure.kind.value
                truth = " 1: yes." if figure.unit == "yes or no" else ""
                lines.append(f"| `{series_name(figure)}` | {kind} | {figure.help}{truth} |")
    return "\n".join(lines) + "\n"


def main(page: Path) -> None:
    page.write_text(page.read_text().partition(HEADING)[0] + table())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
