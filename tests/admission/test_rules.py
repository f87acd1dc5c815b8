"""The modelled rules, as pure arithmetic: what each lets go, and what it does to what runs below production."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compiling import compile_program


def test_rules(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "tests/admission/rules.cpp")
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
