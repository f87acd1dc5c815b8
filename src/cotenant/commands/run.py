"""`cotenant run`: the command becomes a tenant of the GPU it uses (launch/environment.py)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from cotenant import classes, segment
from cotenant.config.settings import option
from cotenant.errors import USAGE, Problem, narrate
from cotenant.launch import environment, execute, job_name, mounts, python_path
from cotenant.mps import control, decide, sharing
from cotenant.options import OneOf, gpu_option, segment_option
from cotenant.terminal import say


@click.command(
    "run",
    short_help="Run a command as a tenant of the GPU.",
    context_settings={"allow_interspersed_args": False},
    epilog="""\b
Examples:
  cotenant run --class production --slowdown 5% -- python serve.py
  cotenant run --class opportunistic --memory 20G --gpu 1 python finetune.py
  cotenant run --name nightly -- torchrun --nproc-per-node 2 train.py
  cotenant run --share spatial --sms 60% -- python batch.py
  cotenant run --dry-run -- python train.py
  docker run $(cotenant run --print-mounts docker) --gpus all IMAGE ./train.py""",
)
@option("run.class")
@click.option(
    "--name",
    metavar="NAME",
    envvar="COTENANT_NAME",
    help="What `status`, `ctl`, `pause`, `resume` and `explain` call the job.  [default: its script or program]",
)
@option("run.weight")
@option("run.slowdown")
@option("run.floor")
@option("run.memory")
@option("run.oversubscribe")
@option("run.share")
@option("run.sms")
@option("run.isolate")
@gpu_option
@segment_option
@click.option(
    "--policy",
    metavar="NAME",
    envvar="COTENANT_POLICY",
    help="The policy for all tenants of the segment from now on; `cotenant policies` lists them.",
)
@option("run.no_daemon")
@option("run.require")
@option("run.quiet")
@click.option(
    "--timeline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="COTENANT_TIMELINE",
    help="Record what it and all tenants of its GPUs do, moment by moment; FILE is written when the command has ended.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    envvar="COTENANT_DRY_RUN",
    help="Print the environment that would be set and the command, and stop.",
)
@click.option(
    "--print-mounts",
    "runtime",
    type=OneOf("container runtime", mounts.RUNTIMES),
    metavar="docker|podman|cdi",
    envvar="COTENANT_PRINT_MOUNTS",
    help="Print what a container needs so that its command is a tenant, as flags or as a CDI file, and stop.",
)
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, type=click.UNPROCESSED)
def command(
    tenant_class: str,
    name: str | None,
    weight: str | None,
    slowdown: str | None,
    floor: str | None,
    memory: str | None,
    oversubscribe: bool | None,
    share: str,
    sms: str | None,
    isolate: bool,
    gpu: str | None,
    segment_file: Path | None,
    policy: str | None,
    no_daemon: bool,
    require: bool,
    quiet: bool,
    timeline: Path | None,
    dry_run: bool,
    runtime: str | None,
    words: tuple[str, ...],
) -> None:
    """Run COMMAND as a tenant of the GPU it uses.

    COMMAND replaces this process: same PID, terminal, signals and exit status; 127 when it is missing, 126 when
    it cannot be executed. Where sharing is not possible COMMAND runs without it, and one line on stderr says
    why.
    """
    if not words and not runtime:
        raise Problem("no command given", "cotenant run [options] [--] command...", USAGE)
    name = job_name.checked(name) if name is not None and not is_from_outer_run("name") else None
    slowdown, floor = only_for_its_class(tenant_class, slowdown, floor)
    if isolate and share == decide.SPATIAL and not is_from_outer_run("share"):
        raise Problem("--isolate and --share spatial contradict each other", "leave one of them out", USAGE)
    timeline = checked_file(timeline)
    if policy:
        from cotenant.daemon import choice

        policy = choice.for_segment(policy)
    moves = None if oversubscribe is None else str(int(oversubscribe))
    before = execute.inherited()
    # Neither a dry run nor a container needs the program to be here.
    program = "" if runtime else words[0] if dry_run else execute.find_program(words[0], before)

    def tenant(of_class: str) -> dict[str, str]:
        made = environment.of_command(
            before,
            of_class,
            segment_file,
            name or job_name.of_command(words or ("container",)),
            create=not dry_run,
            program="" if dry_run else program,
        )
        is_production = of_class == classes.TenantClass.production.name
        promises = (
            weight,
            slowdown if is_production else None,
            None if is_production else floor,
            memory,
            moves,
        )
        for variable, value in zip(environment.PROMISES, promises, strict=True):
            made.pop(variable, None)
            if value:
                made[variable] = value
        made.pop("COTENANT_QUIET", None)
        if quiet:
            made["COTENANT_QUIET"] = "1"
        made.pop("COTENANT_TIMELINE", None)  # a run inside is in the picture
        ring = made.pop("COTENANT_TIMELINE_RING", "")
        if timeline:
            made["COTENANT_TIMELINE_RING"] = ring or "1M"
        is_opportunistic = of_class == classes.TenantClass.opportunistic.name
        if is_opportunistic if oversubscribe is None else oversubscribe:
            python_path.add_helper(made)
        else:
            python_path.drop_helper(made)
        return made

    try:
        if runtime:
            print_mounts(runtime, tenant, tenant_class)
            return
        after = tenant(tenant_class)
    except environment.NotShared as reason:
        if require or runtime:
            raise Problem(reason.message, reason.hint) from None
        narrate(f"cotenant: {reason.message}: running without sharing; hint: {reason.hint}")
        after = environment.of_no_tenant(before)
    if gpu:
        environment.show_gpus(after, gpu)
    if "COTENANT_SEGMENT" in after:
        wanted = sharing.Wanted(
            share, isolate, classes.TenantClass[tenant_class], sms, memory, after["COTENANT_NAME"]
        )
        choose_sharing(after, wanted, require, dry_run)
        name_profiles(after, dry_run)
    if dry_run:
        show(before, after, words)
        return
    if "COTENANT_SEGMENT" in after:
        if (why := execute.unreachable(program)) and not quiet:
            narrate(f"cotenant: {words[0]} {why}")
        path = Path(after["COTENANT_SEGMENT"])
        tell_granted_class(path, tenant_class)
        look_after(path, policy, no_daemon)
        if timeline:
            record_timeline(path, timeline, after)
    execute.become(program, words, after)


def name_profiles(after: dict[str, str], dry: bool) -> None:
    from cotenant.profile import tables_for_tenants

    if profiles := tables_for_tenants.folder(after, dry):
        after[tables_for_tenants.VARIABLE] = str(profiles)


def choose_sharing(after: dict[str, str], wanted: sharing.Wanted, require: bool, dry: bool) -> None:
    """Raises a Problem where the job shall overlap at all costs and cannot."""
    try:
        held = sharing.route(after, wanted, Path(after["COTENANT_SEGMENT"]), dry)
    except control.NoMps as trouble:
        hint = "`cotenant doctor` says more; --share turns needs no MPS"
        if require:
            raise Problem(f"no overlap: {trouble}", hint) from None
        narrate(f"cotenant: no overlap: {trouble}: taking turns; hint: {hint}")
        return
    if held:
        narrate(f"cotenant: {held}; hint: --sms all gives them all; results may differ in their last bits")


def only_for_its_class(
    tenant_class: str, slowdown: str | None, floor: str | None
) -> tuple[str | None, str | None]:
    """What an outer run has left in the environment does not count for another class; what was typed must fit."""

    def fits(option: str, value: str | None, allowed: bool, problem: str, hint: str) -> str | None:
        if value is None or allowed:
            return value
        if is_from_outer_run(option):
            return None
        raise Problem(problem, hint, USAGE)

    is_production = tenant_class == classes.TenantClass.production.name
    hint = "add --class production"
    slowdown = fits("slowdown", slowdown, is_production, "--slowdown is for production jobs", hint)
    problem, hint = "--floor is for standard and opportunistic jobs", "leave it out for a production job"
    return slowdown, fits("floor", floor, not is_production, problem, hint)


def is_from_outer_run(option: str) -> bool:
    """Or from a file: it was not said for this job."""
    source = click.get_current_context().get_parameter_source(option)
    if source is click.core.ParameterSource.DEFAULT_MAP:
        return True
    return source is click.core.ParameterSource.ENVIRONMENT and "COTENANT_RUN_ID" in os.environ


def checked_file(timeline: Path | None) -> Path | None:
    """Raises Problem where it cannot be written."""
    if timeline is None or is_from_outer_run("timeline"):
        return None
    from cotenant import output_files

    output_files.check(timeline)
    return timeline.absolute()


def record_timeline(path: Path, output: Path, after: Mapping[str, str]) -> None:
    """Nothing here stops the command."""
    from cotenant.timeline import recordings

    run = recordings.run_of(os.getuid(), after["COTENANT_RUN_ID"])
    try:
        recordings.start(path, output, "--run", run, "--launcher", str(os.getpid()))
    except OSError as error:
        narrate(f"cotenant: no timeline is recorded: {error.strerror}")


def tell_granted_class(path: Path, wanted: str) -> None:
    """An administrator's segment may grant this user a lower class than the one that was asked for."""
    try:
        best = segment.open(path).best_class_here()
    except (OSError, segment.BadSegment):
        return  # the interposer finds out by itself
    if classes.TenantClass[wanted] < best:
        granted = classes.name_of(best)
        hint = "an administrator can grant more: cotenant segment grants --allow USER=CLASS"
        narrate(
            f"cotenant: {path} grants you {granted} at most: running as {granted}, not as {wanted}; hint: {hint}"
        )


