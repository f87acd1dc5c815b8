"""Building a cluster's programs stops by itself where there is not enough time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kubernetes import build
from tests.kubernetes.build import Allowance

GO = """#!/bin/sh
[ "$1" = build ] || exit 0
sleep 1000
"""


def test_every_program_has_an_estimate() -> None:
    assert build.COLD_SECONDS.keys() == build.programs().keys()


def test_a_build_that_would_come_too_late_is_given_up_after_its_first_part() -> None:
    whole = build.needed()
    slow = Allowance(1500, time.monotonic() - 10 * build.COLD_SECONDS["etcd"])
    with pytest.raises(SystemExit, match="minutes here, and 25 are allowed"):
        slow.check(["etcd"], whole)
    Allowance(1500, time.monotonic() - 0.5 * build.COLD_SECONDS["etcd"]).check(["etcd"], whole)
    Allowance(since=time.monotonic() - 1e6).check(["etcd"], whole)


def test_a_compiler_that_does_not_end_is_ended(tmp_path: Path) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(GO)
    go.chmod(0o755)
    done = subprocess.run(
        [
            sys.executable,
            str(Path(build.__file__)),
            "--into",
            str(tmp_path / "into"),
            "--seconds",
            "1",
            "etcd",
        ],
        env=os.environ | {"PATH": f"{go.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1 and "not all programs are built within the time" in done.stderr
