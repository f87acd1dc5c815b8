"""One file a spelling. Each has `PROJECT`, `WORDS`, with one of which an annotation, label or resource of each of its
pods begins, and `understand`: what it finds in a pod, or None where the pod speaks none of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from cotenant.errors import Problem
from cotenant.kubernetes import quantities
from cotenant.kubernetes.webhook.wish import Refused

Pod = Mapping[str, Any]


def annotations_of(pod: Pod) -> Mapping[str, str]:
    return pod.get("metadata", {}).get("annotations") or {}


def labels_of(pod: Pod) -> Mapping[str, str]:
    return pod.get("metadata", {}).get("labels") or {}


def limits_of(pod: Pod) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each container's name with its limits, which for extended resources are its requests too."""
    spec = pod.get("spec", {})
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        resources = container.get("resources") or {}
        yield container["name"], {**(resources.get("requests") or {}), **(resources.get("limits") or {})}


def number(what: str, text: Any, least: int = 0, most: int | None = None) -> int:
    try:
        value = quantities.whole(text)
    except Problem as problem:
        raise Refused(f"{what}: {problem.message}; {problem.hint}") from None
    if value < least or (most is not None and value > most):
        limit = f"from {least} to {most}" if most is not None else f"{least} or more"
        raise Refused(f"{what} is {text}: it has to be {limit}")
    return value


def part(what: str, text: Any) -> Fraction:
    """A number over 0, up to 1."""
    try:
        value = quantities.exact(text)
    except Problem:
        raise Refused(f"{what} is '{text}': it has to be a number such as 0.5") from None
    if not 0 < value <= 1:
        raise Refused(f"{what} is {text}: it has to be over 0, and 1 at most")
    return value


def only_known(what: str, said: Mapping[str, Any], prefix: str, known: Mapping[str, str]) -> None:
    """Refuses a word with the project's prefix that is not known here, and one that is known and cannot be honoured:
    `known` has the reason, or nothing."""
    from cotenant.errors import nearest

    for word in said:
        if not word.startswith(prefix):
            continue
        if word not in known:
            hint = nearest(word, known)
            raise Refused(f"{what} '{word}' is not known to Cotenant" + (f": {hint}" if hint else ""))
        if known[word]:
            raise Refused(f"{what} '{word}' cannot be honoured: {known[word]}")
