"""C++ programs made of a test's source and a room's, for what Python cannot reach."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

TREE = Path(__file__).parents[1]


def compile_program(folder: Path, *sources: str, define: str | None = None) -> Path:
    """The program in `folder`, from sources named relative to the project; `define` is a macro, NAME=VALUE."""
    compiler = shutil.which("g++")
    if not compiler:
        pytest.skip("no C++ compiler")
    program = folder / "program"
    options = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", f"-I{TREE / 'native'}", "-pthread"]
    options += [f"-D{define}"] if define else []
    subprocess.run([compiler, *options, *(str(TREE / s) for s in sources), "-o", str(program)], check=True)
    return program
