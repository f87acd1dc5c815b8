"""docs/figures.md: every figure, with its unit and meaning (`make figures`)."""

from __future__ import annotations

from cotenant.figures import FIGURES, SCHEMA, Kind, Of, Width, columns
from cotenant.terminal import say

GOING = [
    figure.column for figure in sorted(columns(Width.table), key=lambda figure: -figure.goes) if figure.goes
]


def page() -> str:
    """docs/figures.md."""
    from cotenant.simulator.figures import OF_OUTCOME, OF_TENANT

    lines = [PAGE]
    for of in Of:
        lines += [
            "",
            f"## Of {of.value}",
            "",
            "| figure | unit | meaning | in |",
            "| --- | --- | --- | --- |",
        ]
        for figure in FIGURES:
            if figure.of is of:
                where = "JSON" if of is Of.gpu else figure.width.value
                if not figure.in_data:
                    where = "metrics" if figure.kind is Kind.histogram else "tables"
                short = f" (`{figure.heading}` in tables)" if figure.heading else ""
                lines.append(f"| `{figure.name}`{short} | {figure.unit} | {figure.help} | {where} |")
    for what, simulated in (("policy", OF_OUTCOME), ("tenant", OF_TENANT)):
        lines += [
            "",
            f"## Of a simulated {what}",
            "",
            "| figure | unit | meaning | in |",
            "| --- | --- | --- | --- |",
        ]
        for one in simulated:
            heading = one.heading.replace("-\n", "").replace("\n", " ")
            short = f" (`{heading}` in tables)" if heading and heading != one.name else ""
            where = "all forms" if heading else "JSON" if what == "policy" else "JSON, CSV"
            lines.append(f"| `{one.name}`{short} | {one.unit} | {one.help} | {where} |")
    return "\n".join(lines)


PAGE = f"""# Figures

What `cotenant status`, `explain`, `top` and `metrics` show. `make figures` writes this page from
`src/cotenant/figures.py`: a figure has one name, one unit and one meaning in every command and form.

`status` prints a row for each tenant on each GPU that it has used, by GPU, class and PID. Where a terminal is too
narrow for its table, columns are left out, the least important first: {", ".join(f"`{one}`" for one in GOING)}.
A figure is never cut off. null, or an empty cell: not known, or nothing was set.

## Data

`status -o json` is one object; `status -o csv` has the same figures, a row for each tenant on each GPU.

| key | holds |
| --- | --- |
| `schema` | {SCHEMA}: the version of the names, units and meanings on this page; the last column of CSV |
| `segment` | the tenants' shared memory |
| `gpus` | a list: `gpu`, `uuid`, and the [figures of a GPU](#of-a-gpu) |
| `tenants` | a list: the [figures of a tenant](#of-a-tenant); `gpus` has those [on each GPU](#of-a-tenant-on-a-gpu) |

`explain -o json` has `schema` and `tenants`, which have the same figures and more. `simulate -o json` has `schema` and
`outcomes`, one for each policy, with the [figures of a simulated policy](#of-a-simulated-policy) and in `tenants` those
of [each tenant](#of-a-simulated-tenant); `simulate -o csv` has a row for each tenant under each policy.

A new version of Cotenant may add figures, in any place: read them by name. When a figure goes, or gets another name,
unit or meaning, `schema` becomes another number."""


if __name__ == "__main__":
    say(page())
