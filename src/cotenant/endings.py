"""How a command that has begun something ends: a closed terminal and `kill` end it as Ctrl-C does."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

SIGNALS = (signal.SIGHUP, signal.SIGTERM)


@contextlib.contextmanager
def tidy() -> Iterator[None]:
    """Inside, these signals raise SystemExit with the status that a shell gives them: processes that were started are
    ended, and temporary files go. What is ignored, as under nohup, stays ignored."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    changed = [number for number, handler in before.items() if handler is signal.SIG_DFL]
    for number in changed:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, before[number])


def leave(number: int, frame: object) -> None:
    # Once: a second one must not break into the ending.
    for one in SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    raise SystemExit(128 + number)
