"""A live change: what the annotations of a running pod ask of its tenants, within what was claimed.

    cotenant.dev/class       a lower class than the claim's, or that again
    cotenant.dev/memory      less than the claim's memory and overflow together, or that again
    cotenant.dev/slowdown    another promise, of a production tenant
    cotenant.dev/on-eviction for evictions.py

An annotation that goes takes the tenant back to its claim. What cannot be honoured is refused with the reason, and the
claim's own value holds for it. Pure: (annotations, terms) in, what the tenants shall have out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace

from cotenant import classes, segment, units
from cotenant.errors import Problem, nearest
from cotenant.kubernetes import names, quantities
from cotenant.kubernetes.claims import Terms
from cotenant.kubernetes.webhook.dialects.own import check_words, memory_of
from cotenant.kubernetes.webhook.wish import Refused, part_of


@dataclass(frozen=True)
class Wanted:
    """As shared memory has them: the class's number, bytes, thousandths."""

    tenant_class: int
    memory: int
    slowdown: int

    def requests(self) -> dict[str, int]:
        return asdict(self)

    def is_of(self, tenant: segment.Tenant) -> bool:
        return (tenant.tenant_class, tenant.memory_limit, tenant.slowdown) == (
            self.tenant_class,
            self.memory,
            self.slowdown,
        )

    def in_words(self, before: Wanted) -> str:
        """What differs."""
        said = []
        if self.tenant_class != before.tenant_class:
            said.append(f"class {classes.NAMES[self.tenant_class]}")
        if self.memory != before.memory:
            said.append(f"memory up to {quantities.of_bytes(self.memory)}")
        if self.slowdown != before.slowdown:
            promise = f"slowdown {units.percent(self.slowdown)}" if self.slowdown else "no slowdown promised"
            said.append(promise)
        return ", ".join(said) or "as claimed"


def claimed(terms: Terms) -> Wanted:
    promise = units.thousandths(terms.parameters.promise) if terms.parameters.promise else None
    return Wanted(classes.NAMES.index(terms.tenant_class), terms.memory_limit, promise or 0)


def wanted(
    annotations: Mapping[str, str], terms: Terms, gpu_bytes: Callable[[], int]
) -> tuple[Wanted, list[str]]:
    """And why what is not honoured is not."""
    made, refused = claimed(terms), []
    for annotation, change in (
        (names.CLASS_ANNOTATION, with_class),
        (names.MEMORY_ANNOTATION, lambda text, now, terms: with_memory(text, now, terms, gpu_bytes)),
        (names.SLOWDOWN_ANNOTATION, with_slowdown),
    ):
        text = annotations.get(annotation)
        if text is None:
            continue
        try:
            made = change(text, made, terms)
        except Problem as problem:
            hint = f"; {problem.hint}" if problem.hint else ""
            refused.append(f"{annotation}: {text}: {problem.message}{hint}")
    try:
        check_words(annotations)
    except Refused as why:
        refused.append(str(why))
    return made, refused


def with_class(text: str, now: Wanted, terms: Terms) -> Wanted:
    if text not in classes.NAMES:
        raise Problem("unknown class", nearest(text, classes.NAMES) or f"known: {', '.join(classes.NAMES)}")
    number = classes.NAMES.index(text)
    if number < classes.NAMES.index(terms.tenant_class):
        raise Problem(
            f"the claim {terms.name} is of class {terms.tenant_class}, and a change goes no higher",
            f"make a claim of {names.device_class(text)}",
        )
    # The promise goes with the class.
    return replace(now, tenant_class=number, slowdown=0 if number else now.slowdown)


def with_memory(text: str, now: Wanted, terms: Terms, gpu_bytes: Callable[[], int]) -> Wanted:
    memory, part = memory_of(text)
    memory = part_of(gpu_bytes(), part) if memory is None else memory
    if memory > terms.memory_limit:
        most = quantities.of_bytes(terms.memory_limit)
        raise Problem(f"the claim {terms.name} has {most}, memory and overflow together", "claim more")
    return replace(now, memory=memory)


def with_slowdown(text: str, now: Wanted, terms: Terms) -> Wanted:
    promise = units.thousandths(units.slowdown(text)) or 0
    if now.tenant_class != classes.TenantClass.production:
        raise Problem(
            f"a slowdown is promised to production, and the class is {classes.NAMES[now.tenant_class]}"
        )
    return replace(now, slowdown=promise)
