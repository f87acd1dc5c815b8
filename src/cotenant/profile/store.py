"""Where profiles are kept: under the user's cache, a file for each model of GPU, and one for each job.

    ~/.cache/cotenant/profiles/kernels/MODEL.json    {"version": 1, "gpu": {...}, "kernels": [...]}
    ~/.cache/cotenant/profiles/jobs/JOB.json         {"version": 1, "job": NAME, "gpus": {MODEL: {...}}}

A file is replaced whole, behind a lock, so two profiles at once both count. A file of another version, or a damaged
one, is never overwritten: adding to it is refused, and whoever only would like to know finds nothing there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cotenant import output_files, private_folders
from cotenant.errors import Problem
from cotenant.profile import job as jobs
from cotenant.profile import kernel as kernels
from cotenant.profile.job import Job
from cotenant.profile.kernel import Kernel, Key

VERSION = 1
MOST_KERNELS = 20_000  # of one model of GPU; those that were not seen for longest go first
LARGEST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Model:
    """Of a GPU."""

    name: str
    sms: int
    memory_gbps: float  # 0: not known


@dataclass(frozen=True)
class Profile:
    gpu: Model
    kernels: Mapping[Key, Kernel] = field(default_factory=dict)


class Unreadable(Exception):
    """Why a file says nothing."""


def folder(environment: Mapping[str, str]) -> Path | None:
    """None: the user has no cache."""
    cache = environment.get("XDG_CACHE_HOME") or ""
    if not cache.startswith("/"):
        home = environment.get("HOME") or ""
        if not home.startswith("/"):
            return None
        cache = f"{home}/.cache"
    return Path(cache) / "cotenant" / "profiles"


def file_name(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.")[:120] or "unnamed"


def kernel_file(environment: Mapping[str, str], model: str) -> Path | None:
    place = folder(environment)
    return place / "kernels" / f"{file_name(model)}.json" if place else None


def job_file(environment: Mapping[str, str], name: str) -> Path | None:
    place = folder(environment)
    return place / "jobs" / f"{file_name(name)}.json" if place else None


def load(path: Path) -> dict[str, Any]:
    """Raises Unreadable; FileNotFoundError where there is none."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise Unreadable(f"{path} is too large")
        values = json.loads(path.read_text())
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise Unreadable(f"{path} is damaged: {error}") from None
    if not isinstance(values, dict):
        raise Unreadable(f"{path} is no profile")
    if values.get("version") != VERSION:
        raise Unreadable(f"{path} is a profile of version {values.get('version')}, not {VERSION}")
    return values


def profile_in(path: Path) -> Profile:
    """Raises Unreadable; FileNotFoundError where there is none."""
    values = load(path)
    try:
        gpu = values["gpu"]
        model = Model(str(gpu["name"]), int(gpu["sms"]), float(gpu["memory_gbps"]))
        found = [kernels.from_json(one) for one in values["kernels"]]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Unreadable(f"{path} is damaged: {error!r}") from None
    return Profile(model, {one.key: one for one in found})


def profiles(environment: Mapping[str, str]) -> list[Profile]:
    """Of all models of GPU. Raises Problem for a file that says nothing."""
    place = folder(environment)
    files = sorted((place / "kernels").glob("*.json")) if place else []
    return [_or_problem(path) for path in files]


def _or_problem(path: Path) -> Profile:
    try:
        return profile_in(path)
    except (Unreadable, OSError) as error:
        raise Problem(str(error), f"use the version of Cotenant that wrote it, or remove {path}") from None


def check_place(environment: Mapping[str, str]) -> None:
    """Before the work: raises Problem where nothing could be kept of it."""
    place = folder(environment)
    if place is None:
        raise nowhere()
    for part in ("kernels", "jobs"):
        try:
            private_folders.make(place / part)
        except OSError as error:
            raise Problem(
                f"cannot write {place / part}: {output_files.reason(error)}",
                "set XDG_CACHE_HOME to a folder of yours",
            ) from None
        output_files.check_folder(place / part)


def nowhere() -> Problem:
    return Problem("there is no place for profiles", "set HOME or XDG_CACHE_HOME")


def add(environment: Mapping[str, str], gpu: Model, found: Iterable[Kernel]) -> Path:
    """Merges kernels into what is kept of this model. Raises Problem."""
    path = kernel_file(environment, gpu.name)
    if path is None:
        raise nowhere()
    with written(path):
        try:
            known = dict(profile_in(path).kernels)
        except FileNotFoundError:
            known = {}
        except Unreadable as error:
            raise Problem(str(error), f"remove {path} to begin anew") from None
        for one in found:
            known[one.key] = kernels.merged(known[one.key], one) if one.key in known else one
        kept = sorted(known.values(), key=lambda one: (one.seen, one.total_us))[-MOST_KERNELS:]
        document = {"version": VERSION, "gpu": asdict(gpu), "kernels": [kernels.as_json(one) for one in kept]}
        replace(path, document)
    return path


def add_job(environment: Mapping[str, str], name: str, gpu: str, job: Job) -> None:
    """The newest counts. Raises Problem."""
    path = job_file(environment, name)
    if path is None:
        raise nowhere()
    with written(path):
        try:
            known = dict(load(path)["gpus"])
        except FileNotFoundError:
            known = {}
        except (Unreadable, KeyError, TypeError, ValueError) as error:
            raise Problem(f"{path}: {error}", f"remove {path} to begin anew") from None
        document = {"version": VERSION, "job": name, "gpus": known | {gpu: jobs.as_json(job)}}
        replace(path, document)


def job(environment: Mapping[str, str], name: str) -> dict[str, Job]:
    """Of a job, by model of GPU; nothing where nothing is known. Never a Problem: nobody needs a profile."""
    path = job_file(environment, name)
    try:
        values = load(path) if path else {}
        if values.get("job") != name:  # another one's, whose name makes the same file
            return {}
        return {str(gpu): jobs.from_json(one) for gpu, one in dict(values.get("gpus", {})).items()}
    except (Unreadable, OSError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return {}


def job_names(environment: Mapping[str, str]) -> list[str]:
    place = folder(environment)
    names = []
    for path in sorted((place / "jobs").glob("*.json")) if place else ():
        with contextlib.suppress(Unreadable, OSError):
            names.append(str(load(path).get("job", path.stem)))
    return names


@contextlib.contextmanager
def written(path: Path) -> Iterator[None]:
    """Nobody else writes it meanwhile."""
    try:
        private_folders.make(path.parent)
        lock = os.open(path.parent / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise Problem(f"cannot write {path}: {output_files.reason(error)}", "check the folder") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def replace(path: Path, document: Mapping[str, Any]) -> None:
    with output_files.replaced(path) as beside:
        beside.write_text(json.dumps(document, separators=(",", ":")) + "\n")


def top(found: Sequence[Kernel], count: int) -> list[Kernel]:
    return sorted(found, key=lambda one: -one.total_us)[:count]
