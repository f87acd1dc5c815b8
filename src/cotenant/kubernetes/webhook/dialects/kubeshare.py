"""KubeShare: labels (2.0) or annotations (1.0) of a pod, for its first container.

sharedgpu/gpu_request: "0.4"             of a GPU's time, as a reservation
sharedgpu/gpu_limit: "1.0"               the most of it; 1.0 only
sharedgpu/gpu_mem: "3145728"             bytes; the requested part of the GPU's memory unless it says so
sharedgpu/sched_anti-affinity: green     not on a GPU with another green pod: on another node
sharedgpu/sched_affinity: red            on the GPU where the other red pods are; with a placer only
sharedgpu/sched_exclusion: blue          on a GPU with blue pods only; with a placer only
"""

from __future__ import annotations

from cotenant.kubernetes.webhook.dialects import Pod, annotations_of, labels_of, number, only_known, part
from cotenant.kubernetes.webhook.wish import Refused, Understood, Wish

PROJECT = "KubeShare"
PREFIX = "sharedgpu/"
WORDS = (PREFIX,)
REQUEST, LIMIT, MEMORY = f"{PREFIX}gpu_request", f"{PREFIX}gpu_limit", f"{PREFIX}gpu_mem"
AFFINITY, EXCLUSION = f"{PREFIX}sched_affinity", f"{PREFIX}sched_exclusion"
APART = f"{PREFIX}sched_anti-affinity"
ONE_GPU = "the stock scheduler cannot put two pods' claims on one GPU because of a word"
WITHOUT_PLACER = {
    AFFINITY: f"{ONE_GPU}; install the placer, or let both pods use one ResourceClaim",
    EXCLUSION: f"{ONE_GPU}, nor keep the others away; install the placer, or claim a whole GPU",
}
KNOWN = dict.fromkeys((REQUEST, LIMIT, MEMORY, APART, *WITHOUT_PLACER), "")


def understand(pod: Pod) -> Understood | None:
    said = {**annotations_of(pod), **labels_of(pod)}
    if not any(word.startswith(PREFIX) for word in said):
        return None
    only_known("KubeShare's word", said, PREFIX, KNOWN)
    if REQUEST not in said:
        raise Refused(f"the pod has no {REQUEST}: it says which part of a GPU is wanted")
    wanted = part(REQUEST, said[REQUEST])
    if part(LIMIT, said.get(LIMIT, "1.0")) < 1:
        raise Refused(
            f"{LIMIT} is {said[LIMIT]}: Cotenant reserves time and does not cap it while the GPU is idle; set 1.0"
        )
    memory = number(MEMORY, said[MEMORY], 1) if MEMORY in said else None
    first = pod["spec"]["containers"][0]["name"]
    wish = Wish(first, memory_bytes=memory, memory_part=wanted, share=int(wanted * 100))
    words = {"affinity": AFFINITY, "anti_affinity": APART, "exclusion": EXCLUSION}
    return Understood(
        [wish],
        set(),
        "kubeshare-scheduler",
        {name: said[word] for name, word in words.items() if said.get(word)},
        next(
            (
                f"KubeShare's word '{word}' cannot be honoured: {why}"
                for word, why in WITHOUT_PLACER.items()
                if word in said
            ),
            "",
        ),
    )
