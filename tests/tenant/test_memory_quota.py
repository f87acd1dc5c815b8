"""The memory limit by itself: it holds in a race, and whatever happens to who took memory, nothing stays taken."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import WIRE, compile_program

GiB = 1 << 30
NONE = (1 << 64) - 1


@pytest.fixture(scope="module")
def quota(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("quota"),
        "tests/tenant/memory_quota.cpp",
        "native/tenant/amounts.cpp",
        *WIRE,
    )


@pytest.mark.parametrize("case", ["faults", "race", "mending", "family", "garbage"])
def test_taking_and_giving(quota: Path, tmp_path: Path, case: str) -> None:
    command = [str(quota), str(tmp_path / "segment"), case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("20G", 20 * GiB),
        ("1.5G", GiB * 3 // 2),
        ("512M", GiB // 2),
        ("2T", 2048 * GiB),
        ("1048576", 1 << 20),
        ("30%", 30 * GiB),
        ("12.5%", 25 * GiB // 2),
        ("", NONE),
        ("none", NONE),
        ("0", NONE),
        ("-3G", NONE),
        ("101%", NONE),
        ("20X", NONE),
        ("nan", NONE),
        ("1e40", NONE),
    ],
)
def test_what_stands_in_the_environment(quota: Path, text: str, limit: int) -> None:
    command = [str(quota), "-", "limit", text, str(100 * GiB)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) == limit
