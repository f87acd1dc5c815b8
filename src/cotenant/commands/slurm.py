"""`cotenant slurm`: jobs of Slurm as tenants."""

from __future__ import annotations

from pathlib import Path

import click

from cotenant.errors import Problem, narrate
from cotenant.terminal import say


@click.group(
    "slurm",
    short_help="Put Slurm's jobs under Cotenant.",
    epilog="""\b
Examples:
  TaskProlog=/usr/local/libexec/cotenant-task-prolog       in slurm.conf
  sbatch --partition serving serve.sh
  sbatch --comment "cotenant class=opportunistic memory=20G" finetune.sh""",
)
def command() -> None:
    """Put Slurm's jobs under Cotenant, by their QOS, partition and comment (docs/slurm.md)."""


@command.command(
    "task-prolog",
    short_help="What slurm.conf's TaskProlog runs.",
    epilog="""\b
Examples:
  TaskProlog=/usr/local/libexec/cotenant-task-prolog       in slurm.conf
  cotenant slurm task-prolog --rules /etc/cotenant/slurm.toml""",
)
@click.option(
    "--rules",
    "rules_file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("/etc/cotenant/slurm.toml"),
    show_default=True,
    envvar="COTENANT_SLURM_RULES",
    help="Which class and limits jobs get.",
)
def task_prolog(rules_file: Path) -> None:
    """Print the environment that makes this Slurm task a tenant, in the form that Slurm reads.

    Where the task cannot be a tenant it runs without sharing, and one line on stderr says why; with
    `require = true` in the rules the task fails instead.
    """
    from cotenant.launch import execute
    from cotenant.slurm import prolog, rules

    required = False
    try:
        found = rules.read_rules(rules_file)
        required = found.require
        for line in prolog.lines(execute.inherited(), found):
            say(line)
    except Problem as problem:
        if required:
            raise
        narrate(f"cotenant: {problem.message}: running without sharing; hint: {problem.hint}")
