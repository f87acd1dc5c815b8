"""Processes that use a GPU past Cotenant: NVML lists them, and they have not loaded the interposer: a static program,
one with musl, or one in a nested container with an image of its own. The kernel says which container they are in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cotenant import units
from cotenant.gpus import outsiders
from cotenant.kubernetes.node.pods import Place
from cotenant.metrics import containers


@dataclass(frozen=True)
class Outsider:
    pid: int
    place: Place
    memory_bytes: int

    def in_words(self) -> str:
        size = units.size_shown(self.memory_bytes)
        return (
            f"container {self.place.container}, process {self.pid}: it has {size} of GPU memory and has not loaded"
            " the interposer; class and limits do not hold for it"
        )


def among(
    on_gpus: Mapping[tuple[str, int], int], tenants: set[int], places: Mapping[str, Place]
) -> Iterator[Outsider]:
    """`on_gpus`: bytes by GPU and PID, as NVML says. A process that has no context of its own yet is no tenant, either:
    what counts is the interposer."""
    for pid in sorted({pid for _, pid in on_gpus} - tenants):
        ids = containers.ids_in_cgroup(containers.text_of(pid, "cgroup"))
        place = next((places[one] for one in ids if one in places), None)
        if place and outsiders.is_interposed(pid) is False:
            yield Outsider(pid, place, sum(size for (_, one), size in on_gpus.items() if one == pid))
