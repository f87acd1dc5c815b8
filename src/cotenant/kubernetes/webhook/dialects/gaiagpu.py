"""GaiaGPU (Tencent's gpu-manager): extended resources of a container.

tencent.com/vcuda-core: 50       percent of a GPU, as a reservation; from 100 on whole GPUs
tencent.com/vcuda-memory: 30     in units of 256 MiB; of whole GPUs all
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cotenant.kubernetes.webhook.dialects import Pod, annotations_of, limits_of, number, only_known
from cotenant.kubernetes.webhook.wish import Refused, Understood, Wish

PROJECT = "GaiaGPU"
PREFIX = "tencent.com/"
WORDS = (PREFIX,)
CORE, MEMORY = f"{PREFIX}vcuda-core", f"{PREFIX}vcuda-memory"
RESOURCES = {CORE: "", MEMORY: ""}
ANNOTATIONS = {
    f"{PREFIX}vcuda-core-limit": "Cotenant reserves time and does not cap it while the GPU is idle"
}
UNIT = 256 << 20


def understand(pod: Pod) -> Understood | None:
    asking = {name: said for name, said in limits_of(pod) if any(word.startswith(PREFIX) for word in said)}
    if not asking:
        return None
    only_known("GaiaGPU's annotation", annotations_of(pod), PREFIX, ANNOTATIONS)
    return Understood([wish_of(name, said) for name, said in asking.items()], set(RESOURCES))


def wish_of(name: str, said: Mapping[str, Any]) -> Wish:
    only_known(f"container {name}: GaiaGPU's resource", said, PREFIX, RESOURCES)
    core = number(CORE, said.get(CORE, 0), 1)
    if core > 100 and core % 100:
        raise Refused(f"{CORE} is {core}: beyond 100 it counts whole GPUs, in hundreds")
    if core >= 100:
        return Wish(name, count=core // 100, share=100)
    if MEMORY not in said:
        raise Refused(f"container {name} has no {MEMORY}: a part of a GPU needs it")
    return Wish(name, memory_bytes=number(MEMORY, said[MEMORY], 1) * UNIT, share=core)
