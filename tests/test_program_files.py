"""What `run` reads of a program before it starts it: does it link to functions that only a newer driver has?"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant.launch import environment, execute

if TYPE_CHECKING:
    from tests.conftest import Run


@pytest.fixture
def newer_driver(native: Path, tmp_path: Path, softgpu_env: dict[str, str]) -> Callable[[str], Path]:
    """The software GPU with a function that no interposer knows; compiles a program that is linked with it."""
    compiler, folder = shutil.which("gcc"), tmp_path / "driver"
    if not compiler:
        pytest.skip("no compiler")
    folder.mkdir()
    (folder / "softgpud").touch()  # a software GPU's segment need not be in memory
    library, software = folder / "libcuda.so.1", (native / "softgpu" / "libcuda.so.1").resolve()
    # It is found by its path: by its name it would be this library.
    stub = folder / "stub.so"
    build = [compiler, "-shared", "-fPIC", "-Wl,--no-as-needed", "-x", "c", "-"]
    subprocess.run([*build, f"-Wl,-soname,{software}", "-o", stub], input="", text=True, check=True)
    newer = "int cuFromTheFuture(void) { return 42; } int cuInit(unsigned flags) { return 0; }"
    words: list[str | Path] = [*build, "-Wl,-soname,libcuda.so.1", "-o", library, "-x", "none", stub]
    subprocess.run(words, input=newer, text=True, check=True)
    softgpu_env |= {"COTENANT_DRIVER": str(library), "LD_LIBRARY_PATH": str(folder)}

    def compiled(source: str) -> Path:
        program = tmp_path / "program"
        options = ["-Wl,-z,now", "-Wl,--allow-shlib-undefined"]
        words: list[str | Path] = [compiler, *options, "-x", "c", "-", "-o", program, "-x", "none", library]
        subprocess.run(words, input=source, text=True, check=True)
        return program

    return compiled


def test_a_program_that_links_to_a_newer_function_of_the_driver_runs_without_sharing(
    cotenant: Run, softgpu_env: dict[str, str], newer_driver: Callable[[str], Path], tmp_path: Path
) -> None:
    """With the interposer the loader would not start it."""
    program = newer_driver("int cuFromTheFuture(void); int main(void) { return cuFromTheFuture(); }")
    done = cotenant("run", "--", str(program), env=softgpu_env)
    assert done.returncode == 42, done.stderr
    why = f"{program} links to cuFromTheFuture, which only the driver has, not this version of Cotenant"
    assert f"cotenant: {why}: running without sharing; hint: install a newer Cotenant" in done.stderr
    trace = tmp_path / "job.trace"
    for words in (["run", "--require"], ["record", "-o", str(trace)]):
        refused = cotenant(*words, "--", str(program), env=softgpu_env)
        assert refused.returncode == 1 and why in refused.stderr
    assert not trace.exists()


def test_a_program_that_links_to_functions_that_we_know_is_a_tenant(
    cotenant: Run, softgpu_env: dict[str, str], newer_driver: Callable[[str], Path]
) -> None:
    program = newer_driver("int cuInit(unsigned); int main(void) { return cuInit(0); }")
    done = cotenant("run", "--", str(program), env=softgpu_env)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_file_says_of_itself_nothing_stops_run(seed: int, native: Path, tmp_path: Path) -> None:
    """It is the kernel's to say what is wrong with it."""
    draw, file = random.Random(seed), tmp_path / "program"
    content = bytearray(Path("/bin/true").read_bytes())
    for _ in range(draw.randrange(1, 40)):
        place = draw.randrange(6, 64 if draw.random() < 0.5 else 2000)
        content[place] = draw.choice((0, 1, 0x7F, 0xFF, draw.randrange(256)))
    file.write_bytes(content[: draw.choice((len(content), draw.randrange(5, 1000)))])
    assert execute.linked(str(file)) in ("", "statically linked", "linked with musl")
    shim = native / "shim" / "libcuda.so.1"
    assert environment.only_the_drivers(file, shim, native / "softgpu" / "libcuda.so.1") == ""
