"""`cotenant simulate`: what sharing would do to jobs, in virtual time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cotenant import output_files
from cotenant.errors import USAGE, Problem, narrate
from cotenant.options import OneOf, output_option
from cotenant.terminal import say
from cotenant.units import share_above_zero, share_to_one

if TYPE_CHECKING:
    from cotenant.simulator import Outcome, Study

# Of the picture: a few requests, in which a kernel of 1 ms can be seen.
TIMELINE_PLACES, TIMELINE_S = 800, 0.4
MOST_SPANS = 400_000  # of all policies together: what Perfetto still opens with ease
ENOUGH = 4  # times as long as a policy learns
DEFAULT_POLICIES = "timeslice,mps,strict,guard"


@click.command(
    "simulate",
    short_help="Show what sharing would do to jobs, without a GPU.",
    epilog="""\b
Examples:
  cotenant simulate serve-and-train
  cotenant simulate orion-resnet50 --policy mps,reef,orion,guard --gpu a100
  cotenant simulate my-jobs.toml --policy all --seconds 60 --plot jobs.png
  cotenant simulate serving.trace training.trace --policy strict,guard -o json
  cotenant simulate --cluster made-up-openb --gpus 64 --plot cluster.png
  cotenant simulate --cluster openb_pod_list_default.csv --gpus 1000
  cotenant simulate --list""",
)
@click.option(
    "--policy",
    "policies",
    default=DEFAULT_POLICIES,
    show_default=True,
    envvar="COTENANT_SIMULATE_POLICY",
    metavar="NAME|FILE.py[,...]|all",
    help="The policies to simulate; `cotenant policies` lists them. With --cluster: the placement policies,"
    " all by default.",
)
@click.option(
    "--gpu",
    default="h200",
    show_default=True,
    envvar="COTENANT_SIMULATE_GPU",
    metavar="NAME|FILE.gpu",
    help="The GPU to simulate: a shipped device, or a device file.",
)
@click.option(
    "--seconds",
    type=float,
    envvar="COTENANT_SIMULATE_SECONDS",
    help="How long to simulate, in virtual time.  [default: what the workload says]",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    envvar="COTENANT_SIMULATE_SEED",
    help="The same seed gives the same outcome.",
)
@output_option("simulate", ("table", "json", "csv"), "How to print it; json and csv have every tenant.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="COTENANT_SIMULATE_PLOT",
    help="Draw latencies, slowdown against the others' work, and SMs over time into this .png, .pdf or .svg.",
)
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="COTENANT_SIMULATE_TRACE",
    help="Write the timeline for Perfetto (ui.perfetto.dev) into this file.",
)
@click.option(
    "--list",
    "list_workloads",
    is_flag=True,
    envvar="COTENANT_SIMULATE_LIST",
    help="List the shipped workloads, or with --cluster the made-up logs and the placement policies, and stop.",
)
@click.option(
    "--cluster",
    is_flag=True,
    envvar="COTENANT_SIMULATE_CLUSTER",
    help="Simulate a cluster: WORKLOAD is a log of jobs in a public schema, and each policy places them.",
)
@click.option(
    "--gpus",
    type=click.IntRange(1, 100_000),
    envvar="COTENANT_SIMULATE_GPUS",
    help="With --cluster: how many GPUs it has.  [default: 64]",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 1_000_000),
    envvar="COTENANT_SIMULATE_JOBS",
    help="With --cluster: how many jobs come; a shorter log is repeated.  [default: the log's]",
)
@click.option(
    "--load",
    type=share_above_zero,
    metavar="SHARE",
    envvar="COTENANT_SIMULATE_LOAD",
    help="With --cluster: jobs come closer together or further apart, so that they ask for this share of all GPUs,"
    " such as 80%.  [default: as logged]",
)
@click.option(
    "--services",
    type=click.IntRange(0, 100_000),
    envvar="COTENANT_SIMULATE_SERVICES",
    help="With --cluster: on how many GPUs a production service is always there.  [default: 0]",
)
@click.option(
    "--production",
    type=share_to_one,
    metavar="SHARE",
    envvar="COTENANT_SIMULATE_PRODUCTION",
    help="With --cluster: the part of the jobs that is production, where the log does not say it.  [default: 0%]",
)
@click.option(
    "--promise",
    type=share_to_one,
    metavar="SHARE",
    envvar="COTENANT_SIMULATE_PROMISE",
    help="With --cluster: by how much production may slow down.  [default: 5%]",
)
@click.option(
    "--sharing",
    type=OneOf("way of sharing", ("cotenant", "mps", "timeslice")),
    envvar="COTENANT_SIMULATE_SHARING",
    help="With --cluster: how jobs on one GPU share it.  [default: cotenant]",
)
@click.argument("workload", nargs=-1)
def command(
    policies: str,
    gpu: str,
    seconds: float | None,
    seed: int,
    output: str,
    plot: Path | None,
    trace: Path | None,
    list_workloads: bool,
    cluster: bool,
    gpus: int | None,
    jobs: int | None,
    load: float | None,
    services: int | None,
    production: float | None,
    promise: float | None,
    sharing: str | None,
    workload: tuple[str, ...],
) -> None:
    """Simulate WORKLOAD under each policy. WORKLOAD is a shipped workload, a workload file, or recorded traces.

    Of several traces the first is production, the others are opportunistic. Each job is also simulated alone;
    "x alone" compares with that. The policies are those that run live, and policies from papers.

    With --cluster WORKLOAD is a log of jobs as Microsoft (Philly), SenseTime (Helios) and Alibaba (2020, openb)
    have published them, or one of the made-up logs that are shipped; docs/cluster.md says more.
    """
    for_clusters: dict[str, object] = {
        "--gpus": gpus,
        "--jobs": jobs,
        "--load": load,
        "--services": services,
        "--production": production,
        "--promise": promise,
        "--sharing": sharing,
    }
    if cluster:
        refuse_given({"--seconds": seconds, "--trace": trace}, "is not for clusters", "leave it out")
        source = click.get_current_context().get_parameter_source("policies")
        if source is click.core.ParameterSource.DEFAULT:
            policies = "all"
        given = {name.removeprefix("--"): value for name, value in for_clusters.items() if value is not None}
        simulate_cluster(workload, policies, gpu, seed, output, plot, list_workloads, given)
        return
    refuse_given(for_clusters, "is for clusters", "add --cluster")
    if list_workloads:
        print_workloads()
        return
    if not workload:
        raise Problem("no workload given", "cotenant simulate --list shows the shipped workloads", USAGE)
    if seconds is not None and not 1e-6 <= seconds <= 1e7:
        raise Problem(
            f"{seconds:g} seconds cannot be simulated", "give a number from 0.000001 to 10000000", USAGE
        )
    from cotenant.simulator import Recording, pictures, tables
    from cotenant.simulator import Study as NewStudy
    from cotenant.simulator.workload_file import from_items

    wanted = policy_names(policies)
    if plot is not None:
        check_picture(plot)
    if trace is not None:
        output_files.check(trace)
    spans = MOST_SPANS // len(wanted) if trace else 0
    recording = Recording(TIMELINE_PLACES if plot else 0, TIMELINE_S, spans)
    study = NewStudy(from_items(workload), gpu, seconds, seed, recording)
    tell_what_to_doubt(study, wanted)
    outcomes: list[Outcome] = []
    with progress_of(wanted) as tell:
        for number, name in enumerate(wanted):
            outcomes.append(study.run(name, lambda part, number=number: tell(number, part)))  # type: ignore[misc]
    if output == "json":
        say(tables.as_json(outcomes))
    elif output == "csv":
        tables.print_csv(outcomes)
    else:
        tables.print_table(outcomes)
    if plot is not None:
        with output_files.replaced(plot) as beside:
            pictures.draw(outcomes, beside)
        narrate(f"{plot} drawn")
    if trace is not None:
        write_trace(outcomes, trace)


def simulate_cluster(
    logs: Sequence[str],
    policies: str,
    gpu: str,
    seed: int,
    output: str,
    plot: Path | None,
    list_logs: bool,
    given: dict[str, Any],
) -> None:
    from cotenant.cluster.simulation import study

    if list_logs:
        study.print_what_there_is()
        return
    if plot is not None:
        check_picture(plot)
    with progress_of(study.policy_names(policies)) as tell:
        found = study.outcomes(logs, policies, gpu, seed, tell, **given)
    study.show(found, output, plot)


def refuse_given(options: dict[str, object], why: str, hint: str) -> None:
    for option, value in options.items():
        if value is not None:
            raise Problem(f"{option} {why}", hint, USAGE)


def check_picture(path: Path) -> None:
    from cotenant.simulator import pictures

    if path.suffix not in pictures.FORMATS:
        raise Problem(f"'{path}' is no picture", f"its name ends in {', '.join(pictures.FORMATS)}", USAGE)
    pictures.require_matplotlib()
    output_files.check(path)


def tell_what_to_doubt(study: Study, policies: Sequence[str]) -> None:
    """What the figures do not show by themselves."""
    from cotenant.policies import registry

    for job in study.workload.jobs:
        name, sms = job.recorded_on or ("", 0)
        if sms and sms != study.gpu.sms:
            here = f"{study.gpu.name} ({study.gpu.sms} SMs)"
            narrate(
                f"note: {job.name} was recorded on {name} ({sms} SMs): its times are not scaled to {here}"
            )
    for policy in policies:
        learns_s = getattr(registry.find(policy), "learns_s", 0.0)
        if study.seconds < ENOUGH * learns_s:
            narrate(
                f"note: {policy} keeps the others shut for its first {learns_s:g} s, of {study.seconds:g} s simulated: "
                f"give --seconds {ENOUGH * learns_s:g} or more"
            )


def print_workloads() -> None:
    from cotenant.simulator import find_workload, shipped

    for name in shipped():
        say(f"{name:<16} {find_workload(name).title}")


def policy_names(text: str) -> list[str]:
    """Each is looked up before anything is simulated."""
    from cotenant.policies import registry

    names = [name.strip() for name in text.split(",") if name.strip()]
    names = [one for name in names for one in (registry.names() if name == "all" else [name])]
    names = list(dict.fromkeys(names))
    if not names:
        raise Problem("no policy given", f"known: {', '.join(registry.names())}", USAGE)
    for name in names:
        registry.find(name)
    return names


def write_trace(outcomes: Sequence[Outcome], path: Path) -> None:
    from cotenant.simulator import perfetto

    with output_files.replaced(path) as beside, beside.open("w") as file:
        perfetto.write(outcomes, file)
    left_out = sum(outcome.spans_left_out for outcome in outcomes)
    if left_out:
        kept = MOST_SPANS // len(outcomes)
        narrate(f"{path} has the first {kept} operations of each policy; {left_out} are left out")


@contextmanager
def progress_of(policies: Sequence[str]) -> Iterator[Callable[[int, float], None]]:
    """A bar on stderr, where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda number, part: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulating", total=len(policies))

        def tell(number: int, part: float) -> None:
            bar.update(task, description=policies[number], completed=number + part)

        yield tell
