"""The interposer's assembly, for each machine: run here where it fits, else under qemu's emulation of a process."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cotenant.launch.architecture import ARCHITECTURES, HERE, Architecture

TREE = Path(__file__).parents[1]


def how_to_run(machine: Architecture) -> tuple[str, list[str]]:
    """A compiler for that machine, and what runs its programs."""
    if machine is HERE:
        compiler, runner = shutil.which("g++"), [""]
    else:
        compiler = shutil.which(f"{machine.name}-linux-gnu-g++")
        runner = [found for name in ("-static", "") if (found := shutil.which(f"qemu-{machine.name}{name}"))]
    if not compiler or not runner:
        pytest.skip(f"no compiler or no qemu-user for {machine.name}")
    return compiler, [part for part in runner[:1] if part]


@pytest.mark.parametrize("machine", ARCHITECTURES, ids=lambda machine: machine.name)
def test_a_trampoline_keeps_every_argument_and_can_be_unwound(
    machine: Architecture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, runner = how_to_run(machine)
    monkeypatch.syspath_prepend(str(TREE / "native" / "codegen"))
    trampolines = importlib.import_module("trampolines")
    forward = tmp_path / "forward.S"
    forward.write_text(trampolines.assembly(machine.name, ["cuFirst", "cuSecond"]))
    sources = [
        TREE / "tests" / "entry" / "program.cpp",
        TREE / "tests" / "entry" / f"{machine.name}.S",
        TREE / "native" / "shim" / "entry" / f"{machine.name}.S",
        forward,
    ]
    options = ["-std=c++17", "-O1", "-static", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *options, *sources, "-o", tmp_path / "program"], check=True)
    done = subprocess.run(
        [*runner, tmp_path / "program"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    steps = re.fullmatch(r"(\d+) steps\n", done.stdout)
    assert steps
    # Only x86 lets a program step itself; qemu does not.
    assert int(steps[1]) > 100 or machine.name != "x86_64" or runner
