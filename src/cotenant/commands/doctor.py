"""`cotenant doctor`: checks this machine, and names cause and fix of each problem."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotenant.errors import FAILED, narrate
from cotenant.options import output_option, segment_option
from cotenant.terminal import say

if TYPE_CHECKING:
    from cotenant.doctor.finding import Finding


@click.command(
    "doctor",
    short_help="Check whether this machine can share its GPUs.",
    epilog="""\b
Examples:
  cotenant doctor
  cotenant doctor -o json | jq '.checks[] | select(.verdict != "ok")'
  cotenant softgpu -- cotenant doctor""",
)
@output_option("doctor")
@segment_option
def command(output: str, segment_file: Path | None) -> int:
    """Check whether this machine can share its GPUs, and name cause and fix of each problem.

    The doctor checks the package, the driver, GPUs, MPS, MIG, preloads, shared memory and symbols, and launches
    kernels through the interposer to measure what that costs. A check that needs what has failed is skipped. The
    exit status is 1 when a check fails.
    """
    from cotenant.doctor.checks import all_findings
    from cotenant.doctor.finding import Machine

    findings = []
    named = {} if segment_file is None else {"COTENANT_SEGMENT": str(segment_file)}
    for finding in all_findings(Machine.look(dict(os.environ) | named)):
        findings.append(finding)
        if output == "table":
            print_finding(finding)
    if output == "json":
        print_json(findings)
    verdicts = [finding.verdict for finding in findings]
    failed, warned, skipped = (verdicts.count(verdict) for verdict in ("fail", "warn", "skip"))
    narrate(f"{len(verdicts)} checks: {failed} failed, {warned} with a warning, {skipped} skipped")
    return FAILED if failed else 0


def print_json(findings: Sequence[Finding]) -> None:
    import json

    ok = all(finding.verdict != "fail" for finding in findings)
    say(json.dumps({"ok": ok, "checks": [vars(finding) for finding in findings]}, indent=2))


def print_finding(finding: Finding) -> None:
    colour = {"ok": "green", "warn": "yellow", "fail": "red", "skip": "cyan"}[finding.verdict]
    plain = not sys.stdout.isatty() or bool(os.environ.get("NO_COLOR"))
    verdict = f"{finding.verdict:<5}" if plain else click.style(f"{finding.verdict:<5}", fg=colour, bold=True)
    say(f" {finding.name:<14} {finding.cause}", styled=verdict)
    if finding.fix:
        say(f"      {'fix:':>14} {finding.fix}")
