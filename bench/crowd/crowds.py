"""Crowds of opportunistic jobs, and every window that a round has for them. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from catalogue import AS_OPPORTUNISTIC, AS_PRODUCTION, MPS, MPS_LOW, PLAIN, Job, parse_job

from cotenant.errors import USAGE, Problem, unknown

# Named by what is in them. The last has all of the others' jobs, so that nobody has to be started for them.
CROWDS = (
    "longk*2",
    "resnet*2",
    "gpt+resnet+longk",
    "gpt+longk+graph+copies",
    "gpt+resnet*2+longk*2+graph*2+copies",
)
QUICK_CROWDS = ("longk*2", "gpt+resnet+longk")
PRODUCTION = ("decode", "encoder")
QUICK_PRODUCTION = ("decode",)

# Jobs that do not want the GPU all the time, whoever else does: they copy, or wait for their own CPU.
MODEST = frozenset({"copies", "flood", "flood-pageable", "eager", "vision-batch", "generate-batch"})

SOLO, ALONE = "solo", "alone"  # one opportunistic job, production: each by itself
TIMESLICE, MPS_PRIORITY, COTENANT, WEIGHTED = "timeslice", "mps-priority", "cotenant", "cotenant 1:2:4"
MODES = (TIMESLICE, MPS_PRIORITY, COTENANT, WEIGHTED)
QUICK_MODES = (TIMESLICE, COTENANT, WEIGHTED)
WEIGHTS = (1.0, 2.0, 4.0)  # of a crowd of as many, under WEIGHTED

# How production and the crowd are started.
STARTS = {
    SOLO: (PLAIN, PLAIN),
    ALONE: (PLAIN, PLAIN),
    TIMESLICE: (PLAIN, PLAIN),
    MPS_PRIORITY: (MPS, MPS_LOW),
    COTENANT: (AS_PRODUCTION, AS_OPPORTUNISTIC),
    WEIGHTED: (AS_PRODUCTION, AS_OPPORTUNISTIC),
}
# A window's length, of what was asked for: a closed loop's rate is soon known, and turns go round in their own time.
LENGTHS = {SOLO: 0.5, COTENANT: 2.0, WEIGHTED: 2.0}


@dataclasses.dataclass(frozen=True)
class Crowd:
    """Jobs of one kind have numbers: `longk`, `longk 2`."""

    name: str
    jobs: tuple[Job, ...]

    @property
    def kinds(self) -> list[Job]:
        return [job for job in self.jobs if kind(job) == job.name]


def kind(job: Job) -> str:
    return job.name.partition("#")[0]


@dataclasses.dataclass(frozen=True)
class Case:
    """Who runs in a window, and how they share."""

    mode: str
    production: Job | None
    jobs: tuple[Job, ...]

    @property
    def title(self) -> str:
        names = "+".join(job.name for job in self.jobs)
        return (
            f"{self.mode}: {self.production.name if self.production else 'nobody'} beside {names or 'nobody'}"
        )

    def length(self, seconds: float) -> float:
        return seconds * (1.0 if self.production else LENGTHS.get(self.mode, 1.0))

    def workers(self) -> list[tuple[Job, str]]:
        first, others = STARTS[self.mode]
        return [
            *([(self.production, first)] if self.production else []),
            *((job, others) for job in self.jobs),
        ]


def parse_crowd(word: str) -> Crowd:
    jobs: list[Job] = []
    for part in word.split("+"):
        name, star, times = part.partition("*")
        job = parse_job(name, "opportunistic")
        if star and not (times.isdecimal() and 1 <= int(times) <= 32):
            raise Problem(f"'{part}' is no number of jobs", "as in gpt+longk*2, at most 32", USAGE)
        for _ in range(int(times) if star else 1):
            number = 1 + sum(kind(other) == name for other in jobs)
            jobs.append(job if number == 1 else dataclasses.replace(job, name=f"{name}#{number}"))
    return Crowd(word, tuple(jobs))


def parse_modes(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in MODES:
            raise unknown("mode", name, MODES)
    return [mode for mode in MODES if mode in names]


def once(cases: Iterable[Case]) -> list[Case]:
    return list(dict.fromkeys(cases))


def cases(crowds: Sequence[Crowd], modes: Sequence[str], productions: Sequence[Job]) -> list[Case]:
    """One round. What several crowds are compared with is measured once for all of them."""
    found = [Case(SOLO, None, (job,)) for crowd in crowds for job in crowd.kinds]
    found += [Case(ALONE, production, ()) for production in productions]
    for crowd in crowds:
        found += [Case(mode, None, crowd.jobs) for mode in modes if mode != WEIGHTED]
        if WEIGHTED in modes and len(crowd.jobs) == len(WEIGHTS):
            found.append(Case(WEIGHTED, None, crowd.jobs))
        for production in productions:
            if COTENANT in modes:
                found += [Case(COTENANT, production, (job,)) for job in crowd.kinds]
            found += [Case(mode, production, crowd.jobs) for mode in modes if mode != WEIGHTED]
    return once(found)
