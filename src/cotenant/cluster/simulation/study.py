"""`cotenant simulate --cluster`: one log under several placement policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cotenant import output_files
from cotenant.cluster.logs import registry as logs
from cotenant.cluster.placement import registry
from cotenant.cluster.simulation import pictures, tables
from cotenant.cluster.simulation.engine import Cluster
from cotenant.cluster.simulation.kinds import interference, kinds
from cotenant.cluster.simulation.outcome import ClusterOutcome
from cotenant.cluster.simulation.scenario import scenario
from cotenant.errors import USAGE, Problem, narrate
from cotenant.terminal import say

DEFAULT_GPUS = 64
Tell = Callable[[int, float], None]  # the number of the policy, and the part of its jobs that is done


def outcomes(
    items: Sequence[str],
    policies: str,
    gpu: str,
    seed: int,
    tell: Tell | None = None,
    sharing: str = "cotenant",
    gpus: int = DEFAULT_GPUS,
    **how: Any,
) -> list[ClusterOutcome]:
    """`how` is what `scenario` takes."""
    if len(items) != 1:
        hint = f"give a log's file, or one of {', '.join(logs.shipped())}"
        raise Problem(f"a cluster has one log, not {len(items)}", hint, USAGE)
    wanted = [registry.find(name) for name in policy_names(policies)]
    from cotenant.simulator import gpu_named

    there = scenario(
        Path(items[0]).stem,
        logs.read(items[0]),
        kinds(),
        gpus,
        memory_bytes=gpu_named(gpu).memory_bytes,
        seed=seed,
        **how,
    )
    truth, predicted = interference(sharing)
    found = []
    for number, policy in enumerate(wanted):
        cluster = Cluster(there, policy(), kinds(), truth, predicted, sharing)
        found.append(cluster.run(lambda part, number=number: tell(number, part) if tell else None))  # type: ignore[misc]
    return found


def policy_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    names = list(
        dict.fromkeys(one for name in names for one in (registry.names() if name == "all" else [name]))
    )
    if not names:
        raise Problem("no placement policy given", f"known: {', '.join(registry.names())}", USAGE)
    for name in names:
        registry.find(name)
    return names


def print_what_there_is() -> None:
    for name in logs.shipped():
        say(
            f"{name:<20} {len(logs.read(name))} jobs, made up, in the schema of {name.removeprefix('made-up-')}"
        )
    say()
    for name in registry.names():
        say(f"{name:<20} {registry.find(name).title}")


def show(found: Sequence[ClusterOutcome], output: str, plot: Path | None) -> None:
    if output == "json":
        say(tables.as_json(found))
    elif output == "csv":
        tables.print_csv(found)
    else:
        tables.print_table(found)
    if plot is not None:
        with output_files.replaced(plot) as beside:
            pictures.draw(found, beside)
        narrate(f"{plot} drawn")
