"""Cotenant's own short form: annotations of a pod, for all of its containers together.

cotenant.dev/class: production         standard unless it says so
cotenant.dev/memory: 20Gi              of one GPU; or 30%; all unless it says so
cotenant.dev/slowdown: 5%              production's promise
cotenant.dev/on-eviction: run          an opportunistic pod is not paused before it is evicted
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from cotenant import classes, units
from cotenant.errors import Problem, nearest
from cotenant.kubernetes import names, quantities
from cotenant.kubernetes.parameters import Parameters
from cotenant.kubernetes.webhook.dialects import Pod, annotations_of, only_known
from cotenant.kubernetes.webhook.wish import Refused, Understood, Wish

PROJECT = "Cotenant"
WORDS = (f"{names.DRIVER}/",)
ASKING = (names.CLASS_ANNOTATION, names.MEMORY_ANNOTATION, names.SLOWDOWN_ANNOTATION)
KNOWN = dict.fromkeys((*ASKING, names.ON_EVICTION_ANNOTATION), "")
ON_EVICTION = (names.PAUSE_ON_EVICTION, names.RUN_ON_EVICTION)


def understand(pod: Pod) -> Understood | None:
    said = annotations_of(pod)
    if not any(word.startswith(f"{names.DRIVER}/") for word in said):
        return None
    check_words(said)
    if not said.keys() & set(ASKING):
        return None
    tenant_class = said.get(names.CLASS_ANNOTATION, classes.TenantClass.standard.name)
    if tenant_class not in classes.NAMES:
        hint = nearest(tenant_class, classes.NAMES) or f"known: {', '.join(classes.NAMES)}"
        raise Refused(f"unknown class '{tenant_class}': {hint}")
    slowdown = said.get(names.SLOWDOWN_ANNOTATION)
    try:
        parameters = Parameters(promise=units.slowdown(slowdown) if slowdown else None)
        parameters.check_for(tenant_class)
        memory, part = memory_of(said.get(names.MEMORY_ANNOTATION))
    except Problem as problem:
        raise Refused(f"{problem.message}: {problem.hint}") from None
    return Understood(
        [Wish(None, tenant_class, memory_bytes=memory, memory_part=part, parameters=parameters)]
    )


def check_words(said: Mapping[str, str]) -> None:
    """Of a pod's annotations, those of ours that mean nothing are refused, not ignored. Raises Refused."""
    only_known("the annotation", said, f"{names.DRIVER}/", KNOWN)
    if said.get(names.ON_EVICTION_ANNOTATION, ON_EVICTION[0]) not in ON_EVICTION:
        raise Refused(f"{names.ON_EVICTION_ANNOTATION} is {' or '.join(ON_EVICTION)}")


def memory_of(text: str | None) -> tuple[int | None, Fraction]:
    """In Kubernetes' spelling (20Gi) or the command line's (20G is 20 GiB there, and here 20 * 10^9)."""
    if text is None:
        return None, Fraction(1)
    if text.strip().endswith("%"):
        share = units.encoded_limit(text) & ~units.SHARE_OF_GPU
        return None, Fraction(share, 1_000_000)
    size = quantities.whole(text)
    if size < units.LEAST_LIMIT:
        raise Problem(f"no memory: '{text}'", "the least is 1Mi; did you forget the unit?")
    return size, Fraction(1)
