"""The table of streams, and what is remembered of how long operations run: both are read on every launch, unlocked."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program, cuda_headers

# Threads that race are watched by the compiler's own judge of the memory model, where it has one.
RACES = ("first_use", "recycled", "threads", "pairs")


@pytest.fixture(scope="module", params=["plain", "thread"])
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    sanitize = request.param if request.param != "plain" else None
    sources = {
        "streams": ("tests/tenant/streams.cpp", "native/tenant/streams.cpp"),
        "durations": (
            "tests/tenant/durations.cpp",
            "native/tenant/durations.cpp",
            "native/tenant/event_pair.cpp",
        ),
    }
    return {
        name: compile_program(
            tmp_path_factory.mktemp(name), *files, headers=cuda_headers(), optimise=True, sanitize=sanitize
        )
        for name, files in sources.items()
    }


@pytest.mark.parametrize(
    ("program", "case"),
    [
        ("streams", "churn"),
        ("streams", "removal"),
        ("streams", "full"),
        ("streams", "kinds"),
        ("streams", "first_use"),
        ("streams", "recycled"),
        ("durations", "two"),
        ("durations", "passers_by"),
        ("durations", "samples"),
        ("durations", "threads"),
        ("durations", "pairs"),
    ],
)
def test_it_holds(programs: dict[str, Path], program: str, case: str, request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["programs"] == "thread" and case not in RACES:
        pytest.skip("one thread")
    done = subprocess.run(
        [str(programs[program]), case], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
