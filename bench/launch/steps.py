"""Counts a program's instructions one by one: the kernel stops it after each (ptrace), on every machine alike.

Only the program's first thread is stepped; others run as they like.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Mapping, Sequence

TRACEME, CONTINUE, SINGLESTEP = 0, 7, 9  # <sys/ptrace.h>, the same numbers on all machines
# Far more than any of our programs takes between two of its stops.
MOST_STEPS = 5_000_000


class CannotStep(Exception):
    """Why this program cannot be stepped here."""


libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def between_stops(command: Sequence[str], env: Mapping[str, str], counts: int) -> list[int]:
    """How many instructions the program executes from each odd stop of its own (SIGSTOP) to the next."""
    pid = os.fork()
    if pid == 0:
        try:
            libc.ptrace(TRACEME, 0, None, None)
            os.execve(command[0], list(command), dict(env))
        finally:
            os._exit(127)
    try:
        os.waitpid(pid, 0)  # stopped by its exec, before its first instruction
        found = []
        for _ in range(counts):
            run_to_stop(pid)
            found.append(step_to_stop(pid))
        return found
    finally:
        try:
            os.kill(pid, signal.SIGKILL)
            # A stop that was on its way is told before the end is.
            while os.WIFSTOPPED(os.waitpid(pid, 0)[1]):
                pass
        except (ProcessLookupError, ChildProcessError):
            pass


def go_on(pid: int, how: int, with_signal: int) -> int:
    """The signal that the program stops for next."""
    if libc.ptrace(how, pid, None, with_signal) < 0:
        raise CannotStep(f"ptrace: {os.strerror(ctypes.get_errno())}")
    _, status = os.waitpid(pid, 0)
    if not os.WIFSTOPPED(status):
        raise CannotStep(f"the program ended with status {os.waitstatus_to_exitcode(status)}")
    return os.WSTOPSIG(status)


def run_to_stop(pid: int) -> None:
    got = 0
    while (got := go_on(pid, CONTINUE, got)) != signal.SIGSTOP:
        pass


def step_to_stop(pid: int) -> int:
    for steps in range(MOST_STEPS):
        got = go_on(pid, SINGLESTEP, 0)
        if got == signal.SIGSTOP:
            return steps
        if got != signal.SIGTRAP:
            raise CannotStep(f"the program got {signal.Signals(got).name}")
    # A load-exclusive that is stopped after never stores: a processor without atomic instructions tries for ever.
    raise CannotStep(f"over {MOST_STEPS:,} instructions and no end")
