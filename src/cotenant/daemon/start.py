"""Starts the daemon from `cotenant run`: detached from the command, and without delaying it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from cotenant.daemon import choice, lock, report
from cotenant.errors import Problem, narrate
from cotenant.launch import detached

# What it is to be like itself, and where it finds NVML.
KEPT = (
    "COTENANT_NATIVE",
    "COTENANT_DAEMON_",
    "COTENANT_DRIVER",
    "COTENANT_SOFTGPU",
    "COTENANT_USER_CONFIG",
    "COTENANT_MACHINE_CONFIG",
)
POLICY = "COTENANT_DAEMON_POLICY"


def unless_running(path: Path, environment: Mapping[str, str]) -> None:
    """Returns at once. Raises OSError where there can be no new process, and a Problem where somebody has planted the
    lock; one line says what else would not work."""
    if lock.is_held(path) or not sys.executable:
        return
    kept = environment_for_daemon(environment)
    if name := kept.pop(POLICY, ""):
        # The daemon works in another folder, and nobody would see its messages.
        try:
            kept[POLICY] = choice.for_segment(name)
        except Problem as problem:
            narrate(f"cotenant: {POLICY}: {problem.message}: the default policy is used instead")
    drop_wrong_settings(kept)
    try:
        report.check(path)
    except Problem as problem:
        narrate(f"cotenant: the daemon cannot write its report: {problem.message}; hint: {problem.hint}")
    detached.spawn([sys.executable, "-P", "-m", "cotenant", "daemon", "--segment", str(path)], kept)


def drop_wrong_settings(kept: dict[str, str]) -> None:
    """Nobody would see that the daemon does not start."""
    import click

    from cotenant.config import settings

    for one in settings.SETTINGS:
        variable = one.environment_variable
        if one.table != "daemon" or variable not in kept or variable == POLICY:
            continue
        try:
            one.parsed(kept[variable])
        except (Problem, click.UsageError):
            what = "number of seconds" if one.metavar == "SECONDS" else one.metavar
            narrate(f"cotenant: {variable}: '{kept.pop(variable)}' is no {what}: the default is used instead")


def environment_for_daemon(environment: Mapping[str, str]) -> dict[str, str]:
    return detached.environment_for(environment, KEPT)
