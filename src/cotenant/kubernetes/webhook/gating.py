"""With a placer, pods with claims of ours wait for it: those that a dialect was understood in, and those whose author
wrote a ResourceClaimTemplate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cotenant.kubernetes import names
from cotenant.kubernetes.placer import gate

Object = dict[str, Any]
Find = Callable[[str], Object | None]  # a ResourceClaimTemplate of the pod's namespace, by its name


def hold(pod: Object, made: Sequence[Object], words: Mapping[str, str], find: Find) -> bool:
    """Gates the pod; False: it has no claim that the placer could make. `made` are templates that do not exist yet."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return False  # it is placed, and the API allows it no gate
    known = {template["metadata"]["name"]: template for template in made}
    entries = {}
    for entry in spec.get("resourceClaims") or ():
        name = entry.get("resourceClaimTemplateName")
        template = name and (known.get(name) or find(name))
        if template and is_ours(template):
            entries[entry["name"]] = name
    if entries:
        gate.close(pod, entries, words)
    return bool(entries)


def is_ours(template: Mapping[str, Any]) -> bool:
    requests = (template["spec"]["spec"].get("devices") or {}).get("requests") or ()
    asked = [
        one.get("deviceClassName")
        for request in requests
        for one in (request.get("exactly") or {}, *(request.get("firstAvailable") or ()))
    ]
    return any(word in names.DEVICE_CLASSES for word in asked)
