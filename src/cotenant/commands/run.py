"""`cotenant run`: the command becomes a tenant of the GPU it uses.

What the interposer gets, all of it in the environment: COTENANT_DRIVER (the real driver's file),
COTENANT_SEGMENT, COTENANT_CLASS, COTENANT_TENANT (new for each run), and LD_PRELOAD, the interposer first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from cotenant import classes, driver, execute, parts, preload, segment
from cotenant.cli import OneOf, segment_option
from cotenant.errors import USAGE, Problem, narrate

SETTINGS = ("COTENANT_DRIVER", "COTENANT_SEGMENT", "COTENANT_CLASS", "COTENANT_TENANT")


@click.command(
    "run",
    short_help="Run a command as a tenant of the GPU.",
    context_settings={"allow_interspersed_args": False},
    epilog="""\b
Examples:
  cotenant run --class production -- python serve.py
  cotenant run --class opportunistic --gpu 1 python finetune.py --epochs 3
  cotenant run --dry-run -- python train.py""",
)
@click.option(
    "--class",
    "tenant_class",
    type=OneOf("class", classes.NAMES),
    default=classes.TenantClass.standard.name,
    show_default=True,
    envvar="COTENANT_CLASS",
    show_envvar=True,
    help="How much the command matters: a class waits while one above it has work on the GPU.",
)
@click.option(
    "--gpu",
    envvar="COTENANT_GPU",
    show_envvar=True,
    metavar="GPU[,GPU...]",
    help="The GPUs it may see: index, UUID or PCI id.",
)
@segment_option
@click.option(
    "--require",
    is_flag=True,
    envvar="COTENANT_REQUIRE",
    show_envvar=True,
    help="Fail where sharing is not possible, instead of running without it.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    envvar="COTENANT_DRY_RUN",
    show_envvar=True,
    help="Print the environment that would be set and the command, and stop.",
)
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, type=click.UNPROCESSED)
def command(
    tenant_class: str,
    gpu: str | None,
    segment_file: Path | None,
    require: bool,
    dry_run: bool,
    words: tuple[str, ...],
) -> None:
    """Run COMMAND as a tenant of the GPU it uses.

    COMMAND takes the place of this process: same PID, terminal, signals and exit status; 127 when it is
    missing, 126 when it cannot be executed. Where sharing is not possible it runs without, and one line on
    stderr says why.
    """
    if not words:
        raise Problem("no command given", "cotenant run [options] [--] command...", USAGE)
    before = execute.inherited()
    # A dry run shows what would be set, also for a program that is not here.
    program = words[0] if dry_run else execute.find_program(words[0], before)
    try:
        after = tenant_environment(before, tenant_class, segment_file, create=not dry_run)
    except NotShared as reason:
        if require:
            raise Problem(reason.message, reason.hint) from None
        narrate(f"cotenant: {reason.message}: running without sharing; hint: {reason.hint}")
        after = plain_environment(before)
    if gpu:
        after["CUDA_VISIBLE_DEVICES"] = chosen_gpus(gpu, before, after.get("COTENANT_DRIVER"))
        # It has been applied; a nested run would apply it a second time, to what is left visible.
        after.pop("COTENANT_GPU", None)
    if dry_run:
        show(before, after, words)
        return
    execute.become(program, words, after)


class NotShared(Exception):
    """Why the command cannot be a tenant."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def tenant_environment(
    environment: Mapping[str, str], tenant_class: str, segment_file: Path | None, create: bool
) -> dict[str, str]:
    try:
        driver_file = driver.find(environment)
    except driver.NoDriver as error:
        raise NotShared(str(error), "`cotenant softgpu -- ...` runs it on a software GPU") from None
    shim = parts.shim()
    if not shim.is_file():
        raise NotShared(f"{shim} is missing", "install the package again")
    if not preload.can_hold(shim):
        raise NotShared(
            f"LD_PRELOAD cannot hold the path {shim}", "install into a folder without spaces and colons"
        )
    path = segment_file.absolute() if segment_file else segment.path_for({})
    if create:
        try:
            segment.ensure(path)
        except (segment.BadSegment, Problem) as error:
            raise NotShared(str(error), "`cotenant doctor` says more; --segment names another file") from None
        if not parts.is_softgpu(driver_file) and not segment.is_in_memory(path):
            raise NotShared(f"{path} is on a disk", "name a file on a tmpfs such as /dev/shm with --segment")
    return dict(environment) | {
        "COTENANT_DRIVER": str(driver_file),
        "COTENANT_SEGMENT": str(path),
        "COTENANT_CLASS": tenant_class,
        "COTENANT_TENANT": os.urandom(16).hex(),
        "LD_PRELOAD": preload.with_shim(environment.get("LD_PRELOAD"), shim),
    }


def plain_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what an outer run has set."""
    plain = {name: value for name, value in environment.items() if name not in SETTINGS}
    preload.drop_shims(plain)
    return plain


def chosen_gpus(wanted: str, environment: Mapping[str, str], driver_file: str | None) -> str:
    from cotenant import gpus

    known = gpus.installed(Path(driver_file)) if driver_file else None
    return gpus.visible_devices(wanted, environment, known)


def show(before: Mapping[str, str], after: Mapping[str, str], words: tuple[str, ...]) -> None:
    """Lines that a shell understands."""
    import shlex

    changed = [name for name in sorted(after) if name in SETTINGS or after[name] != before.get(name)]
    lines = [*(f"{name}={shlex.quote(after[name])}" for name in changed), shlex.join(words)]
    # As bytes: what the caller gave may be no valid text.
    sys.stdout.buffer.write(os.fsencode("\n".join(lines) + "\n"))
