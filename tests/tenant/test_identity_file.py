"""Settings from an administrator's file instead of the environment (native/tenant/identity_file.h)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program

FROM_FILE, FROM_ENVIRONMENT = ["opportunistic", "-", "-"], ["production", "mine", "-"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("identity_file"),
        "tests/tenant/identity_file.cpp",
        "native/tenant/identity_file.cpp",
        define='COTENANT_IDENTITY_FILE="identity"',
    )


def settings(program: Path, folder: Path) -> list[str]:
    done = subprocess.run(
        [program, "COTENANT_CLASS", "COTENANT_NAME", "COTENANT"],
        cwd=folder,
        env={"COTENANT_CLASS": "production", "COTENANT_NAME": "mine"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("mode", "told"),
    [(0o644, FROM_FILE), (0o444, FROM_FILE), (0o664, FROM_ENVIRONMENT), (0o646, FROM_ENVIRONMENT)],
)
def test_a_file_that_only_its_owner_may_write_counts_alone(
    program: Path, tmp_path: Path, mode: int, told: list[str]
) -> None:
    file = tmp_path / "identity"
    file.write_text("COTENANT_CLASSES=2\nCOTENANT_CLASS=opportunistic\n")
    file.chmod(mode)
    assert settings(program, tmp_path) == told


@pytest.mark.parametrize("kind", ["nothing", "pipe", "folder"])
def test_what_is_no_file_is_no_identity(program: Path, tmp_path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(tmp_path / "identity")
    elif kind == "folder":
        (tmp_path / "identity").mkdir()
    assert settings(program, tmp_path) == FROM_ENVIRONMENT
