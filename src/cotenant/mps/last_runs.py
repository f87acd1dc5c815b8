"""What a job's last run was like: a small file for each job's name under the user's cache.

The interposer appends a line when a process of the job ends (native/tenant/last_run.cpp). The newest run counts, and
of its processes the one with the most work. What overlap did is in another file (pairs.py).

    run RUN_ID SECONDS FILLED_SECONDS REST_US

At work; of these, not waiting for its own CPU; what was left of the kernel that ran, at a random moment, in the mean
(0: not known).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cotenant import private_folders
from cotenant.mps.decide import Known

VARIABLE = "COTENANT_LAST_RUN"
LONGEST_BYTES = 16 << 10
SHORTEST_SECONDS = 1.0  # of a run that says something


def file_for(environment: Mapping[str, str], job: str) -> Path | None:
    cache = cache_in(environment)
    return cache / "runs" / job.replace("/", "_") if cache else None


def cache_in(environment: Mapping[str, str]) -> Path | None:
    """Our folder in the user's cache; None: there is no cache."""
    cache = environment.get("XDG_CACHE_HOME") or ""
    if not cache.startswith("/"):
        home = environment.get("HOME") or ""
        if not home.startswith("/"):
            return None
        cache = f"{home}/.cache"
    return Path(cache) / "cotenant"


def prepare(environment: Mapping[str, str], job: str) -> Path | None:
    """The file, with room for what the run appends; None: nothing can be kept."""
    file = file_for(environment, job)
    if file is None:
        return None
    try:
        private_folders.make(file.parent)
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
    newest, most = "", -1.0
    share, left_us = 0.0, 0.0
    for line in lines:
        words = line.split()
        if words[:1] == ["run"] and len(words) == 5:
            seconds, filled, rest_us = (number(word) for word in words[2:])
            if seconds < SHORTEST_SECONDS or filled < 0 or rest_us < 0:
                continue
            if words[1] != newest:
                newest, most = words[1], -1.0
            if seconds > most:
                most, share, left_us = seconds, min(filled / seconds, 1.0), rest_us
    return Known(share, rest_us=left_us or None) if newest else None


def number(text: str) -> float:
    """Less than 0: it is none."""
    try:
        value = float(text)
    except ValueError:
        return -1.0
    return value if 0 <= value < 1e12 else -1.0
