"""Two jobs on one simulated GPU, and the prediction of what they do to each other there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cotenant.cluster.predict import jobs, observations
from cotenant.cluster.predict.model import MODES, Model, Observation, Pair, Prediction
from cotenant.cluster.predict.traits import Traits, traits_of
from cotenant.errors import unknown
from cotenant.policies.interface import Policy
from cotenant.policies.mps import Mps
from cotenant.simulator import Job, SimulatedGpu, Study, TenantOutcome, Workload
from cotenant.simulator.workload import program_of

SECONDS = 20.0


class MpsWithPriority(Mps):
    """MPS with client priorities, as `mps-priority` of bench/pairs is measured."""

    name = "mps-priority"
    title = "MPS, production's clients more urgent"
    priorities = True


# A mode of bench/pairs, and the policy that stands for it.
POLICIES: dict[str, str | type[Policy]] = {
    "timeslice": "timeslice",
    "mps": "mps",
    "mps-priority": MpsWithPriority,
    "cotenant": "strict",
}


def predict(
    production: Path | str | Job,
    other: Path | str | Job,
    mode: str = "cotenant",
    rate: float | None = None,
    gpu: SimulatedGpu | str = "h200",
    seen: Sequence[Observation] | None = None,
) -> Prediction:
    """The slowdown of each of two recorded jobs (paths of traces or profiles, or jobs) that share a GPU. `rate` is
    production's requests a second; without it production keeps its recorded pace."""
    first = jobs.production(
        jobs.read(Path(production)) if not isinstance(production, Job) else production, rate
    )
    second = jobs.other(jobs.read(Path(other)) if not isinstance(other, Job) else other)
    model = Model(observations.shipped() if seen is None else seen)
    return model.predict(simulated(first, second, mode, gpu))


def simulated(
    production: Job,
    other: Job,
    mode: str = "cotenant",
    gpu: SimulatedGpu | str = "h200",
    seconds: float = SECONDS,
    study: Study | None = None,
) -> Pair:
    """`study`, where one was made for these jobs, knows what each does alone."""
    if mode not in MODES:
        raise unknown("way of sharing", mode, MODES)
    study = study or study_of(production, other, gpu, seconds)
    first, second = study.run(POLICIES[mode]).tenants
    return Pair(
        mode,
        traits(study, 0, first),
        traits(study, 1, second),
        first.service_slowdown,
        second.share,
    )


def study_of(
    production: Job, other: Job, gpu: SimulatedGpu | str = "h200", seconds: float = SECONDS
) -> Study:
    if other.name == production.name:
        other = replace(other, name=f"{other.name}-2")
    return Study(Workload(f"{production.name}+{other.name}", (production, other)), gpu, seconds, seed=1)


def traits(study: Study, number: int, seen: TenantOutcome) -> Traits:
    program = program_of(study.workload.jobs[number], study.gpu, study.seed)
    busy = seen.alone.work_us / (study.seconds * 1e6)
    return traits_of(program, busy, seen.alone.service.p50_us)
