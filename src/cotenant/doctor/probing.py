"""Whether a tenant runs: a probe launches kernels through the interposer, in a segment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cotenant import segment
from cotenant.doctor.child import PROBE_SECONDS, ended, last_line
from cotenant.doctor.finding import Finding, Machine
from cotenant.errors import Problem
from cotenant.launch import environment, native_files


def self_test(machine: Machine) -> Finding:
    try:
        with private_tenancy(machine) as (plain, shared):
            alone, why_alone = run_probe(plain)
            inside, why_inside = run_probe(shared)
    except Problem as problem:
        return Finding("self-test", "fail", problem.message, "see shared-memory")
    facts: dict[str, Any] = {"plain": alone, "interposed": inside}
    if alone is None:
        return Finding(
            "self-test", "fail", f"without the interposer: {why_alone}", "repair the driver first", facts
        )
    if inside is None:
        return Finding(
            "self-test", "fail", f"through the interposer: {why_inside}", "report it as a bug", facts
        )
    if not inside.get("interposed"):
        fix = "the loader may ignore LD_PRELOAD for the probe (set-user-ID, capabilities)"
        return Finding("self-test", "fail", "the interposer was not loaded", fix, facts)
    # The probe launches in turns through the interposer and past it: in one process the noise is the same.
    cause = (
        f"{inside['launches']} launches on {inside['device']}: {inside['ns_per_launch']:.0f} ns each, of which the "
        f"interposer {inside['ns_added']:.0f} ns ({inside['ns_added_low']:.0f} to {inside['ns_added_high']:.0f})"
    )
    return Finding("self-test", "ok", cause, facts=facts)


def time_slices(machine: Machine) -> Finding:
    """The hardware's time slices: whether the driver takes those of the classes."""
    if machine.soft:
        return Finding("time-slices", "ok", "not used on the software GPU", facts={"software": True})
    facts: dict[str, Any] = {}
    try:
        with private_tenancy(machine) as (_, shared):
            for tenant_class in ("production", "opportunistic"):
                probed, why = run_probe(shared | {"COTENANT_CLASS": tenant_class}, "--batches", "1")
                if probed is None:
                    return Finding("time-slices", "fail", f"as {tenant_class}: {why}", "see self-test", facts)
                facts[tenant_class] = probed.get("time_slice")
    except Problem as problem:
        return Finding("time-slices", "fail", problem.message, "see shared-memory")
    return judged_slices(facts)


def judged_slices(facts: dict[str, Any]) -> Finding:
    refused = [name for name, slice_ in facts.items() if slice_ and slice_["refused"]]
    unasked = [name for name, slice_ in facts.items() if not slice_ or not slice_["granted_us"]]
    consequence = "a long kernel of a lower class is not cut when production has work, but runs to its end"
    if refused:
        cause = f"the driver refused the time slices of {' and '.join(refused)}: {consequence}"
        return Finding(
            "time-slices", "warn", cause, "keep kernels of lower classes short, or try another driver", facts
        )
    if unasked:
        cause = f"the driver set no time slice for {' and '.join(unasked)}: {consequence}"
        return Finding(
            "time-slices",
            "warn",
            cause,
            "check whether MPS runs, and whether the driver is newer than this Cotenant",
            facts,
        )
    granted = ", ".join(f"{name} {slice_['granted_us']} us" for name, slice_ in facts.items())
    return Finding("time-slices", "ok", f"granted: {granted}", facts=facts)


@contextmanager
def private_tenancy(machine: Machine) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """The environments of a program without the interposer and of a tenant in a segment of its own. Raises Problem."""
    plain = environment.of_no_tenant(machine.environment) | {"LD_LIBRARY_PATH": library_path(machine)}
    # A segment of its own, but in the same folder, because a driver may refuse to register memory of other file
    # systems.
    beside = segment.path_for(machine.environment).parent
    if not os.access(beside, os.W_OK | os.X_OK):
        raise Problem(f"{beside} is not writable")
    with tempfile.TemporaryDirectory(prefix="cotenant-doctor-", dir=beside) as folder:
        path = Path(folder) / "segment"
        try:
            segment.ensure(path)
        except segment.BadSegment as error:
            raise Problem(f"no segment: {error}") from None
        assert machine.driver_file is not None
        yield plain, environment.of_tenant(plain, machine.driver_file, path, "production", "doctor")


def library_path(machine: Machine) -> str:
    assert machine.driver_file is not None
    return ":".join(
        filter(None, [str(machine.driver_file.parent), machine.environment.get("LD_LIBRARY_PATH")])
    )


def run_probe(variables: Mapping[str, str], *options: str) -> tuple[dict[str, Any] | None, str]:
    """What the probe measured, or why it could not."""
    try:
        child = ended([str(native_files.probe()), *options], variables)
        if child.returncode != 0:
            return None, last_line(child.stderr) or f"the probe ended with status {child.returncode}"
        return dict(json.loads(child.stdout)), ""
    except subprocess.TimeoutExpired:
        return None, f"the probe did not end within {PROBE_SECONDS} s"
    except (OSError, ValueError) as error:
        return None, str(error)
