"""The only kind of error that people see: what is wrong, and what to do about it. `main` prints it, once."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable

from cotenant import terminal

FAILED = 1
USAGE = 2
NOT_EXECUTABLE = 126
NOT_FOUND = 127


class Problem(Exception):
    """`message`: what is wrong; `hint`: what to do about it, or nothing."""

    def __init__(self, message: str, hint: str = "", status: int = FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.status = status


def unknown(kind: str, word: str, known: Iterable[str]) -> Problem:
    """The usage error for a word that is none of the known ones; its hint is the nearest right word."""
    words = sorted(known)
    return Problem(f"unknown {kind} '{word}'", nearest(word, words) or f"known: {', '.join(words)}", USAGE)


def nearest(word: str, known: Iterable[str]) -> str:
    """ "did you mean ...?", or nothing where no known word is near."""
    import difflib

    by_folded = {name.casefold(): name for name in known}
    folded = word.casefold()
    starts = [name for name in by_folded if folded and name.startswith(folded)]
    near = starts[:1] or difflib.get_close_matches(folded, by_folded, n=1, cutoff=0.5)
    return f"did you mean '{by_folded[near[0]]}'?" if near else ""


def narrate(line: str) -> None:
    """To stderr; where that is closed or full, the line is lost."""
    if sys.stderr is not None:  # else print would take stdout
        with contextlib.suppress(OSError):
            print(terminal.lines(line), file=sys.stderr, flush=True)


class Failing:
    """Something that is tried again and again: a failure is narrated once, and again only when it is another one or
    comes back."""

    def __init__(self) -> None:
        self._said = ""

    def narrate(self, line: str) -> None:
        if line != self._said:
            narrate(line)
        self._said = line

    def is_over(self) -> None:
        self._said = ""
