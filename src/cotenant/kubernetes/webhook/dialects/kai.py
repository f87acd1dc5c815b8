"""KAI Scheduler: annotations of a pod.

    gpu-fraction: "0.5"                  of a GPU: that part of its memory, and of its time as a reservation
    gpu-memory: "2000"                   MiB of a GPU
    gpu-fraction-num-devices: "2"        on so many GPUs
    gpu-fraction-container-name: main    for this container; else for the first

Its PriorityClasses say the class: inference is production, train is opportunistic.
"""

from __future__ import annotations

from fractions import Fraction

from cotenant.kubernetes.webhook.dialects import Pod, annotations_of, labels_of, number, part
from cotenant.kubernetes.webhook.wish import Refused, Understood, Wish

PROJECT = "KAI"
WORDS = FRACTION, MEMORY = "gpu-fraction", "gpu-memory"
DEVICES, CONTAINER = "gpu-fraction-num-devices", "gpu-fraction-container-name"
CLASSES = {"inference": "production", "train": "opportunistic"}
QUEUES = ("kai.scheduler/queue", "runai/queue")


def understand(pod: Pod) -> Understood | None:
    said = annotations_of(pod)
    if FRACTION not in said and MEMORY not in said:
        return None
    if FRACTION in said and MEMORY in said:
        raise Refused(f"the pod has both {FRACTION} and {MEMORY}: leave one out")
    containers = [container["name"] for container in pod["spec"]["containers"]]
    container = said.get(CONTAINER, containers[0])
    if container not in containers:
        raise Refused(f"{CONTAINER} names '{container}', and the pod has {', '.join(containers)}")
    fraction = part(FRACTION, said[FRACTION]) if FRACTION in said else Fraction(1)
    wish = Wish(
        container=container,
        tenant_class=CLASSES.get(pod["spec"].get("priorityClassName", ""), "standard"),
        count=number(DEVICES, said.get(DEVICES, 1), 1),
        memory_bytes=number(MEMORY, said[MEMORY], 1) << 20 if MEMORY in said else None,
        memory_part=fraction,
        share=int(fraction * 100) if FRACTION in said else 0,
    )
    queue = next((labels_of(pod)[word] for word in QUEUES if word in labels_of(pod)), None)
    warnings = [f"KAI's queue '{queue}' does not count here: use a ResourceQuota for claims"] if queue else []
    return Understood([wish], set(), "kai-scheduler", warnings=warnings)
