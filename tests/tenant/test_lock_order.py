"""The order of the tenant's locks (native/tenant/lock_order.h): a build that checks it says who breaks it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program

PROGRAM = "tests/tenant/lock_order.cpp"


def run(program: Path, what: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, what], capture_output=True, text=True, timeout=60, check=False)


def test_a_wrong_order_ends_the_program_and_is_named(tmp_path: Path) -> None:
    program = compile_program(tmp_path, PROGRAM, define="COTENANT_CHECK_LOCKS")
    right = run(program, "right")
    assert (right.returncode, right.stderr) == (0, "")
    for what in ("wrong", "after a try"):
        done = run(program, what)
        assert done.returncode < 0
        assert "membership" in done.stderr.split(" is taken while ")[0]
        assert "ledger" in done.stderr.split(" is taken while ")[1]


@pytest.mark.parametrize("what", ["right", "wrong", "after a try"])
def test_what_is_released_checks_nothing(tmp_path: Path, what: str) -> None:
    done = run(compile_program(tmp_path, PROGRAM), what)
    assert (done.returncode, done.stderr) == (0, "")
