"""Whether the tenants can share memory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from cotenant import segment
from cotenant.daemon import other_versions
from cotenant.doctor.finding import Finding, Machine


def shared_memory(machine: Machine) -> Finding:
    path = segment.path_for(machine.environment)
    folder = path.parent
    facts: dict[str, Any] = {"segment": str(path)}
    if not folder.is_dir():
        fix = f"create {folder}, or name another file in COTENANT_SEGMENT"
        return Finding("shared-memory", "fail", f"{folder} is no folder", fix, facts)
    free = shutil.disk_usage(folder).free
    facts["free_bytes"] = free
    hardware = machine.driver_file is not None and not machine.soft
    if hardware and not segment.is_in_memory(folder):
        fix = "name a file on a tmpfs such as /dev/shm in COTENANT_SEGMENT: the driver maps no other"
        return Finding("shared-memory", "fail", f"{folder} is on a disk", fix, facts)
    try:
        seen = segment.read(path)
    except FileNotFoundError:
        if segment.is_folder(path):
            return no_segment(path, f"{path} is not a Cotenant segment", facts)
        if not os.access(folder, os.W_OK | os.X_OK):
            fix = "change its permissions, or name another file in COTENANT_SEGMENT"
            return Finding("shared-memory", "fail", f"{folder} is not writable", fix, facts)
        if free < segment.SEGMENT_BYTES:
            cause = f"{folder} has {free} bytes left, a segment needs {segment.SEGMENT_BYTES}"
            return Finding("shared-memory", "fail", cause, "free some space (docker run --shm-size)", facts)
        return well(path, f"the first run creates {path}", facts)
    except segment.BadSegment as error:
        version = segment.version_of(path)
        if version is None:
            return no_segment(path, str(error), facts)
        if version != segment.VERSION:
            return Finding("shared-memory", "fail", str(error), segment.remedy(path), facts)
        fix = f"when no tenant runs: rm -r {path}; or name another file in COTENANT_SEGMENT"
        return Finding("shared-memory", "fail", str(error), fix, facts)
    if not os.access(path, os.R_OK | os.W_OK):
        fix = "name another file in COTENANT_SEGMENT"
        return Finding("shared-memory", "fail", f"{path} is not writable", fix, facts)
    used = len(seen.tenants)
    facts |= {"slots": segment.SLOTS, "in_use": used, "lost": seen.lost}
    cause = f"{path}: {used} of {segment.SLOTS} slots in use, {seen.lost} of dead owners"
    if used == segment.SLOTS:
        return Finding("shared-memory", "fail", cause, "end some tenants: a new tenant gets no slot", facts)
    return well(path, cause, facts)


def no_segment(path: Path, cause: str, facts: dict[str, Any]) -> Finding:
    """What somebody named may be anything of theirs; only what has a segment's own name may be told to go."""
    fix = "name another file in --segment or COTENANT_SEGMENT"
    if path == segment.path_for({}):
        fix = f"when no tenant runs: rm -r {path}; or {fix}"
    return Finding("shared-memory", "fail", cause, fix, facts)


def well(path: Path, cause: str, facts: dict[str, Any]) -> Finding:
    others = other_versions.in_use(path)
    if others:
        cause = f"jobs of another version of Cotenant run in {others}: they do not share with this one's"
        return Finding("shared-memory", "warn", cause, "run all jobs with one version", facts)
    return Finding("shared-memory", "ok", cause, facts=facts)
