"""`cotenant mig`: proposes how to partition a GPU for a list of jobs. It changes nothing on the card."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from cotenant.cli import Nested
from cotenant.errors import USAGE, Problem, unknown
from cotenant.options import output_option
from cotenant.terminal import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cotenant.mig.card import Card
    from cotenant.mig.plan import Instance

SCHEMA = 1


@click.group(
    "mig",
    cls=Nested,
    short_help="Propose how to partition a GPU for a list of jobs.",
    epilog="""\b
Examples:
  cotenant mig plan serve=10G,16 train=40G,50%
  cotenant mig plan --model H200 serve.py train.py""",
)
def command() -> None:
    """Propose a partition of a GPU into MIG instances. Nothing on the card is changed."""


@command.command(
    "plan",
    short_help="Propose a partition, and print the commands that make it.",
    epilog="""\b
Examples:
  cotenant mig plan serve=10G,16 train=40G,50%
  cotenant mig plan --model H200 serve.py train.py
  cotenant mig plan --gpu 1 -o json serve=10G train=40G""",
)
@click.option(
    "--gpu",
    metavar="GPU",
    envvar="COTENANT_MIG_GPU",
    help="A GPU of this machine: index, UUID or PCI id.  [default: the first that has MIG]",
)
@click.option(
    "--model",
    metavar="MODEL",
    envvar="COTENANT_MIG_MODEL",
    help="Plan for a model of GPU that need not be here: A100-40GB, A100-80GB, H100, H200 or B200.",
)
@output_option("mig")
@click.argument("jobs", metavar="JOB[=MEMORY[,SMS]]...", nargs=-1)
def plan(gpu: str | None, model: str | None, output: str, jobs: tuple[str, ...]) -> None:
    """Find MIG instances that hold these jobs, and print the commands that an administrator would run.

    A job's memory and SMs are stated, or taken from its profile (`cotenant profile --name JOB`). Every job gets an
    instance that holds its memory; of the partitions that can, the one in which jobs go without the fewest SMs.
    """
    from cotenant.mig import card as cards
    from cotenant.mig import needs
    from cotenant.mig import plan as planning
    from cotenant.mig.geometry import MODELS, known

    if not jobs:
        raise Problem("no jobs given", f"cotenant mig plan {needs.FORM}", USAGE)
    if model:
        geometry = known(model)
        if geometry is None:
            raise unknown("model of GPU", model, MODELS)
        card = cards.Card(geometry, gpu or "0", is_on=False, instances=())
    else:
        card = cards.here(os.environ, gpu)
    wanted = [needs.read(job, card.geometry, os.environ) for job in jobs]
    names = [one.job for one in wanted]
    if len(set(names)) < len(names):
        raise Problem("a job is named twice", "give each a name of its own: serve-1=10G serve-2=10G", USAGE)
    found = planning.plan(card.geometry, wanted)
    lines = planning.commands(card.index, found, card.is_on, bool(card.instances))
    free = planning.free_profiles(card.geometry, found)
    if output == "json":
        print_json(card, found, lines, free)
    else:
        print_plan(card, found, lines, free)


def print_json(card: Card, found: Sequence[Instance], lines: list[str], free: list[str]) -> None:
    import json

    document = {
        "schema": SCHEMA,
        "model": card.geometry.model,
        "instances": [
            {
                "job": one.need.job,
                "from": one.need.source,
                "needs_memory_bytes": one.need.memory_bytes,
                "needs_sms": round(one.need.sms, 1),
                "profile": one.profile.name,
                "profile_id": one.profile.id,
                "placement": one.start,
                "memory_bytes": one.profile.memory_bytes,
                "sms": one.profile.sms,
            }
            for one in found
        ],
        "free": free,
        "commands": lines,
    }
    say(json.dumps(document, indent=2))


def print_plan(card: Card, found: Sequence[Instance], lines: list[str], free: list[str]) -> None:
    from cotenant import table
    from cotenant.mig.plan import gib

    columns = [
        table.Column("JOB", is_name=True),
        table.Column("NEEDS", is_number=True),
        table.Column("SMS", is_number=True),
        table.Column("FROM"),
        table.Column("INSTANCE"),
        table.Column("HAS", is_number=True),
        table.Column("SMS", is_number=True),
        table.Column("PLACE", is_number=True),
    ]
    rows = [
        [
            one.need.job,
            gib(one.need.memory_bytes),
            f"{one.need.sms:.0f}" if one.need.sms else "any",
            one.need.source,
            one.profile.name,
            gib(one.profile.memory_bytes),
            str(one.profile.sms),
            str(one.start),
        ]
        for one in found
    ]
    say(f"{card.geometry.model}:")
    for line in table.lines(columns, rows, table.width_of_stdout()):
        say(line)
    for one in found:
        if one.short_of_sms > 0:
            say(f"{one.need.job} gets {float(1 - one.short_of_sms):.0%} of the SMs that its kernels fill")
    say(f"free: {', '.join(free) or 'nothing'}")
    say("\nNothing was changed. As an administrator, with no work on the GPU:\n")
    for line in lines:
        say(f"    {line}")
    say(
        "\nThen each job runs with the UUID that the last line shows: cotenant run --gpu MIG-... -- command..."
    )
