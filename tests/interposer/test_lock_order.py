"""The interposer takes its locks in the order of native/tenant/lock_order.h: a build that checks it finds nothing.

`make check-locks` runs all tests of the interposer on that build.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import TREE, package_folder

if TYPE_CHECKING:
    from tests.conftest import Run
    from tests.interposer.conftest import Tenant

OBJECTION = b"cotenant: lock order:"

# What takes more than one lock: memory of every kind, graphs with gates, captures, contexts that end, forks.
PROGRAM = """
import os, threading
from soft import Gpu, check, driver
from memory_ways import WAYS
gpu = Gpu()
kernel = gpu.kernel('empty')
# While a thread captures, CUDA forbids the others to allocate, to free and to wait.
capturing = threading.Lock()

def work():
    gpu.use()
    stream = gpu.stream()
    for way in WAYS.values():
        with capturing:
            give_back = way(3 << 20)
            gpu.launch(kernel, stream)
            give_back()
    check(driver.cuStreamDestroy(stream))

def graphs():
    gpu.use()
    stream = gpu.stream()
    for _ in range(2):
        with capturing:
            check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
            for _ in range(200):
                gpu.launch(kernel, stream)
            graph = check(driver.cuStreamEndCapture(stream))
        executable = check(driver.cuGraphInstantiate(graph, 0))
        check(driver.cuGraphExecUpdate(executable, graph))
        with capturing:
            check(driver.cuGraphLaunch(executable, stream))
            check(driver.cuStreamSynchronize(stream))
            check(driver.cuGraphExecDestroy(executable))

def contexts():
    for _ in range(3):
        with capturing:
            context = check(driver.cuCtxCreate(None, 0, gpu.device))
            check(driver.cuMemAlloc(1 << 20))
            check(driver.cuMemsetD8(check(driver.cuMemAlloc(3 << 20)), 1, 3 << 20))
            check(driver.cuCtxDestroy(context))

failed = []
threading.excepthook = failed.append
threads = [threading.Thread(target=act) for act in (work, graphs, contexts)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failed, failed
gpu.use()
kept = check(driver.cuMemAlloc(3 << 20))
check(driver.cuIpcGetMemHandle(kept))
if (child := os.fork()) == 0: os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print('ready', flush=True)
input()
check(driver.cuMemFree(kept))
check(driver.cuDevicePrimaryCtxReset(gpu.device))
"""


@pytest.fixture
def checking(native: Path, tmp_path: Path) -> Path:
    """The native files, with an interposer that ends the program where the order is wrong."""
    if not (TREE / ".venv" / ".tools-installed").exists():
        pytest.skip("no tools to build with")
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    # `make test` has made it before; then this takes a second.
    subprocess.run(
        ["make", "--silent", "lint-interposer"], cwd=TREE, env=env, check=True, stdout=subprocess.DEVNULL
    )
    library = TREE / "build" / "lint" / "native" / "shim" / "lib" / "libcuda.so.1"
    assert OBJECTION in library.read_bytes()
    folder = tmp_path / "native"
    shutil.copytree(native, folder)
    shutil.copy(library, folder / "shim")
    return folder


def test_what_is_installed_checks_nothing() -> None:
    library = package_folder() / "native" / "shim" / "libcuda.so.1"
    if not library.exists():
        pytest.skip("the native part is not built")
    assert OBJECTION not in library.read_bytes()


# In one test: two of them side by side would build at once.
def test_memory_graphs_contexts_and_forks_of_several_threads(
    tenant: Callable[..., Tenant], company: Tenant, cotenant: Run, checking: Path, tmp_path: Path
) -> None:
    for recorded in ({}, {"COTENANT_RECORD": str(tmp_path / "trace")}):
        told = {"COTENANT_NATIVE": str(checking), "COTENANT_MEMORY": "1G", **recorded}
        job = tenant("opportunistic", PROGRAM, **told)
        assert job.process and job.hear() == "ready"
        for command in ("pause", "resume"):
            done = cotenant(command, str(job.process.pid), env=job.env)
            assert done.returncode == 0, done.stderr
        job.say("go on")
        job.finish()
    company.say("")
    company.finish()
