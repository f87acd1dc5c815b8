"""The table of streams, and what is remembered of how long operations run: both are read on every launch, unlocked."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.compiling import compile_program, cuda_headers

Program = Callable[[str, str | None], Path]

SOURCES = {
    "streams": ("tests/tenant/streams.cpp", "native/tenant/streams.cpp"),
    "durations": (
        "tests/tenant/durations.cpp",
        "native/tenant/durations.cpp",
        "native/tenant/event_pair.cpp",
        "native/wire/clock.cpp",
    ),
}
CASES = {
    "streams": ("churn", "removal", "full", "kinds", "first_use", "recycled", "renewed"),
    "durations": (
        "two",
        "passers_by",
        "samples",
        "seldom",
        "threads",
        "pairs",
        "graphs",
        "launched_late",
        "refused",
    ),
}
# Those of several threads are also watched by the compiler's own judge of the memory model, where it has one.
RACES = (("streams", "first_use"), ("streams", "recycled"), ("durations", "threads"), ("durations", "pairs"))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    @cache
    def build(name: str, sanitize: str | None) -> Path:
        folder = tmp_path_factory.mktemp(name)
        return compile_program(
            folder, *SOURCES[name], headers=cuda_headers(), optimise=True, sanitize=sanitize
        )

    return build


def holds(program: Path, case: str) -> None:
    done = subprocess.run([str(program), case], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("name", "case"), [(name, case) for name in CASES for case in CASES[name]])
def test_it_holds(program: Program, name: str, case: str) -> None:
    holds(program(name, None), case)


@pytest.mark.parametrize(("name", "case"), RACES)
def test_no_two_threads_race(program: Program, name: str, case: str) -> None:
    holds(program(name, "thread"), case)
