"""What the interposer cannot use, it does without: the program runs, and one line on stderr says why."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING

import pytest

from cotenant import segment

if TYPE_CHECKING:
    from tests.conftest import RunPython
    from tests.interposer.conftest import Compile

PROGRAM = """
from soft import Gpu
gpu = Gpu()
for _ in range(3): gpu.launch(gpu.kernel('empty'))
gpu.synchronize()
print('ran')
"""
PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def env(softgpu_env: dict[str, str], native: Path) -> dict[str, str]:
    """Preloaded by hand, as `run` would after its own checks: the interposer meets the trouble itself."""
    segment.ensure(Path(softgpu_env["COTENANT_SEGMENT"]))
    return softgpu_env | {
        "LD_PRELOAD": str(native / "shim" / "libcuda.so.1"),
        "COTENANT_DRIVER": str(native / "softgpu" / "libcuda.so.1"),
        "PYTHONPATH": os.pathsep.join([str(PROGRAMS), softgpu_env["PYTHONPATH"]]),
    }


def missing(path: Path) -> None:
    path.unlink()


def foreign(path: Path) -> None:
    path.write_bytes(b"not a segment " * 1000)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path) -> None:
    os.truncate(path, 8192)


def of_another_version(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(8)
        file.write(struct.pack("<I", 99))


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def test_a_name_that_is_too_long_to_say_leaves_one_line(
    env: dict[str, str], run_python: RunPython, tmp_path: Path
) -> None:
    path = tmp_path.joinpath(*(letter * 250 for letter in "abcd"))
    done = run_python(PROGRAM, env | {"COTENANT_SEGMENT": str(path)})
    assert (done.returncode, done.stdout) == (0, "ran\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("cotenant: ") and "aaa" in line and line.endswith("; running without sharing")
    assert len(line) < 512


@pytest.mark.parametrize("trouble", [missing, foreign, empty, truncated, of_another_version, a_folder])
def test_an_unusable_segment(
    env: dict[str, str], run_python: RunPython, trouble: Callable[[Path], None]
) -> None:
    trouble(Path(env["COTENANT_SEGMENT"]))
    done = run_python(PROGRAM, env)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("cotenant: ") and line.endswith("running without sharing")
    assert env["COTENANT_SEGMENT"] in line


def test_a_full_segment(env: dict[str, str], run_python: RunPython) -> None:
    path = Path(env["COTENANT_SEGMENT"])
    with path.open("r+b") as file:
        for slot in range(segment.SLOTS):
            file.seek(segment.PLACE * (1 + slot))
            file.write(struct.pack("<I", 1))  # the futex word: held by a thread
    done = run_python(PROGRAM, env)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert done.stderr == f"cotenant: {path} has no free slot; running without sharing\n"


def test_a_read_only_segment(env: dict[str, str], run_python: RunPython) -> None:
    path = Path(env["COTENANT_SEGMENT"])
    path.chmod(0o400)
    if os.access(path, os.W_OK):
        pytest.skip("this user may write everything")
    done = run_python(PROGRAM, env)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert len(done.stderr.splitlines()) == 1


def test_no_segment_named(env: dict[str, str], run_python: RunPython) -> None:
    del env["COTENANT_SEGMENT"]
    done = run_python(PROGRAM, env)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    (line,) = done.stderr.splitlines()
    assert "COTENANT_SEGMENT" in line


def test_a_driver_that_cannot_be_opened_is_no_device(
    env: dict[str, str], run_python: RunPython, tmp_path: Path
) -> None:
    env["COTENANT_DRIVER"] = str(tmp_path / "libcuda.so.1")
    done = run_python("import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))", env)
    assert (done.returncode, done.stdout) == (0, "100\n")
    (line,) = done.stderr.splitlines()
    assert str(tmp_path) in line


def test_a_driver_that_is_named_by_nothing_is_looked_for(env: dict[str, str], run_python: RunPython) -> None:
    env["COTENANT_DRIVER"] = ""
    done = run_python("import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))", env)
    assert (
        done.returncode == 0 and done.stdout != "801\n"
    )  # the program itself would be a driver without functions


def test_a_driver_may_call_itself_while_it_is_opened(
    env: dict[str, str], run_python: RunPython, driver_with: Callable[[str], Path]
) -> None:
    """By its exported names, which are ours: there is no device yet."""
    early = """
