"""A call without its arguments is refused, as the driver refuses it; it never ends the program."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import RunPython

pytestmark = pytest.mark.skipif(
    os.environ.get("COTENANT_TEST_REAL_GPU") == "1", reason="NVIDIA's driver does not survive some of them"
)

# Every function that the library exports is called with zeros only, with the thread in a context and in none.
CALL_ALL = """
import ctypes, sys
kind, path, names = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
library = ctypes.CDLL(path)
nothing = [ctypes.c_void_p(None)] * 13
def context():
    made = ctypes.c_void_p()
    assert library.cuDevicePrimaryCtxRetain(ctypes.byref(made), 0) == 0 and library.cuCtxSetCurrent(made) == 0
if kind == "nvml":
    assert library.nvmlInit_v2() == 0
    device = ctypes.c_void_p()
    assert library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
    nothing[0] = device
else:
    assert library.cuInit(0) == 0
for name in names:
    if kind == "context":
        context()
    print(name, getattr(library, name)(*nothing), flush=True)
"""
VALUE, CONTEXT, HANDLE, NOT_FOUND, NOT_SUPPORTED = 1, 201, 400, 500, 801
# Zeros mean something to these: device 0, no context, no bytes, or an answer that is not wanted.
MEAN_SOMETHING = re.compile(
    "cuInit|cuCtxSetCurrent|cuCtxGetStreamPriorityRange|cuCtxPopCurrent_v2|cuCtxSynchronize(_v2)?|cuDeviceGraphMemTrim"
    "|cuDevicePrimaryCtxRe(lease|set)_v2|cuMemFree(_v2|Host|Async.*)|cuMem(cpy|set).*|cuStreamSynchronize.*"
)
OF_NO_OBJECT = re.compile(
    "cu(Array|Event|Stream)Destroy.*|cuEvent(Query|Record.*|Synchronize)|cuLaunchKernel(_ptsz)?|cuModuleUnload"
    "|cuStreamWaitEvent.*"
)
OF_NO_CONTEXT = re.compile("cu(Green)?CtxDestroy.*|cuCtxRecordEvent")
# What a program without a context may ask.
WITHOUT_CONTEXT = {"cuInit", "cuCtxSetCurrent", "cuDeviceGraphMemTrim", "cuDevicePrimaryCtxReset_v2"}


def exported(library: Path, prefix: str) -> list[str]:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    )
    names = {line.split()[-1].split("@")[0] for line in listed.stdout.splitlines()}
    return sorted(name for name in names if name.startswith(prefix))


def answers(run_python: RunPython, env: dict[str, str], kind: str, library: Path) -> dict[str, int]:
    names = exported(library, "nvmlDeviceGet" if kind == "nvml" else "cu")
    # These would write into the device that they are given, leave a capture open for the calls behind them, or depend
    # on how far the device is.
    without = ("nvmlDeviceGetCount", "cuStreamBeginCapture_v2", "cuStreamQuery")
    names = [name for name in names if not name.startswith(without)]
    done = run_python(CALL_ALL, env, kind, library, ",".join(names))
    called = dict(line.split() for line in done.stdout.splitlines())
    assert done.returncode == 0 and len(called) == len(names), (list(called)[-1:], done.stderr)
    return {name: int(result) for name, result in called.items()}


def wanted(name: str) -> int:
    for names, answer in ((MEAN_SOMETHING, 0), (OF_NO_OBJECT, HANDLE), (OF_NO_CONTEXT, CONTEXT)):
        if names.fullmatch(name):
            return answer
    return NOT_FOUND if name == "cuMemGetAddressRange_v2" else VALUE


def test_a_call_of_the_driver_with_nothing_is_refused(
    run_python: RunPython, softgpu_env: dict[str, str], native: Path
) -> None:
    found = answers(run_python, softgpu_env, "context", native / "softgpu" / "libcuda.so.1")
    known = {name: result for name, result in found.items() if result != NOT_SUPPORTED}
    assert len(known) > 200 and known == {name: wanted(name) for name in known}


def test_without_a_context_next_to_nothing_succeeds(
    run_python: RunPython, softgpu_env: dict[str, str], native: Path
) -> None:
    found = answers(run_python, softgpu_env, "none", native / "softgpu" / "libcuda.so.1")
    assert {name for name, result in found.items() if result == 0} == WITHOUT_CONTEXT
    assert set(found.values()) == {0, VALUE, CONTEXT, HANDLE, NOT_SUPPORTED}


def test_a_question_to_nvml_that_has_no_place_for_the_answer_is_refused(
    run_python: RunPython, softgpu_env: dict[str, str], native: Path
) -> None:
    found = answers(run_python, softgpu_env, "nvml", native / "softgpu" / "libnvidia-ml.so.1")
    no_power = found.pop("nvmlDeviceGetPowerUsage")
    assert (no_power, set(found.values())) == (3, {2}), found
