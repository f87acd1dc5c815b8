"""A gated pod, and its release.

The webhook lets a pod name claims that do not exist yet, in place of the templates that its author wrote, and holds it
back by a scheduling gate. The placer creates each claim from its template, narrowed to one GPU, and takes the gate
away; the stock scheduler then counts and binds as ever. The pod owns its claims: they are deleted with it.

A claim is created before the gate goes, so a placer that is killed in between leaves a pod that the next one releases.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, TypedDict

from cotenant.kubernetes import names

Object = dict[str, Any]

RESOURCE = "resource.k8s.io/v1"
GATE = f"{names.DRIVER}/placement"
LABEL = f"{names.DRIVER}.placer"  # by which the placer finds its pods
TEMPLATES = f"placer.{names.DRIVER}/templates"  # annotation of a pod: the template of each of its claims
GPU = (
    f"placer.{names.DRIVER}/gpu"  # annotation of a claim: NODE/DEVICE, or nothing where the scheduler chooses
)
# Annotations of a pod and its claim: which others it shall share a GPU with, as cotenant.cluster.placement has it.
WORDS = {
    word: f"placer.{names.DRIVER}/{word.replace('_', '-')}"
    for word in ("affinity", "anti_affinity", "exclusion")
}


def close(pod: Object, entries: Mapping[str, str], words: Mapping[str, str]) -> None:
    """`entries` are names of the pod's claims with their templates; `words` are of WORDS."""
    for entry in pod["spec"]["resourceClaims"]:
        if entry["name"] in entries:
            entry.pop("resourceClaimTemplateName")
            entry["resourceClaimName"] = f"cotenant-{secrets.token_hex(8)}"
    metadata = pod["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), LABEL: "yes"}
    metadata["annotations"] = {
        **(metadata.get("annotations") or {}),
        TEMPLATES: json.dumps(dict(entries), sort_keys=True),
        **{WORDS[name]: word for name, word in words.items() if word},
    }
    gates = pod["spec"].setdefault("schedulingGates", [])
    if not is_closed(pod):
        gates.append({"name": GATE})


def is_closed(pod: Mapping[str, Any]) -> bool:
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())


def opened(pod: Mapping[str, Any]) -> Object:
    """The patch that takes the gate away from this pod, and from no later one of its name. Whatever else was changed
    meanwhile stays: the scheduler, for one, writes a gated pod's status as soon as it sees it."""
    return {
        "metadata": {"uid": pod["metadata"]["uid"]},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]},
    }


def nominated(pod: Mapping[str, Any], node: str) -> Object:
    """The patch of a pod's status by which the scheduler tries this node first. Else it tries the claim on every node
    of the cluster, of which it fits on one. If the pod does not fit there, the scheduler tries them all."""
    return {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"nominatedNodeName": node}}


def templates_of(pod: Mapping[str, Any]) -> dict[str, str]:
    """The template's name of each claim's name. A pod whose annotation was changed by hand has none."""
    try:
        said = json.loads((pod["metadata"].get("annotations") or {})[TEMPLATES])
        return {
            entry["resourceClaimName"]: str(said[entry["name"]])
            for entry in pod["spec"].get("resourceClaims") or ()
            if entry.get("resourceClaimName") and entry["name"] in said
        }
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}


class Words(TypedDict):
    affinity: str
    anti_affinity: str
    exclusion: str


def words_of(made: Mapping[str, Any]) -> Words:
    """Of a pod, or of a claim that the placer has made."""
    said = made["metadata"].get("annotations") or {}
    return Words(
        affinity=said.get(WORDS["affinity"], ""),
        anti_affinity=said.get(WORDS["anti_affinity"], ""),
        exclusion=said.get(WORDS["exclusion"], ""),
    )


def claim_for(
    pod: Mapping[str, Any], name: str, template: Mapping[str, Any], gpu: tuple[str, str, str] | None
) -> Object:
    """What the resource claim controller would make of the template, and the GPU (node, device, UUID) it is for."""
    given = template["spec"].get("metadata") or {}
    owner = pod["metadata"]
    labels = {**(given.get("labels") or {}), **names.LABELS}
    workload = (owner.get("labels") or {}).get(names.WORKLOAD_LABEL)
    if workload:
        labels[names.WORKLOAD_LABEL] = workload
    spec = deepcopy(dict(template["spec"]["spec"]))
    if gpu:
        [request] = spec["devices"]["requests"]
        chosen = f'device.attributes["{names.DRIVER}"].uuid == "{gpu[2]}"'
        request["exactly"].setdefault("selectors", []).append({"cel": {"expression": chosen}})
    reference = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": owner["name"],
        "uid": owner["uid"],
        "controller": True,
    }
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": owner["namespace"],
            "labels": labels,
            "annotations": {
                **(given.get("annotations") or {}),
                **{WORDS[name]: str(word) for name, word in words_of(pod).items() if word},
                GPU: f"{gpu[0]}/{gpu[1]}" if gpu else "",
            },
            "ownerReferences": [reference],
        },
        "spec": spec,
    }


def gpu_of(claim: Mapping[str, Any]) -> tuple[str, str] | None:
    """Node and device that the placer chose for the claim."""
    said = (claim["metadata"].get("annotations") or {}).get(GPU) or ""
    node, _, device = said.partition("/")
    return (node, device) if node and device else None
