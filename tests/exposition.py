"""Tenants in a segment, and what `cotenant metrics` says of them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.segments import UUID, Written

COTENANT = [sys.executable, "-m", "cotenant"]


def families_in(exposition: str) -> dict[str, str]:
    """Name and kind, of families without series too."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", exposition, re.MULTILINE))


def scene() -> Written:
    written = Written()
    written.gpu(0, UUID)
    serve = written.tenant(0, pid=100, name=b"serve.py", tenant_class=0)
    serve.uid = 0
    here = serve.gpus[0]
    here.busy, here.used_ns, here.in_flight_us = 1, 2_500_000_000, 100
    here.figures.kernels, here.figures.escaped = 5, 3
    serve.slowdown, serve.memory_limit = 50, 20 << 30
    train = written.tenant(1, pid=200, name=b"train.py", tenant_class=2)
    train.gpus[0].figures.kernels = 7
    return written


@contextmanager
def serving(env: dict[str, str]) -> Iterator[int]:
    """The port that it serves at."""
    command = [*COTENANT, "metrics", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stderr is not None
            said = child.stderr.readline()
            match = re.fullmatch(r"serving http://127\.0\.0\.1:(\d+)/metrics\n", said)
            assert match, said
            yield int(match.group(1))
        finally:
            child.terminate()
