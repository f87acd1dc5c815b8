"""What all tests share: the native files, a software GPU of their own, and children with a time limit.

With COTENANT_TEST_REAL_GPU=1 the same tests run on the machine's NVIDIA GPU instead.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.waiting import PATIENCE

pytest_plugins = ["tests.evidence"]

REAL_GPU = os.environ.get("COTENANT_TEST_REAL_GPU") == "1"
TREE = Path(__file__).resolve().parent.parent
CHILD_SECONDS = 60.0

# No test reads this machine's or this user's settings.
NO_FILES = {"COTENANT_USER_CONFIG": "", "COTENANT_MACHINE_CONFIG": ""}
os.environ |= NO_FILES

# A shell starts what it runs in the background with SIGINT ignored, and children inherit that: here it means something.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

sys.path.insert(0, str(TREE))  # for what tests share: `from tests.segments import ...`
if importlib.util.find_spec("cotenant") is None:
    sys.path.insert(0, str(TREE / "src"))


class Run(Protocol):
    """`cotenant(*args, env=..., input=..., timeout=...)`: runs the command line in a child."""

    def __call__(
        self,
        *args: str | Path,
        env: dict[str, str] | None = None,
        input: str | None = None,
        timeout: float = CHILD_SECONDS,
    ) -> subprocess.CompletedProcess[str]: ...


class RunPython(Protocol):
    """`run_python(source, env, *args)`: runs a Python program given as text in a child."""

    def __call__(
        self,
        source: str,
        env: dict[str, str] | None = None,
        *args: str | Path,
        timeout: float = CHILD_SECONDS,
    ) -> subprocess.CompletedProcess[str]: ...


def package_folder() -> Path:
    spec = importlib.util.find_spec("cotenant")
    assert spec is not None and spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))


def clean_environment() -> dict[str, str]:
    """The caller's environment without Cotenant's settings, so that a test sees only its own."""
    kept = ("COTENANT_NATIVE", "COTENANT_TEST_REAL_GPU", "COTENANT_TEST_PATIENCE")
    env = {k: v for k, v in os.environ.items() if not k.startswith("COTENANT_") or k in kept}
    env["PYTHONPATH"] = os.pathsep.join(p for p in (str(package_folder().parent), env.get("PYTHONPATH")) if p)
    env["NO_COLOR"] = "1"
    env.pop("COLUMNS", None)  # pytest-xdist sets it
    env["XDG_CACHE_HOME"] = str(cache_folder())
    # Only tests of the daemon want one; it would outlive the others.
    env["COTENANT_NO_DAEMON"] = "1"
    env |= NO_FILES
    return env


@functools.cache
def cache_folder() -> Path:
    """Of this session, so that nothing of the user's own is read or written."""
    folder = tempfile.mkdtemp(prefix="cotenant-test-cache-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def run_child(
    command: list[str], env: dict[str, str] | None, input: str | None, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Like subprocess.run, but a child that overstays is ended together with its own children."""
    with subprocess.Popen(
        command,
        env=clean_environment() if env is None else env,
        stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as child:
        try:
            out, err = child.communicate(input, timeout=timeout * PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
            pytest.fail(f"{command} did not end within {timeout * PATIENCE} s\nstdout: {out}\nstderr: {err}")
    return subprocess.CompletedProcess(command, child.returncode, out, err)


@pytest.fixture(scope="session")
def native() -> Path:
    """The folder of the native files: COTENANT_NATIVE, else the installed package's own."""
    folder = Path(os.environ.get("COTENANT_NATIVE") or package_folder() / "native").absolute()
    if not (folder / "libcotenant_wire.so").exists():
        pytest.skip(f"the native part is not built ({folder})")
    return folder


@pytest.fixture(scope="session")
def softgpu_folders() -> Iterator[list[Path]]:
    """Every private software GPU of this session; at the end none of their device processes may be left."""
    folders: list[Path] = []
    yield folders
    deadline = time.monotonic() + 20
    while (left := processes_naming(folders)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    assert not left, f"processes left behind by the tests: {left}"


def processes_naming(folders: list[Path]) -> list[int]:
    """The processes that have one of these as their software GPU."""
    return processes_with({f"COTENANT_SOFTGPU_DIR={folder}" for folder in folders})


def processes_with(settings: set[str]) -> list[int]:
    """The other processes with one of these, NAME=VALUE, in their environment."""
    wanted = {setting.encode() for setting in settings}
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if wanted.intersection(environment):
                found.append(int(entry.name))
    return found


@pytest.fixture
def softgpu_env(native: Path, tmp_path: Path, softgpu_folders: list[Path]) -> Iterator[dict[str, str]]:
    """An environment in which a child finds a GPU and a segment that nobody else uses."""
    env = clean_environment()
    if REAL_GPU:
        # A driver may refuse to register memory of other file systems.
        with tempfile.TemporaryDirectory(prefix="cotenant-test-", dir="/dev/shm") as shared:
            yield env | {"COTENANT_SEGMENT": f"{shared}/segment"}
        return
    env["COTENANT_SEGMENT"] = str(tmp_path / "segment")
    # Not in tmp_path: a socket's path may have 107 characters only.
    folder = Path(tempfile.mkdtemp(prefix="cotenant-test-"))
    softgpu_folders.append(folder)
    env["LD_LIBRARY_PATH"] = os.pathsep.join(
        p for p in (str(native / "softgpu"), env.get("LD_LIBRARY_PATH")) if p
    )
    env["COTENANT_SOFTGPU"] = "small"
    env["COTENANT_SOFTGPU_DIR"] = str(folder)
    yield env


@pytest.fixture(scope="session")
def cuda(request: pytest.FixtureRequest) -> Any:
    """`cuda.bindings.driver` in this very process, initialised."""
    if not REAL_GPU:
        native: Path = request.getfixturevalue("native")
        library = native / "softgpu" / "libcuda.so.1"
        if not library.exists():
            pytest.skip(f"the software GPU is not built ({library})")
        folder = tempfile.mkdtemp(prefix="cotenant-test-")
        # This process stays a client until it ends, so the folder can only go then.
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ["COTENANT_SOFTGPU"] = "small"
        os.environ["COTENANT_SOFTGPU_DIR"] = folder
        # A later dlopen("libcuda.so.1") finds the library that is loaded under this name already.
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    (result,) = driver.cuInit(0)
    assert result == driver.CUresult.CUDA_SUCCESS, result
    return driver


@pytest.fixture
def context(cuda: Any) -> Iterator[Any]:
    """Device 0's primary context, current on this thread; a fresh one after a test that broke it."""
    success = cuda.CUresult.CUDA_SUCCESS
    result, device = cuda.cuDeviceGet(0)
    assert result == success, result
    result, primary = cuda.cuDevicePrimaryCtxRetain(device)
    assert result == success, result
    try:
        (result,) = cuda.cuCtxSetCurrent(primary)
        assert result == success, result
        yield primary
    finally:
        cuda.cuCtxSetCurrent(primary)
        (result,) = cuda.cuCtxSynchronize()
        cuda.cuCtxSetCurrent(None)
        if result != success:
            cuda.cuDevicePrimaryCtxReset(device)
        cuda.cuDevicePrimaryCtxRelease(device)


@pytest.fixture
def cotenant() -> Run:
    def run(
        *args: str | Path,
        env: dict[str, str] | None = None,
        input: str | None = None,
        timeout: float = CHILD_SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        return run_child([sys.executable, "-m", "cotenant", *map(str, args)], env, input, timeout)

    return run


@pytest.fixture
def run_python() -> RunPython:
    def run(
        source: str,
        env: dict[str, str] | None = None,
        *args: str | Path,
        timeout: float = CHILD_SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        return run_child([sys.executable, "-c", source, *map(str, args)], env, None, timeout)

    return run


@pytest.fixture
def plain_env(tmp_path: Path) -> dict[str, str]:
    """An environment without Cotenant's settings and with a segment that nobody else uses."""
    return clean_environment() | {"COTENANT_SEGMENT": str(tmp_path / "segment")}


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Say why tests were skipped, whoever calls pytest."""
    if "s" not in config.option.reportchars:
        config.option.reportchars += "s"
