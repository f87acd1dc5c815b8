"""`cotenant predict`: how much two recorded jobs would slow each other down on one GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotenant.errors import USAGE, Problem, narrate
from cotenant.options import Number, OneOf, output_option
from cotenant.terminal import say

if TYPE_CHECKING:
    from cotenant.cluster.predict import Observation, Prediction

MODES = ("cotenant", "timeslice", "mps", "mps-priority")


@click.command(
    "predict",
    short_help="Predict how much two jobs slow each other down.",
    epilog="""\b
Examples:
  cotenant predict serving.trace training.trace
  cotenant predict serving.trace training.trace --rate 20 --sharing mps
  cotenant predict serving.trace training.toml --observed my-pairs.csv -o json
  cotenant predict --error""",
)
@click.option(
    "--sharing",
    type=OneOf("way of sharing", MODES),
    default="cotenant",
    show_default=True,
    envvar="COTENANT_PREDICT_SHARING",
    help="How they share the GPU.",
)
@click.option(
    "--rate",
    type=Number(0.001, 1e6),
    metavar="NUMBER",
    envvar="COTENANT_PREDICT_RATE",
    help="Production's requests a second.  [default: its recorded pace]",
)
@click.option(
    "--gpu",
    default="h200",
    show_default=True,
    envvar="COTENANT_PREDICT_GPU",
    metavar="NAME|FILE.gpu",
    help="The GPU: a shipped device, or a device file.",
)
@click.option(
    "--observed",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="COTENANT_PREDICT_OBSERVED",
    help="Learn from the measured pairs of this CSV too.",
)
@click.option(
    "--error",
    "show_error",
    is_flag=True,
    envvar="COTENANT_PREDICT_ERROR",
    help="Say how far off predictions of pairs that were not seen are, and stop.",
)
@output_option("predict")
@click.argument("production", required=False, type=click.Path(path_type=Path), metavar="PRODUCTION")
@click.argument("other", required=False, type=click.Path(path_type=Path), metavar="OTHER")
def command(
    sharing: str,
    rate: float | None,
    gpu: str,
    observed: Path | None,
    show_error: bool,
    output: str,
    production: Path | None,
    other: Path | None,
) -> None:
    """Predict how much PRODUCTION and OTHER, an opportunistic job, slow each other down on one GPU.

    Each is a recorded trace, or a workload file with one job. The simulator plays both; a regression over measured
    pairs adds what the simulator misses. docs/cluster.md says how far off it is.
    """
    from cotenant.cluster.predict import observations, pairs
    from cotenant.simulator import gpu_named

    seen = [*observations.shipped(), *(observations.read(observed) if observed else ())]
    if show_error:
        print_error(seen, output)
        return
    if production is None or other is None:
        raise Problem("two jobs are needed", "cotenant predict serving.trace training.trace", USAGE)
    device = gpu_named(gpu)
    said = pairs.predict(production, other, sharing, rate, device, seen)
    if device.name != "h200":
        narrate(f"note: the regression has learned from an H200, not from {device.name}")
    print_prediction(said, production.stem, other.stem, sharing, output)


def print_prediction(said: Prediction, production: str, other: str, sharing: str, output: str) -> None:
    if output == "json":
        import json

        figures = {
            "sharing": sharing,
            "production": production,
            "other": other,
            "slowdown": round(said.slowdown, 4),
            "other_slowdown": round(said.other_slowdown, 4) if said.share > 0 else None,
            "other_share": round(said.share, 4),
            "keeps_up": said.keeps_up,
        }
        say(json.dumps(figures, indent=2))
        return
    behind = "" if said.keeps_up else "; it does not keep up"
    say(f"{production:<20} {said.slowdown:.2f} times as long as alone (median service time){behind}")
    say(f"{other:<20} {said.share:.0%} of its speed alone")


def print_error(seen: list[Observation], output: str) -> None:
    from cotenant.cluster.predict.model import errors, simulator_alone, unseen

    rows = {"simulator alone": errors(simulator_alone(seen)), "with the regression": errors(unseen(seen))}
    if output == "json":
        import json
        from dataclasses import asdict

        say(json.dumps({name.replace(" ", "_"): asdict(row) for name, row in rows.items()}, indent=2))
        return
    say("mean absolute error on pairs that were not seen, in percentage points")
    say(f"{'':<20} {'slowdown':>9} {'cases':>6} {'share':>7} {'cases':>6}")
    for name, row in rows.items():
        say(f"{name:<20} {row.slowdown:>9.1f} {row.slowdowns:>6} {row.share:>7.1f} {row.shares:>6}")
