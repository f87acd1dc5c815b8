"""What the administrator of a shared segment allows a user, a group, or everybody who is not named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cotenant.segment.library import seal
from cotenant.segment.wire import Header, SubjectKind
from cotenant.units import SHARE_OF_GPU


@dataclass(frozen=True, order=True)
class Subject:
    kind: SubjectKind
    id: int = 0


@dataclass(frozen=True)
class Grant:
    """What the administrator grants a subject; None and 0: nothing."""

    subject: Subject
    best_class: int | None = None
    memory_limit: int = 0  # on each GPU, all processes of a user together; as cotenant.units has it


def grants_in(header: Header) -> list[Grant]:
    known = set(SubjectKind) - {SubjectKind.nobody}
    return [
        Grant(
            Subject(SubjectKind(entry.subject_kind), entry.subject_id),
            entry.best_class - 1 if entry.best_class else None,
            entry.memory_limit,
        )
        for entry in header.grants
        if entry.subject_kind in known
    ]


def write_grants(header: Header, grants: Iterable[Grant]) -> None:
    """An entry counts while its check word agrees: a reader finds it whole or not at all."""
    places = iter(header.grants)
    for grant, place in zip(grants, places, strict=False):
        place.subject_kind = SubjectKind.nobody.value  # while it changes, and another tool seals
        place.subject_id = grant.subject.id
        place.best_class = 0 if grant.best_class is None else 1 + grant.best_class
        place.memory_limit = grant.memory_limit
        place.subject_kind = int(grant.subject.kind)
    for place in places:
        place.subject_kind = SubjectKind.nobody.value
    seal(header)


def merged(
    before: Iterable[Grant], classes: Mapping[Subject, int | None], limits: Mapping[Subject, int]
) -> list[Grant]:
    """With what is granted anew; a subject that is left with nothing has no entry."""
    granted = {grant.subject: grant for grant in before}
    for subject in {**classes, **limits}:
        old = granted.get(subject, Grant(subject))
        best = classes.get(subject, old.best_class)
        granted[subject] = Grant(subject, best, limits.get(subject, old.memory_limit))
    ordered = (granted[subject] for subject in sorted(granted))
    return [grant for grant in ordered if grant.best_class is not None or grant.memory_limit]


def best_class(header: Header, uid: int, gid: int) -> int:
    """As wire::best_class."""
    return granted_to(header, uid, gid, lambda grant: grant.best_class) or 0


def smaller_limit(limit: int, header: Header, uid: int, gid: int) -> int:
    """Of a run's own memory limit and the one that the administrator has set for its user. Where one is a size and the
    other a share of a GPU that is not at hand, the run's own."""
    imposed = granted_to(header, uid, gid, lambda grant: grant.memory_limit or None) or 0
    if not (limit and imposed):
        return limit or imposed
    return min(limit, imposed) if (limit ^ imposed) & SHARE_OF_GPU == 0 else limit


def granted_to(header: Header, uid: int, gid: int, value_of: Callable[[Grant], int | None]) -> int | None:
    """What is granted most particularly: to the user, to the group, to everybody."""
    subjects = (Subject(SubjectKind.user, uid), Subject(SubjectKind.group, gid))
    fitting = [
        grant
        for grant in grants_in(header)
        if (grant.subject in subjects or grant.subject.kind is SubjectKind.everybody)
        and value_of(grant) is not None
    ]
    return value_of(min(fitting, key=lambda grant: grant.subject.kind)) if fitting else None
