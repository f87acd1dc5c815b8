"""status, explain, pause and resume: the commands of these names as functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from cotenant import segment as segments
from cotenant.api.results import Decision, Explanation, Gpu, Status, Tenant, fields, tenant_of
from cotenant.errors import Problem

Named = str | os.PathLike[str] | None
Given = ParamSpec("Given")
Got = TypeVar("Got")


def with_hint(function: Callable[Given, Got]) -> Callable[Given, Got]:
    """A Problem's remedy is shown with its traceback."""

    @wraps(function)
    def call(*args: Given.args, **more: Given.kwargs) -> Got:
        try:
            return function(*args, **more)
        except Problem as problem:
            if problem.hint:
                problem.add_note(f"hint: {problem.hint}")
            raise

    return call


@with_hint
def status(job: str | int | None = None, *, interval_seconds: float = 0.25, segment: Named = None) -> Status:
    """The tenants of each GPU, or those of one job: what `cotenant status -o json` prints.

    `job` is a job's name, its id or the beginning of that, or a PID of one of its processes or of its launcher.
    What the tenants use of the GPU is watched for `interval_seconds`; with 0 it is not known.
    `segment` is a path as --segment takes it. Raises Problem where no job is meant, or several are."""
    from cotenant import figures
    from cotenant.gpus import process_memory, states
    from cotenant.tenants import looking

    path = path_to(segment)
    seen, lately = looking.twice(path, interval_seconds)
    chosen = seen.tenants if job is None else of_job(job, seen)
    nvml = process_memory.by_process(os.environ) if chosen else {}
    shown = states.read(path)
    return Status(
        segment=path,
        gpus=tuple(
            Gpu(gpu=number, uuid=uuid, **fields(figures.read(figures.Of.gpu, state)))
            for number, uuid in seen.gpus.items()
            for state in [states.figures(shown, number, seen.tenants)]
        ),
        tenants=tuple(tenant_of(figures.record(one, nvml, lately)) for one in chosen),
    )


@with_hint
def explain(job: str | int | None = None, *, segment: Named = None) -> tuple[Explanation, ...]:
    """For each process of a job, why it waits and what the policy decided about it: what `cotenant explain` says.
    Without `job`: this process. Raises Problem where no job is meant, or several are."""
    from cotenant.commands.explain import WATCHED_SECONDS, gather, in_words
    from cotenant.gpus import process_memory
    from cotenant.tenants import looking

    path = path_to(segment)
    seen, lately = looking.twice(path, WATCHED_SECONDS)
    nvml = process_memory.by_process(os.environ)
    found = []
    for one in of_job(os.getpid() if job is None else job, seen):
        about = gather(seen, one, path, nvml, lately)
        found.append(
            Explanation(
                tenant=tenant_of(without_more(about)),
                waits={here["gpu"]: tuple(here["why"]) for here in about["gpus"] if here["why"]},
                policy=about["policy"]["name"],
                decisions=tuple(
                    Decision(gpu=each["gpu"], at=each["at"], text=each["text"])
                    for each in about["policy"]["decisions"]
                ),
                text="\n".join(in_words(about)),
            )
        )
    return tuple(found)


@with_hint
def pause(job: str | int, *, segment: Named = None) -> tuple[Tenant, ...]:
    """Evicts the memory of all processes of a job to the host, as `cotenant pause` does, and returns how they are then.
    Their next launches wait until resume. Raises Problem, and pauses none, where one of them refuses."""
    from cotenant.tenants import pausing

    path = path_to(segment)
    pids = [one.pid for one in of_job(job, read(path))]
    if os.getpid() in pids:
        raise Problem(
            "a process cannot pause its own job", "nobody could resume it from here; use `cotenant pause`"
        )
    return results(pausing.pause_all(path, pids))


@with_hint
def resume(job: str | int, *, wait_seconds: float = 5.0, segment: Named = None) -> tuple[Tenant, ...]:
    """Lets a paused job run on, as `cotenant resume` does: its memory is restored as soon as there is space for it.
    Returns then, or after `wait_seconds`; `where` of what it returns says whether the memory is back ("resident")."""
    from cotenant.tenants import pausing

    path = path_to(segment)
    return results(pausing.resume_all(path, [one.pid for one in of_job(job, read(path))], wait_seconds))


def path_to(named: Named) -> Path:
    given = named or os.environ.get("COTENANT_SEGMENT")
    return segments.path_to_read(Path(given) if given else None)


def read(path: Path) -> segments.Snapshot:
    from cotenant.tenants import jobs

    return jobs.look(path)


def of_job(job: str | int, seen: segments.Snapshot) -> Sequence[segments.Tenant]:
    from cotenant.tenants import jobs

    return [one for found in jobs.select([str(job)], seen.tenants) for one in found.tenants]


def results(tenants: Iterable[segments.Tenant]) -> tuple[Tenant, ...]:
    from cotenant import figures

    return tuple(tenant_of(figures.record(one, {})) for one in tenants)


def without_more(about: dict[str, object]) -> dict[str, object]:
    """What explain adds to a tenant's figures is told apart from them."""
    from cotenant.figures import FIGURES, Of

    own = {figure.name for figure in FIGURES if figure.of is Of.tenant} | {"gpus"}
    here = {figure.name for figure in FIGURES if figure.of is Of.on_gpu}
    kept = {name: value for name, value in about.items() if name in own}
    gpus = about["gpus"]
    assert isinstance(gpus, list)
    return kept | {"gpus": [{name: gpu[name] for name in gpu if name in here} for gpu in gpus]}
