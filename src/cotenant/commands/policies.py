"""`cotenant policies`: lists the policies."""

from __future__ import annotations

import click

from cotenant.errors import Problem, narrate
from cotenant.options import output_option
from cotenant.terminal import say


@click.command(
    "policies",
    short_help="List the policies.",
    epilog="""\b
Examples:
  cotenant policies
  cotenant policies -o json""",
)
@output_option("policies")
def command(output: str) -> None:
    """List the policies: their rule, whether they run on a GPU or in the simulator only, and what they do.

    The list includes policies of other packages (entry points of the group cotenant.policies).
    """
    from cotenant.policies import registry

    found = []
    for name in registry.names():
        try:
            found.append(registry.about(registry.find(name)))
        except (Problem, ImportError, AttributeError) as error:
            narrate(f"{name}: {error}")
    if output == "json":
        import json

        say(json.dumps([vars(one) for one in found], indent=2))
        return
    from cotenant import table

    rows = []
    for one in found:
        default = " (default)" if one.name == registry.DEFAULT else ""
        rows.append((one.name, one.rule, "live" if one.runs_live else "simulated", one.title + default))
    columns = [table.Column(heading) for heading in ("NAME", "RULE", "RUNS", "WHAT IT DOES")]
    say("\n".join(table.lines(columns, rows, table.WHOLE)))
