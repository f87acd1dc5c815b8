"""C++ programs made of a test's source and a room's, for what Python cannot reach."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

TREE = Path(__file__).parents[1]


def cuda_headers() -> Path:
    """The folder of cuda.h, as CMakeLists.txt looks for it; the test is skipped where there is none."""
    places = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    places += [Path("/usr/local/cuda"), *TREE.glob(".venv/lib/python*/site-packages/nvidia/c*")]
    nvidia = importlib.util.find_spec("nvidia")
    for folder in nvidia.submodule_search_locations or () if nvidia else ():
        places += sorted(Path(folder).glob("c*"))
    for place in places:
        if (place / "include" / "cuda.h").exists():
            return place / "include"
    pytest.skip("no cuda.h")


def compile_program(
    folder: Path, *sources: str, define: str | None = None, headers: Path | None = None
) -> Path:
    """The program in `folder`, from sources named relative to the project; `define` is a macro, NAME=VALUE."""
    compiler = shutil.which("g++")
    if not compiler:
        pytest.skip("no C++ compiler")
    program = folder / "program"
    options = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-ffp-contract=off", "-pthread"]
    options += [f"-I{TREE / 'native'}"]
    options += [f"-D{define}"] if define else []
    options += [f"-I{headers}", "-Wno-deprecated-declarations"] if headers else []
    subprocess.run([compiler, *options, *(str(TREE / s) for s in sources), "-o", str(program)], check=True)
    return program
