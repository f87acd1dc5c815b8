"""`cotenant ctl` says what it cannot do; that it does what it can is seen in tests/interposer/test_gates.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from tests.segments import Written

if TYPE_CHECKING:
    from tests.conftest import Run


@pytest.fixture
def env(plain_env: dict[str, str]) -> dict[str, str]:
    written = Written()
    written.tenant(3, pid=4711, name=b"finetune")
    written.tenant(5, pid=4712, owner=segment.OWNER_DIED | 4712)
    written.to(Path(plain_env["COTENANT_SEGMENT"]))
    return plain_env


@pytest.mark.parametrize("pid", ["1", "4712"])
def test_a_process_that_is_no_tenant(cotenant: Run, env: dict[str, str], pid: str) -> None:
    done = cotenant("ctl", pid, "--class", "standard", env=env)
    assert done.returncode == 1
    assert done.stderr == f"error: no tenant has the process number {pid}\nhint: there are 4711 (finetune)\n"


def test_no_segment(cotenant: Run, plain_env: dict[str, str]) -> None:
    done = cotenant("ctl", "1", "--class", "standard", env=plain_env)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "hint: there are no tenants")


def test_a_foreign_segment_is_left_alone(cotenant: Run, plain_env: dict[str, str]) -> None:
    path = Path(plain_env["COTENANT_SEGMENT"])
    path.write_bytes(b"something else" * 100)
    done = cotenant("ctl", "1", "--class", "standard", env=plain_env)
    assert done.returncode == 1 and "not a Cotenant segment" in done.stderr
    assert path.read_bytes() == b"something else" * 100


def test_a_tenant_that_does_not_answer(cotenant: Run, env: dict[str, str]) -> None:
    done = cotenant("ctl", "4711", "--class", "production", env=env)
    assert done.returncode == 1 and "does not answer" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["4711"], "say what: --class"),
        (["4711", "--class", "prodution"], "did you mean 'production'?"),
        (["--class", "standard"], ""),
        (["finetune", "--class", "standard"], ""),
    ],
)
def test_bad_words(cotenant: Run, env: dict[str, str], arguments: list[str], hint: str) -> None:
    done = cotenant("ctl", *arguments, env=env)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and hint in done.stderr
