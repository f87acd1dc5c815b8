"""Which partition suits a list of jobs. Pure.

Every job gets an instance that holds its memory, if any partition can do that. Of the partitions that can:

    1. the SMs that jobs go without, as a share of what each needs, summed, are least;
    2. then the fewest slices are used, so that what is left can hold more.

The search is whole: there are at most seven instances, and the order of equal profiles does not matter.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from cotenant.errors import USAGE, Problem
from cotenant.mig.geometry import SLICES, Geometry, Profile


@dataclass(frozen=True, slots=True)
class Need:
    job: str
    memory_bytes: int
    sms: float  # 0: any number will do
    source: str  # where this was learned: "stated", "profile"


@dataclass(frozen=True, slots=True)
class Instance:
    need: Need
    profile: Profile
    start: int

    @property
    def short_of_sms(self) -> Fraction:
        """The share of its SMs that the job goes without: exact, so that two sums can be equal."""
        if not self.need.sms:
            return Fraction(0)
        return max(Fraction(0), 1 - self.profile.sms / Fraction(self.need.sms))


Counts = tuple[int, ...]  # how many instances of each profile


def plan(geometry: Geometry, needs: Sequence[Need]) -> list[Instance]:
    """An instance for each job, in the order of the jobs. Raises Problem where there is no such partition."""
    profiles = geometry.profiles
    for need in needs:
        if not any(profile.memory_bytes >= need.memory_bytes for profile in profiles):
            most = max(profile.memory_bytes for profile in profiles)
            raise Problem(
                f"{need.job} needs {gib(need.memory_bytes)}, the largest instance of {geometry.model} has {gib(most)}",
                "give it a GPU without MIG, or lower what it needs",
                USAGE,
            )
    chosen = best(profiles, tuple(needs))
    if chosen is None:
        raise Problem(
            f"no partition of {geometry.model} holds these {len(needs)} jobs at once",
            "leave some out, state less memory, or let jobs share an instance: each is scheduled like a GPU",
            USAGE,
        )
    starts = placed(profiles, counted(chosen, len(profiles)))
    assert starts is not None
    left = {number: list(found) for number, found in enumerate(starts)}
    return [
        Instance(need, profiles[number], left[number].pop(0))
        for need, number in zip(needs, chosen, strict=True)
    ]


def counted(chosen: Sequence[int], profiles: int) -> Counts:
    return tuple(list(chosen).count(number) for number in range(profiles))


def best(profiles: tuple[Profile, ...], needs: tuple[Need, ...]) -> tuple[int, ...] | None:
    """The number of each job's profile; None: no partition holds them all."""

    @functools.cache
    def rest(at: int, counts: Counts) -> tuple[Fraction, int, tuple[int, ...]] | None:
        """The least cost of the jobs from `at` on, where others have taken `counts`."""
        if at == len(needs):
            return Fraction(0), 0, ()
        found = None
        for number, profile in enumerate(profiles):
            taken = tuple(count + (number == other) for other, count in enumerate(counts))
            if profile.memory_bytes < needs[at].memory_bytes or placed(profiles, taken) is None:
                continue
            below = rest(at + 1, taken)
            if below is None:
                continue
            short = Instance(needs[at], profile, 0).short_of_sms
            cost = below[0] + short, below[1] + profile.size, (number, *below[2])
            found = cost if found is None else min(found, cost)
        return found

    result = rest(0, (0,) * len(profiles))
    return result[2] if result else None


@functools.cache
def placed(profiles: tuple[Profile, ...], counts: Counts) -> tuple[tuple[int, ...], ...] | None:
    """Where so many instances of each profile begin; None: they do not fit together."""
    order = sorted(
        (number for number, count in enumerate(counts) for _ in range(count)),
        key=lambda number: (-profiles[number].size, len(profiles[number].starts)),
    )
    if sum(profiles[number].size for number in order) > SLICES:
        return None
    starts: list[list[int]] = [[] for _ in profiles]

    def fit(at: int, used: int) -> bool:
        if at == len(order):
            return True
        number = order[at]
        one = profiles[number]
        # The last place first: what is left then begins at 0, where every profile may be.
        for start in reversed(one.starts):
            mask = ((1 << one.size) - 1) << start
            if used & mask:
                continue
            starts[number].append(start)
            if fit(at + 1, used | mask):
                return True
            starts[number].pop()
        return False

    return tuple(tuple(found) for found in starts) if fit(0, 0) else None


def free_profiles(geometry: Geometry, instances: Sequence[Instance]) -> list[str]:
    """What could still be made beside them, the largest first."""
    used = 0
    for one in instances:
        used |= ((1 << one.profile.size) - 1) << one.start
    found = []
    for profile in reversed(geometry.profiles):
        while True:
            masks = [((1 << profile.size) - 1) << start for start in profile.starts]
            mask = next((mask for mask in masks if not used & mask), None)
            if mask is None:
                break
            used |= mask
            found.append(profile.name)
    return found


def commands(gpu: str, instances: Sequence[Instance], is_on: bool, has_instances: bool) -> list[str]:
    """What an administrator would run, in this order; nobody's work may be on the GPU."""
    tuples = ",".join(f"{one.profile.id}:{one.start}" for one in instances)
    return [
        *([] if is_on else [f"nvidia-smi -i {gpu} -mig 1"]),
        *([f"nvidia-smi mig -i {gpu} -dci", f"nvidia-smi mig -i {gpu} -dgi"] if has_instances else []),
        f"nvidia-smi mig -i {gpu} -cgi {tuples} -C",
        "nvidia-smi -L",
    ]


def gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
