"""The GPUs of a cluster and the jobs on them, as a placement policy sees them. No clock, no file, no network.

A GPU has room in two layers. Production and standard jobs reserve shares of it, together at most all of it. Below them
opportunistic jobs use what those leave; their shares are counted among themselves, also up to all of it. Memory is one:
all jobs on a GPU together have at most its memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cotenant.classes import TenantClass
from cotenant.cluster.placement.interference import Part

GpuNumber = int
ROUNDING = 1e-9  # sums of shares such as 0.1

RESERVED, LEFT_OVER = 0, 1  # the layers

Demand = tuple[int, float, int, int, str, str, str, str]


@dataclass(frozen=True, slots=True)
class Job:
    id: str
    kind: str = ""  # by which its interference is known
    tenant_class: TenantClass = TenantClass.opportunistic
    share: float = 1.0  # of each of its GPUs, in its class's layer
    memory_bytes: int = 0  # on each of its GPUs
    gpus: int = 1  # all at once
    slowdown: float | None = None  # the promise: 0.05 is 5 %; None: nothing was promised
    affinity: str = ""  # jobs with the same word share a GPU
    anti_affinity: str = ""  # jobs with the same word do not
    exclusion: str = ""  # it shares a GPU only with jobs that have the same word
    where: str = ""  # on the GPUs of this word only (Fleet.where); none: on all
    # What follows from the others, computed once: thousands of jobs are asked for it in every round.
    layer: int = field(init=False, compare=False, repr=False)
    part: Part = field(init=False, compare=False, repr=False)
    demand: Demand = field(
        init=False, compare=False, repr=False
    )  # the same for jobs that fit into the same places
    likeness: tuple[Demand, str, float | None] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        words = (self.affinity, self.anti_affinity, self.exclusion)
        is_opportunistic = self.tenant_class is TenantClass.opportunistic
        layer = LEFT_OVER if is_opportunistic else RESERVED
        demand = (layer, self.share, self.memory_bytes, self.gpus, *words, self.where)
        object.__setattr__(self, "layer", layer)
        object.__setattr__(self, "part", Part(self.kind, self.tenant_class is TenantClass.production))
        object.__setattr__(self, "demand", demand)
        object.__setattr__(self, "likeness", (demand, self.kind, self.slowdown))

    @property
    def is_labelled(self) -> bool:
        return bool(self.affinity or self.anti_affinity or self.exclusion)


Mask = npt.NDArray[np.bool_]


class Fleet:
    """Residents and free room of each GPU. Policies work on a copy, so a decision changes nothing outside of it."""

    def __init__(self, memory_bytes: Sequence[int]) -> None:
        self.memory_bytes = np.array(memory_bytes, dtype=np.int64)
        self.free_bytes = self.memory_bytes.copy()
        self.free_shares = np.ones((2, len(memory_bytes)))
        self.tenants = np.zeros(len(memory_bytes), dtype=np.int64)
        self.residents: list[tuple[Job, ...]] = [()] * len(memory_bytes)
        self.places: dict[str, tuple[GpuNumber, ...]] = {}
        # GPUs of one number have residents that are alike for interference, whatever their ids.
        self.groups = np.zeros(len(memory_bytes), dtype=np.int64)
        self._group_numbers: dict[tuple[object, ...], int] = {(): 0}
        self._labelled = 0
        # GPUs that jobs with a word of the caller's may use.
        self.where: dict[str, Mask] = {}

    def __len__(self) -> int:
        return len(self.residents)

    def copy(self) -> Fleet:
        other = Fleet.__new__(Fleet)
        other.memory_bytes = self.memory_bytes
        other.free_bytes, other.free_shares = self.free_bytes.copy(), self.free_shares.copy()
        other.tenants = self.tenants.copy()
        other.residents, other.places = self.residents.copy(), self.places.copy()
        other.groups, other._group_numbers = self.groups.copy(), self._group_numbers
        other._labelled, other.where = self._labelled, self.where
        return other

    def add(self, job: Job, gpus: Iterable[GpuNumber]) -> None:
        self.places[job.id] = tuple(gpus)
        for gpu in self.places[job.id]:
            self.residents[gpu] = (*self.residents[gpu], job)
            self._take(job, gpu, 1)

    def remove(self, job: Job) -> tuple[GpuNumber, ...]:
        gpus = self.places.pop(job.id)
        for gpu in gpus:
            self.residents[gpu] = tuple(one for one in self.residents[gpu] if one.id != job.id)
            self._take(job, gpu, -1)
        return gpus

    def _take(self, job: Job, gpu: GpuNumber, sign: int) -> None:
        self.free_bytes[gpu] -= sign * job.memory_bytes
        self.free_shares[job.layer, gpu] -= sign * job.share
        self.tenants[gpu] += sign
        self._labelled += sign * job.is_labelled
        key = tuple((one.part, one.layer, one.slowdown) for one in self.residents[gpu])
        self.groups[gpu] = self._group_numbers.setdefault(key, len(self._group_numbers))

    def fits(self, job: Job) -> Mask:
        """Where the job has room and no label keeps it away."""
        room: Mask = (self.free_bytes >= job.memory_bytes) & (
            self.free_shares[job.layer] >= job.share - ROUNDING
        )
        if job.where:
            room &= self.where[job.where]
        if job.is_labelled or self._labelled:
            room &= self._allowed(job)
        return room

    def _allowed(self, job: Job) -> Mask:
        allowed = np.array(
            [
                all(
                    one.exclusion == job.exclusion
                    and not (job.anti_affinity and one.anti_affinity == job.anti_affinity)
                    for one in residents
                )
                for residents in self.residents
            ],
            dtype=bool,
        )
        if job.affinity:
            chosen = self.with_affinity(job.affinity)
            if chosen.any():
                allowed &= chosen
        return allowed

    def with_affinity(self, word: str) -> Mask:
        """Where a job with this word is, or with any word where it is empty."""
        return np.array(
            [
                any((one.affinity == word) if word else bool(one.affinity) for one in residents)
                for residents in self.residents
            ],
            dtype=bool,
        )
