"""A pod becomes the same pod with claims: a pure function of the pod and of the GPU sizes of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from cotenant.kubernetes import names
from cotenant.kubernetes.webhook.dialects import Pod, annotations_of, gaiagpu, hami, kai, kubeshare, own
from cotenant.kubernetes.webhook.wish import Refused, Understood, Wish, template

DIALECTS = (own, hami, kai, kubeshare, gaiagpu)
APART = f"{names.DRIVER}.apart"
USUAL_GRACE_SECONDS = 30  # Kubernetes' default


@dataclass
class Mutation:
    """The pod as it shall be, and the templates that have to exist before it does."""

    pod: dict[str, Any]
    templates: list[dict[str, Any]] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)  # for the placer: whom it shall share a GPU with
    warnings: list[str] = field(default_factory=list)


def mutate(
    pod: Pod, namespace: str, gpu_bytes: Callable[[], Sequence[int]], has_placer: bool = False
) -> Mutation | None:
    """None: the pod asks for nothing of ours. Raises Refused."""
    found = [(dialect.PROJECT, said) for dialect in DIALECTS if (said := dialect.understand(pod))]
    if not found:
        return None
    if len(found) > 1:
        projects = " and ".join(project for project, _ in found)
        raise Refused(f"the pod asks for GPUs in the words of {projects}: leave one of them")
    [(project, understood)] = found
    warnings = [*understood.warnings, *warning_of_pause(pod, understood)]
    mutation = Mutation(deepcopy(dict(pod)), warnings=warnings)
    if has_placer:
        mutation.words = understood.words
    elif understood.needs_placer:
        raise Refused(understood.needs_placer)
    spec = mutation.pod["spec"]
    check_unclaimed(spec, project)
    for wish in understood.wishes:
        made = template(wish, namespace, gpu_bytes)
        mutation.templates.append(made)
        claim(spec, wish, made["metadata"]["name"])
    drop_resources(spec, understood.resources)
    if understood.scheduler and spec.get("schedulerName") == understood.scheduler:
        spec["schedulerName"] = "default-scheduler"
    apart = understood.words.get("anti_affinity")
    if apart and not has_placer:
        keep_apart(mutation.pod, apart)
    give_priority(spec, understood)
    return mutation


def check_unclaimed(spec: dict[str, Any], project: str) -> None:
    for entry in spec.get("resourceClaims") or ():
        if entry["name"].startswith("cotenant-"):
            raise Refused(
                f"the pod has a claim '{entry['name']}' and asks for GPUs in the words of {project}"
            )


def claim(spec: dict[str, Any], wish: Wish, template_name: str) -> None:
    name = f"cotenant-{wish.container}"[:63].rstrip("-") if wish.container else "cotenant"
    spec.setdefault("resourceClaims", []).append({"name": name, "resourceClaimTemplateName": template_name})
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        if wish.container in (None, container["name"]):
            container.setdefault("resources", {}).setdefault("claims", []).append({"name": name})


def drop_resources(spec: dict[str, Any], resources: set[str]) -> None:
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        for kind in ("limits", "requests"):
            said = (container.get("resources") or {}).get(kind) or {}
            for word in resources & said.keys():
                del said[word]


def keep_apart(pod: dict[str, Any], word: str) -> None:
    """On different nodes, and so on different GPUs."""
    pod["metadata"].setdefault("labels", {})[APART] = word
    affinity = pod["spec"].setdefault("affinity", {}).setdefault("podAntiAffinity", {})
    affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", []).append(
        {"labelSelector": {"matchLabels": {APART: word}}, "topologyKey": "kubernetes.io/hostname"}
    )


def warning_of_pause(pod: Pod, understood: Understood) -> list[str]:
    """A pod that does something when it is told to end may want the GPU for it, and is paused by default."""
    spec = pod["spec"]
    does_something = (spec.get("terminationGracePeriodSeconds") or 0) > USUAL_GRACE_SECONDS or any(
        (one.get("lifecycle") or {}).get("preStop") for one in spec["containers"]
    )
    is_paused = any(wish.tenant_class == "opportunistic" for wish in understood.wishes)
    if not (does_something and is_paused) or names.ON_EVICTION_ANNOTATION in annotations_of(pod):
        return []
    return [
        "an opportunistic pod is paused before it is evicted, and cannot save work from the GPU then: annotate it with"
        f" {names.ON_EVICTION_ANNOTATION}: {names.RUN_ON_EVICTION}, or {names.PAUSE_ON_EVICTION} if that is meant"
    ]


def give_priority(spec: dict[str, Any], understood: Understood) -> None:
    """Of the highest class among its claims, unless the pod says its own."""
    from cotenant import classes

    if spec.get("priorityClassName"):
        return
    highest = min((wish.tenant_class for wish in understood.wishes), key=classes.NAMES.index)
    spec["priorityClassName"] = names.priority_class(highest)
    # The API server has filled these in for a pod without a class, and computes them again.
    spec.pop("priority", None)
    spec.pop("preemptionPolicy", None)
