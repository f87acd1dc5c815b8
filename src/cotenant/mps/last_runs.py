"""What a job's last run was like: a small file for each job's name under the user's cache.

The interposer appends a line when a process of the job ends (native/tenant/last_run.cpp), and whoever watches overlap
one more (`note_overlap`). The newest run counts, and of its processes the one with the most work.

    run RUN_ID SECONDS FILLED_SECONDS       at work; of these, not waiting for its own CPU
    overlap harmless|harmful
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cotenant.mps.decide import Known

VARIABLE = "COTENANT_LAST_RUN"
LONGEST_BYTES = 16 << 10
SHORTEST_SECONDS = 1.0  # of a run that says something


def file_for(environment: Mapping[str, str], job: str) -> Path | None:
    cache = environment.get("XDG_CACHE_HOME") or ""
    if not cache.startswith("/"):
        home = environment.get("HOME") or ""
        if not home.startswith("/"):
            return None
        cache = f"{home}/.cache"
    return Path(cache) / "cotenant" / "runs" / job.replace("/", "_")


def prepare(environment: Mapping[str, str], job: str) -> Path | None:
    """The file, with room for what the run appends; None: nothing can be kept."""
    file = file_for(environment, job)
    if file is None:
        return None
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.exists() and file.stat().st_size > LONGEST_BYTES:
            kept = file.read_text(errors="replace")[-LONGEST_BYTES // 4 :].partition("\n")[2]
            unfinished = file.with_name(f"{file.name}.{os.getpid()}")
            unfinished.write_text(kept)
            unfinished.replace(file)
    except OSError:
        return None
    return file


def read(environment: Mapping[str, str], job: str) -> Known | None:
    """None: nothing is known."""
    file = file_for(environment, job)
    try:
        lines = file.read_text(errors="replace").splitlines() if file else []
    except OSError:
        return None
    newest, most, harmless = "", -1.0, None
    share = 0.0
    for line in lines:
        words = line.split()
        if words[:1] == ["run"] and len(words) == 4:
            seconds, filled = number(words[2]), number(words[3])
            if seconds < SHORTEST_SECONDS or filled < 0:
                continue
            if words[1] != newest:
                newest, most = words[1], -1.0
            if seconds > most:
                most, share = seconds, min(filled / seconds, 1.0)
        elif words[:1] == ["overlap"] and len(words) == 2:
            harmless = words[1] == "harmless"
    return Known(share, harmless) if newest else None


def note_overlap(environment: Mapping[str, str], job: str, harmless: bool) -> None:
    """What was observed of overlap with this job; later runs of it go by it."""
    file = prepare(environment, job)
    if file is not None:
        with file.open("a") as out:
            out.write(f"overlap {'harmless' if harmless else 'harmful'}\n")


def number(text: str) -> float:
    """Less than 0: it is none."""
    try:
        value = float(text)
    except ValueError:
        return -1.0
    return value if 0 <= value < 1e12 else -1.0
