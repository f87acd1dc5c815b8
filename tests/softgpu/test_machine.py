"""The device process that all clients share: it comes with the first, goes with the last, and survives none of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import REAL_GPU, RunPython

pytestmark = pytest.mark.skipif(REAL_GPU, reason="about the software GPU's own process")

PROLOGUE = """
import sys
from cuda.bindings import driver as cuda

def check(answer):
    result, *values = answer
    if result != cuda.CUresult.CUDA_SUCCESS:
        raise SystemExit(f"failed: {result.name}")
    return values[0] if len(values) == 1 else values

check(cuda.cuInit(0))
device = check(cuda.cuDeviceGet(0))
context = check(cuda.cuDevicePrimaryCtxRetain(device))
check(cuda.cuCtxSetCurrent(context))
text = b"softgpu 1\\nkernel burn time=10000us sms=all\\nkernel age time=1000000us sms=all\\n\\0"
module = check(cuda.cuModuleLoadData(text))
burn, age = (check(cuda.cuModuleGetFunction(module, name)) for name in (b"burn", b"age"))
stream = check(cuda.cuStreamCreate(0))

def launch(kernel=burn):
    check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0))

def ready():
    print("ready", flush=True)
    sys.stdin.readline()
"""


def softgpuds(env: dict[str, str]) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if (
            len(command) > 1
            and command[0].endswith(b"/softgpud")
            and command[1].decode() == env["COTENANT_SOFTGPU_DIR"]
        ):
            found.append(int(entry.name))
    return found


def wait_until_gone(env: dict[str, str]) -> None:
    deadline = time.monotonic() + 30
    while softgpuds(env):
        assert time.monotonic() < deadline, "softgpud did not end after its last client"
        time.sleep(0.02)


@contextmanager
def client(source: str, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A client that has said "ready"; it goes on when something is written to it."""
    with subprocess.Popen(
        [sys.executable, "-c", PROLOGUE + source],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            assert child.stdout and child.stdout.readline() == "ready\n", child.communicate()
            yield child
        finally:
            child.kill()


def test_it_comes_with_the_first_client_and_goes_with_the_last(softgpu_env: dict[str, str]) -> None:
    with client("ready()", softgpu_env), client("ready()", softgpu_env):
        assert len(softgpuds(softgpu_env)) == 1
    wait_until_gone(softgpu_env)
    assert not list(Path(softgpu_env["COTENANT_SOFTGPU_DIR"]).iterdir())


def test_many_first_clients_start_one(softgpu_env: dict[str, str]) -> None:
    # Forked before any of them uses the GPU, all let go at one moment; they stay until their input ends.
    say = r"import os; os.write(1, b'ready\n'); sys.stdin.readline()"  # in one write: they share a pipe
    client = PROLOGUE + "launch(); check(cuda.cuCtxSynchronize()); " + say
    program = f"""
import os
from cuda.bindings import driver
start, hold = os.pipe()
children = []
for _ in range(12):
    children.append(os.fork())
    if children[-1] == 0:
        os.close(hold)
        os.read(start, 1)
        exec({client!r}, {{}})
        raise SystemExit(0)
os.close(hold)
print(*(os.waitpid(child, 0)[1] for child in children))
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=softgpu_env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout
        try:
            assert [parent.stdout.readline() for _ in range(12)] == ["ready\n"] * 12
            assert len(softgpuds(softgpu_env)) == 1
        finally:
            statuses, _ = parent.communicate("")
    assert statuses.split() == ["0"] * 12


def test_another_configuration_is_another_machine(softgpu_env: dict[str, str]) -> None:
    with (
        client("ready()", softgpu_env),
        client("ready()", softgpu_env | {"COTENANT_SOFTGPU_SHARING": "all-at-once"}),
        client("ready()", softgpu_env | {"COTENANT_SOFTGPU": "l4"}),
    ):
        assert len(softgpuds(softgpu_env)) == 3


def test_it_takes_nothing_from_the_process_that_started_it(
    softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    opened = tmp_path / "opened by the client"
    source = f"import os; os.dup2(os.open({str(opened)!r}, os.O_CREAT | os.O_RDWR), 77, inheritable=True)"
    env = softgpu_env | {"A_SETTING_OF_THE_CLIENT": "1"}
    child = subprocess.Popen(
        [sys.executable, "-c", source + PROLOGUE + "ready()"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout and child.stdout.readline() == "ready\n"
    (pid,) = softgpuds(env)
    process = Path("/proc") / str(pid)
    files = [os.readlink(fd) for fd in (process / "fd").iterdir()]
    assert str(opened) not in files
    assert files.count("/dev/null") == 3
    assert os.readlink(process / "cwd") == "/"
    assert b"A_SETTING_OF_THE_CLIENT" not in (process / "environ").read_bytes()
    assert os.getpgid(pid) != os.getpgid(child.pid)
    child.communicate("\n")


def test_a_killed_client_frees_its_memory_and_its_turn(
    softgpu_env: dict[str, str], run_python: RunPython
) -> None:
    hog = "check(cuda.cuMemAlloc(900 << 20)); [launch() for _ in range(500)]; ready()"
    measure = (
        PROLOGUE + "print(check(cuda.cuMemGetInfo())[0] >> 20); launch(); check(cuda.cuCtxSynchronize())"
    )
    with client("ready()", softgpu_env):  # keeps the machine
        with client(hog, softgpu_env) as child:
            beside = run_python(measure, softgpu_env)
            child.kill()
            child.wait()
        alone = run_python(measure, softgpu_env)
    assert beside.returncode == alone.returncode == 0, beside.stderr + alone.stderr
    assert int(beside.stdout) <= 124
    assert int(alone.stdout) > 1000


def test_a_client_of_a_killed_softgpud_gets_an_error_and_does_not_hang(
    softgpu_env: dict[str, str], run_python: RunPython
) -> None:
    source = "[launch() for _ in range(500)]; ready(); print(cuda.cuCtxSynchronize()[0].name)"
    with client(source, softgpu_env) as child:
        (pid,) = softgpuds(softgpu_env)
        os.kill(pid, signal.SIGKILL)
        out, _ = child.communicate("\n", timeout=60)
    assert out == "CUDA_ERROR_UNKNOWN\n"
    again = run_python(PROLOGUE + "launch(); check(cuda.cuCtxSynchronize())", softgpu_env)
    assert again.returncode == 0, again.stderr


def test_a_program_ends_with_its_own_status_while_work_is_queued(
    softgpu_env: dict[str, str], run_python: RunPython
) -> None:
    """Eight minutes of work are queued when it ends: whoever waits for them overstays."""
    ended = run_python(PROLOGUE + "[launch(age) for _ in range(500)]; sys.exit(17)", softgpu_env)
    assert ended.returncode == 17, ended.stderr
    wait_until_gone(softgpu_env)


@pytest.mark.parametrize("name", ["COTENANT_SOFTGPU", "COTENANT_SOFTGPU_SHARING"])
def test_a_wrong_configuration_is_no_machine(
    softgpu_env: dict[str, str], run_python: RunPython, name: str
) -> None:
    ended = run_python(PROLOGUE, softgpu_env | {name: "nonsense"})
    assert ended.returncode == 1 and "failed: CUDA_ERROR" in ended.stderr
    assert not softgpuds(softgpu_env)


def test_a_folder_that_others_can_write_to_is_refused(
    softgpu_env: dict[str, str], run_python: RunPython, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    ended = run_python(PROLOGUE, softgpu_env | {"COTENANT_SOFTGPU_DIR": str(shared)})
    assert ended.returncode == 1 and "failed: CUDA_ERROR" in ended.stderr


def test_a_long_path_will_do(softgpu_env: dict[str, str], run_python: RunPython, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)
    env = softgpu_env | {"COTENANT_SOFTGPU_DIR": str(folder)}
    ended = run_python(PROLOGUE + "launch(); check(cuda.cuCtxSynchronize())", env)
    assert ended.returncode == 0, ended.stderr
    wait_until_gone(env)


def test_a_colon_in_a_folders_name_is_no_instance(
    native: Path, softgpu_env: dict[str, str], run_python: RunPython, tmp_path: Path
) -> None:
    folder = tmp_path / "with:colon"
    folder.mkdir()
    (folder / "real.gpu").write_bytes((native / "devices" / "small.gpu").read_bytes())
    (tmp_path / "link.gpu").symlink_to(folder / "real.gpu")
    env = softgpu_env | {"COTENANT_SOFTGPU": str(tmp_path / "link.gpu")}
    ended = run_python(PROLOGUE + "launch(); check(cuda.cuCtxSynchronize())", env)
    assert ended.returncode == 0, ended.stderr
    wait_until_gone(env)


def test_a_forked_child_leaves_the_connection_alone(
    softgpu_env: dict[str, str], run_python: RunPython
) -> None:
    ended = run_python(
        PROLOGUE
        + """
import os
launch()
pid = os.fork()
if pid == 0:
    result = cuda.cuCtxSynchronize()[0]
    os._exit(0 if result == cuda.CUresult.CUDA_ERROR_NOT_INITIALIZED else 1)
assert os.waitpid(pid, 0)[1] == 0
launch()
check(cuda.cuCtxSynchronize())
""",
        softgpu_env,
    )
    assert ended.returncode == 0, ended.stderr
