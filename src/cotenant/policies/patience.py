"""Anybody may write a policy: what it does ends after a while, also where it would not by itself."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator

from cotenant.errors import USAGE, Problem

SECONDS = 5.0


class TooLong(BaseException):
    """A policy has not answered."""

    def __repr__(self) -> str:
        return f"it did not answer for {SECONDS:.0f} s"


def end_the_wait(number: int, frame: object) -> None:
    raise TooLong


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises TooLong, where `end_the_wait` handles SIGALRM."""
    # Again and again: an exception may be caught.
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextlib.contextmanager
def of_a_command(policy: str) -> Iterator[None]:
    """Raises Problem. The alarm that somebody has set for the command, as `timeout` may, still comes in its time."""
    alarm_seconds, again_seconds = signal.getitimer(signal.ITIMER_REAL)
    # One that comes again and again is the daemon's own; no other thread than the main one hears signals.
    if again_seconds or threading.current_thread() is not threading.main_thread():
        yield
        return
    began = time.monotonic()
    handler = signal.signal(signal.SIGALRM, end_the_wait)
    try:
        with limited(min(SECONDS, alarm_seconds or SECONDS)):
            yield
    except TooLong as error:
        raise Problem(f"the policy {policy} cannot be loaded: {error!r}", "mend it", USAGE) from None
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
        if alarm_seconds:
            left_seconds = alarm_seconds - (time.monotonic() - began)
            signal.setitimer(signal.ITIMER_REAL, max(left_seconds, 1e-6))