def look_after(path: Path, policy: str | None, no_daemon: bool) -> None:
    """Nothing here stops the command."""
    try:
        if policy:
            segment.choose_policy(path, policy)
        if not no_daemon and segment.open(path).may_have_daemon():
            from cotenant.daemon import other_versions, start

            start.unless_running(path, os.environ)
            others = other_versions.in_use(path)
            if others:
                told = (
                    f"jobs of another version of Cotenant run in {others}: they do not share with this one's"
                )
                narrate(f"cotenant: {told}; hint: run all jobs with one version")
    except Problem as problem:
        why = f"{problem.message}; hint: {problem.hint}"
        narrate(f"cotenant: no daemon runs for {path}, the rules go on without it: {why}")
    except (OSError, segment.BadSegment) as error:
        narrate(f"cotenant: no daemon runs for {path}, the rules go on without it: {error}")


def print_mounts(runtime: str, tenant: Callable[[str], dict[str, str]], tenant_class: str) -> None:
    # Every class has a device in a CDI file; the promises of one class do not fit another.
    made = {
        of_class: tenant(of_class) for of_class in (classes.NAMES if runtime == "cdi" else (tenant_class,))
    }
    path = Path(made[tenant_class]["COTENANT_SEGMENT"])
    say(mounts.cdi(made) if runtime == "cdi" else "\n".join(mounts.flags(runtime, made[tenant_class])))
    narrate(mounts.explanation(runtime, path))


def show(before: Mapping[str, str], after: Mapping[str, str], words: tuple[str, ...]) -> None:
    """Lines that a shell understands."""
    import shlex

    changed = [
        name for name in sorted(after) if name in environment.SETTINGS or after[name] != before.get(name)
    ]
    lines = [*(f"{name}={shlex.quote(after[name])}" for name in changed), shlex.join(words)]
    # As bytes: what the caller gave may be no valid text.
    sys.stdout.buffer.write(os.fsencode("\n".join(lines) + "\n"))
