"""How many cases there are of what is drawn at random: a part of them in `make test`, all in `make test-drawn`."""

from __future__ import annotations

import os

ALL = os.environ.get("COTENANT_TEST_DRAWN") == "all"


def drawn_cases(cases: int, always: int) -> range:
    """The seeds; `always`: how many of them `make test` has."""
    return range(cases if ALL else always)
