"""What the administrator of a shared segment allows a user, a group, or everybody who is not named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from cotenant.segment.library import seal
from cotenant.segment.wire import Header


class Whose(IntEnum):
    user = 1
    group = 2
    everybody = 3


@dataclass(frozen=True, order=True)
class Who:
    whose: Whose
    id: int = 0


@dataclass(frozen=True)
class Right:
    """What the administrator grants a subject; None and 0: nothing."""

    who: Who
    best_class: int | None = None
    memory_limit: int = 0  # on each GPU, all processes of a user together; as cotenant.units has it


def rights_in(header: Header) -> list[Right]:
    known = {whose.value for whose in Whose}
    return [
        Right(
            Who(Whose(entry.whose), entry.id),
            entry.best_class - 1 if entry.best_class else None,
            entry.memory_limit,
        )
        for entry in header.rights
        if entry.whose in known
    ]


def write_rights(header: Header, rights: Iterable[Right]) -> None:
    """An entry counts while its check word agrees: a reader finds it whole or not at all."""
    places = iter(header.rights)
    for right, place in zip(rights, places, strict=False):
        place.id = right.who.id
        place.best_class = 0 if right.best_class is None else 1 + right.best_class
        place.memory_limit = right.memory_limit
        place.whose = int(right.who.whose)
    for place in places:
        place.whose = 0
    seal(header)


def merged(
    before: Iterable[Right], classes: Mapping[Who, int | None], limits: Mapping[Who, int]
) -> list[Right]:
    """With what is said anew; who is left with nothing has no entry."""
    said = {right.who: right for right in before}
    for who in {**classes, **limits}:
        old = said.get(who, Right(who))
        said[who] = Right(who, classes.get(who, old.best_class), limits.get(who, old.memory_limit))
    return [said[who] for who in sorted(said) if said[who].best_class is not None or said[who].memory_limit]


def best_class(header: Header, uid: int, gid: int) -> int:
    """What is said most particularly; as wire::best_class."""
    fitting = [
        right
        for right in rights_in(header)
        if right.who in (Who(Whose.user, uid), Who(Whose.group, gid)) or right.who.whose is Whose.everybody
    ]
    said = [right for right in fitting if right.best_class is not None]
    return min(said, key=lambda right: right.who.whose).best_class or 0 if said else 0
