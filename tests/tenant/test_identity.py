"""A container's identity file counts for every thread, whichever asks first."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program


@pytest.mark.parametrize("sanitize", [None, "thread"])
def test_threads_that_ask_at_once_are_all_told(tmp_path: Path, sanitize: str | None) -> None:
    file = tmp_path / "identity"
    file.write_text("COTENANT_CLASS=opportunistic\n")
    file.chmod(0o644)
    program = compile_program(
        tmp_path,
        "tests/tenant/identity.cpp",
        "native/tenant/identity_file.cpp",
        define=f'COTENANT_IDENTITY_FILE="{file}"',
        sanitize=sanitize,
    )
    # The environment is not asked where there is such a file.
    env = os.environ | {"COTENANT_CLASS": "production", "COTENANT_WEIGHT": "7"}
    done = subprocess.run([str(program)], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
