"""What the driver at hand answers to every probe: `python -m tests.softgpu.strictness_report [NAME...]`.

One line each: the name, the answer (a CUresult; a signal as a negative number, or what else went wrong), and `!` with
the recorded one where they differ. With COTENANT_TEST_REAL_GPU=1 it asks NVIDIA's driver, else the software GPU
(COTENANT_NATIVE names the folder of the native files). Probes run in children, so that a crash costs one of them only.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conftest import REAL_GPU, TREE, package_folder
from tests.softgpu.probes import PROBES

IN_THIS_PROCESS = "--in-this-process"
SECONDS = 30.0  # for one probe, with the start of its process


def driver() -> Any:
    """NVIDIA's bindings, initialised."""
    if not REAL_GPU:
        native = Path(os.environ.get("COTENANT_NATIVE") or package_folder() / "native")
        # A later dlopen("libcuda.so.1") finds the library that is loaded under this name already.
        ctypes.CDLL(str(native.absolute() / "softgpu" / "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)
    from cuda.bindings import driver as cuda

    (result,) = cuda.cuInit(0)
    assert int(result) == 0, result
    return cuda


@contextmanager
def primary_context(cuda: Any) -> Iterator[None]:
    """Current meanwhile; a fresh one after a probe that broke it."""
    result, primary = cuda.cuDevicePrimaryCtxRetain(0)
    assert int(result) == 0, result
    cuda.cuCtxSetCurrent(primary)
    try:
        yield
    finally:
        cuda.cuCtxSetCurrent(primary)
        (result,) = cuda.cuCtxSynchronize()
        cuda.cuCtxSetCurrent(None)
        if int(result) != 0:
            cuda.cuDevicePrimaryCtxReset(0)
        cuda.cuDevicePrimaryCtxRelease(0)


def answer_here(names: Sequence[str]) -> None:
    cuda = driver()
    for name in names:
        try:
            with primary_context(cuda):
                answer = str(PROBES[name].run(cuda))
        except Exception as error:  # whatever it is, the others are to be asked
            answer = f"failed: {type(error).__name__} {error}".splitlines()[0]
        print(name, answer, flush=True)


def answers_of_one_child(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """All of them, or those up to the one that ended it."""
    left = list(names)
    command = [sys.executable, "-m", "tests.softgpu.strictness_report", IN_THIS_PROCESS, *left]
    with subprocess.Popen(command, cwd=TREE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        while True:
            watchdog = threading.Timer(SECONDS, child.kill)
            watchdog.start()
            line = child.stdout.readline()
            watchdog.cancel()
            if not line:
                break
            name, answer = line.rstrip("\n").split(" ", 1)
            left.remove(name)
            yield name, answer
    if left:
        yield left[0], str(child.returncode) if child.returncode else "no answer"


def answers(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every probe's answer. On a real GPU those that hand it what is gone get a process each, as they may do damage."""
    together = [name for name in names if not (REAL_GPU and PROBES[name].apart)]
    batches = [[name] for name in names if name not in together]
    while together:
        for name, answer in answers_of_one_child(together):
            together = together[1:]
            yield name, answer
    for batch in batches:
        yield from answers_of_one_child(batch)


def asked(name: str) -> bool:
    """Whether the driver at hand is: one that hangs would keep its GPU busy."""
    return not (REAL_GPU and PROBES[name].hangs)


def agrees(name: str, answer: str) -> bool:
    if REAL_GPU and PROBES[name].crashes:
        return answer.startswith("-")
    return answer == str(PROBES[name].expected)


def report(names: Sequence[str]) -> int:
    folder = tempfile.mkdtemp(prefix="cotenant-test-")
    os.environ.setdefault("COTENANT_SOFTGPU_DIR", folder)
    differing = 0
    for name in (one for one in names if not asked(one)):
        print(name, "hangs: not asked", flush=True)
    names = [one for one in names if asked(one)]
    for name, answer in answers(names):
        same = agrees(name, answer)
        differing += not same
        print(name, answer if same else f"{answer} ! {PROBES[name].expected}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(names)} probes, {differing} differ", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    if IN_THIS_PROCESS in sys.argv:
        answer_here([name for name in sys.argv[1:] if name != IN_THIS_PROCESS])
    else:
        sys.exit(report(sys.argv[1:] or list(PROBES)))