#include <stdio.h>
__attribute__((constructor)) static void early(void) {
    int (*init)(unsigned) = dlsym(RTLD_DEFAULT, "cuInit");
    printf("%d\\n", init(0)), fflush(stdout);
}
"""
    done = run_python(PROGRAM, env | {"COTENANT_DRIVER": str(driver_with(early))})
    assert (done.returncode, done.stdout, done.stderr) == (0, "100\nran\n", "")


def test_a_stderr_that_is_closed(env: dict[str, str], run_python: RunPython) -> None:
    Path(env["COTENANT_SEGMENT"]).unlink()
    done = run_python("import os; os.close(2)\n" + PROGRAM, env)
    assert (done.returncode, done.stdout) == (0, "ran\n")


def test_a_segment_that_vanishes_under_a_running_program(env: dict[str, str], run_python: RunPython) -> None:
    source = PROGRAM.replace(
        "gpu.synchronize()", "import os; os.unlink(os.environ['COTENANT_SEGMENT']); gpu.synchronize()"
    )
    done = run_python(source + "\ngpu.launch(gpu.kernel('empty')); gpu.synchronize()", env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


def test_a_driver_without_what_we_need_is_passed_through(
    env: dict[str, str], run_python: RunPython, tmp_path: Path
) -> None:
    source, old = tmp_path / "old.c", tmp_path / "libcuda.so.1"
    source.write_text("int cuInit(unsigned f) { return f; }\nint cuLaunchKernel(void) { return 7; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(old)], check=True)
    env["COTENANT_DRIVER"] = str(old)
    done = run_python(
        "import ctypes; l = ctypes.CDLL('libcuda.so.1'); print(l.cuInit(0), l.cuLaunchKernel())", env
    )
    assert (done.returncode, done.stdout) == (0, "0 7\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("cotenant: this driver has no cu")


def test_what_the_driver_does_not_have_is_not_found_by_its_name(
    env: dict[str, str], run_python: RunPython, compiled: Compile
) -> None:
    """numba takes the newest version of a function that it finds."""
    env["COTENANT_DRIVER"] = str(compiled("null_driver", "-shared"))
    source = """
import ctypes
library = ctypes.CDLL('libcuda.so.1'); assert library.cuInit(0) == 0
for base in ('cuEventElapsedTime', 'cuMemHostRegister', 'cuStreamQuery', 'cuCtxSynchronize'):
    print(*(base + variant for variant in ('_v2', '') if hasattr(library, base + variant)))
"""
    done = run_python(source, env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["cuEventElapsedTime", "cuMemHostRegister_v2", "cuStreamQuery", ""]


def test_a_child_of_a_process_that_has_given_up_is_a_tenant_where_it_can_be(
    compiled: Compile, native: Path, plain_env: dict[str, str]
) -> None:
    # A real driver, or the software one, is of no use in a child that was forked after it; this one is.
    path = Path(plain_env["COTENANT_SEGMENT"])
    env = plain_env | {
        "LD_PRELOAD": str(native / "shim" / "libcuda.so.1"),
        "COTENANT_DRIVER": str(compiled("null_driver", "-shared")),
    }
    source = """
import ctypes, os
driver = ctypes.CDLL('libcuda.so.1')
def launch(): assert driver.cuLaunchKernel(*map(ctypes.c_void_p, [0] * 11)) == 0
driver.cuInit(0); launch()
print('without'); input()
child = os.fork()
if child == 0:
    launch(); print(os.getpid()); input(); os._exit(0)
os.waitpid(child, 0)
"""
    with subprocess.Popen(
        [sys.executable, "-u", "-c", source], env=env, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True
    ) as parent:
        assert parent.stdin and parent.stdout and parent.stderr
        assert parent.stdout.readline() == "without\n"
        segment.ensure(path)
        parent.stdin.write("\n")
        parent.stdin.flush()
        child = int(parent.stdout.readline())
        assert [tenant.pid for tenant in segment.read(path).tenants] == [child]
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert parent.wait(timeout=60) == 0
        assert len(parent.stderr.read().splitlines()) == 1
