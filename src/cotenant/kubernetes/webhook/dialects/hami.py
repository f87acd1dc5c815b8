"""HAMi: extended resources of a container, and annotations of its pod.

nvidia.com/gpu: 2                    GPUs, each with the following
nvidia.com/gpumem: 3000              MiB
nvidia.com/gpumem-percentage: 50     of each GPU's memory
nvidia.com/gpucores: 30              percent of each GPU, as a reservation
nvidia.com/priority: 0               0 is production, 1 is opportunistic
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from cotenant.kubernetes import names
from cotenant.kubernetes.webhook.dialects import Pod, annotations_of, limits_of, number, only_known
from cotenant.kubernetes.webhook.wish import Refused, Understood, Wish

PROJECT = "HAMi"
GPU = "nvidia.com/gpu"
MEMORY, PERCENTAGE = "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"
CORES, PRIORITY = "nvidia.com/gpucores", "nvidia.com/priority"
WORDS = (MEMORY, CORES, PRIORITY)
RESOURCES = {GPU: "", MEMORY: "", PERCENTAGE: "", CORES: "", PRIORITY: ""}
CLASSES = {0: "production", 1: "opportunistic"}
NO_POLICY = "the stock scheduler places claims; leave it out"
ANNOTATIONS = {
    "nvidia.com/use-gputype": "",
    "nvidia.com/nouse-gputype": "",
    "nvidia.com/use-gpuuuid": "",
    "nvidia.com/nouse-gpuuuid": "",
    "nvidia.com/vgpu-mode": "",
    "hami.io/gpu-scheduler-policy": NO_POLICY,
    "hami.io/node-scheduler-policy": NO_POLICY,
}


def understand(pod: Pod) -> Understood | None:
    """A pod that asks for `nvidia.com/gpu` alone asks NVIDIA's own device plugin: it is left alone."""
    asking = {name: said for name, said in limits_of(pod) if any(word in said for word in RESOURCES)}
    if not any(word in said for said in asking.values() for word in RESOURCES if word != GPU):
        return None
    said = annotations_of(pod)
    for prefix in ("nvidia.com/", "hami.io/"):
        only_known("HAMi's annotation", said, prefix, ANNOTATIONS)
    if said.get("nvidia.com/vgpu-mode", "hami-core") != "hami-core":
        raise Refused(
            "HAMi's annotation 'nvidia.com/vgpu-mode' cannot be honoured: Cotenant makes no MIG instances"
        )
    selectors = selected(said)
    wishes = [wish_of(name, words, selectors) for name, words in asking.items()]
    return Understood(wishes, set(RESOURCES), "hami-scheduler")


def wish_of(name: str, said: Mapping[str, Any], selectors: tuple[str, ...]) -> Wish:
    only_known(f"container {name}: HAMi's resource", said, "nvidia.com/", RESOURCES)
    if MEMORY in said and PERCENTAGE in said:
        raise Refused(f"container {name} has both {MEMORY} and {PERCENTAGE}: leave one out")
    priority = number(PRIORITY, said[PRIORITY], 0, 1) if PRIORITY in said else None
    return Wish(
        container=name,
        tenant_class="standard" if priority is None else CLASSES[priority],
        count=number(GPU, said.get(GPU, 1), 1),
        memory_bytes=number(MEMORY, said[MEMORY], 1) << 20 if MEMORY in said else None,
        memory_part=Fraction(number(PERCENTAGE, said.get(PERCENTAGE, 100), 1, 100), 100),
        share=number(CORES, said.get(CORES, 0), 0, 100),
        selectors=selectors,
    )


def selected(said: Mapping[str, str]) -> tuple[str, ...]:
    attribute = f'device.attributes["{names.DRIVER}"]'

    def any_of(word: str, one: str) -> str:
        return " || ".join(one % item for item in listed(said[word]))

    kind = f'{attribute}.productName.lowerAscii().contains("%s")'
    uuid = f'{attribute}.uuid.lowerAscii() == "%s"'
    found = []
    for word, one, negated in (
        ("nvidia.com/use-gputype", kind, False),
        ("nvidia.com/nouse-gputype", kind, True),
        ("nvidia.com/use-gpuuuid", uuid, False),
        ("nvidia.com/nouse-gpuuuid", uuid, True),
    ):
        if word in said:
            found.append(f"!({any_of(word, one)})" if negated else any_of(word, one))
    return tuple(found)


def listed(text: str) -> list[str]:
    """They go into an expression: nothing but what names GPUs."""
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    if not words or not all(letter.isalnum() or letter in " -_." for word in words for letter in word):
        raise Refused(f"'{text}' names no GPUs: give names or UUIDs with commas")
    return words
