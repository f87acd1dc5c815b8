"""C++ programs made of a test's source and a room's, for what Python cannot reach.

COTENANT_TEST_SANITIZE=thread compiles them all with a sanitizer (`make sanitize`). COTENANT_TEST_PROGRAMS names a
folder that keeps them, and COTENANT_TEST_CXX another compiler: they are made here for a machine that has none
(`make test-16k`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

TREE = Path(__file__).parents[1]
INCLUDED = (".h", ".inc", ".cpp")  # a test may include what it tests
UNUSED_SECONDS = 86400.0

# The room of that name, without what Python calls.
WIRE = tuple(
    f"native/wire/{path.name}"
    for path in sorted((TREE / "native" / "wire").glob("*.cpp"))
    if not path.stem.endswith("_c")
)
# What moves memory to the host, with small blocks there; the same for all tests of it, so that it is compiled once.
EVICTION = tuple(
    f"native/tenant/memory/{name}.cpp" for name in ("eviction", "host_pool", "fresh_blocks", "host_memory")
)
SMALL_HOST_BLOCKS = "HOST_BLOCK_BYTES=(uint64_t{2}<<20)"


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
    folder: Path,
    *sources: str,
    define: str | None = None,
    headers: Path | None = None,
    optimise: bool = False,
    sanitize: str | None = None,
) -> Path:
    """The program in `folder`, from sources named relative to the project; `define` is a macro, NAME=VALUE.

    Not optimised unless asked for: compiling mostly takes longer than running. What was compiled is kept in build/test
    until a source or a header changes, so that tests side by side make it once; the sources of one program are compiled
    side by side. With `sanitize` the compiler's sanitizer of that name is in it; the test is skipped where there is
    none.
    """
    kept = os.environ.get("COTENANT_TEST_PROGRAMS")
    sanitize = sanitize or os.environ.get("COTENANT_TEST_SANITIZE")
    program = folder / "program"
    if kept:
        digest = hashlib.sha256(repr((sources, define, sanitize)).encode()).hexdigest()[:8]
        program = Path(kept) / f"{Path(sources[0]).stem}-{digest}"
        if program.exists():
            return program
    compiler = shutil.which(os.environ.get("COTENANT_TEST_CXX", "g++"))
    if not compiler:
        pytest.skip("no C++ compiler")
    options = [
        "-std=c++17",
        "-O1" if optimise or sanitize else "-O0",
        "-g",
        "-Wall",
        "-Wextra",
        "-ffp-contract=off",
        "-pthread",
    ]
    options += [f"-I{TREE / 'native'}"]
    options += [f"-D{define}"] if define else []
    options += [f"-I{headers}", "-Wno-deprecated-declarations"] if headers else []
    sanitizer = [f"-fsanitize={sanitize}"] if sanitize else []
    if sanitize:
        tried = folder / "tried"
        trial = [compiler, *sanitizer, "-x", "c++", "-", "-o", str(tried)]
        source = "int main() { return 0; }"
        made = subprocess.run(trial, input=source, text=True, capture_output=True, check=False)
        # It may be there and not run: some kernels place programs where it wants to be.
        if made.returncode or subprocess.run([tried], capture_output=True, check=False).returncode:
            pytest.skip(f"no {sanitize} sanitizer")
    static = ["-static"] if kept else []
    every = (*options, *sanitizer)
    objects = compiled_all(compiler, sources, every)
    link = (compiler, "-pthread", *static, *sanitizer, *objects)
    if kept:
        subprocess.run([*link, "-o", str(program)], check=True)
        return program
    return made_once(link, Path(sources[0]).stem)


def compiled_all(compiler: str, sources: tuple[str, ...], options: tuple[str, ...]) -> list[str]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [str(made) for made in pool.map(lambda source: compiled(compiler, source, options), sources)]


def compiled(compiler: str, source: str, options: tuple[str, ...]) -> Path:
    return made_once((compiler, *options, "-c", str(TREE / source)), f"{Path(source).stem}.o", TREE / source)


def made_once(command: tuple[str, ...], name: str, source: Path | None = None) -> Path:
    """What the command writes to the file after `-o`. Whoever wants it meanwhile waits for it."""
    of_cuda = [
        (place / "cuda.h").stat().st_mtime_ns for place in folders_of(command) if (place / "cuda.h").exists()
    ]
    digest = hashlib.sha256(repr((command, all_headers(), of_cuda, version(command[0]))).encode())
    digest.update(source.read_bytes() if source else b"")
    folder = TREE / "build" / "test"
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{digest.hexdigest()[:16]}-{name}"
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            forget_unused(folder)
            unfinished = made.with_suffix(".unfinished")
            subprocess.run([*command, "-o", str(unfinished)], check=True)
            unfinished.replace(made)
        os.utime(made)
    return made


def folders_of(command: tuple[str, ...]) -> list[Path]:
    return [Path(word.removeprefix("-I")) for word in command if word.startswith("-I")]


@cache
def all_headers() -> str:
    """Of everything that a source may include."""
    files = [
        one
        for folder in ("native", "tests")
        for one in (TREE / folder).rglob("*.*")
        if one.suffix in INCLUDED
    ]
    return hashlib.sha256(b"".join(one.read_bytes() for one in sorted(files))).hexdigest()


@cache
def version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout


@cache
def forget_unused(folder: Path) -> None:
    for one in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - one.stat().st_mtime > UNUSED_SECONDS:
                one.unlink()
