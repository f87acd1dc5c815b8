"""Programs under the interposer, on the software GPU."""

from __future__ import annotations

import io
import json
import mmap
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from click import ClickException

from cotenant import segment
from cotenant.cli import cli
from cotenant.errors import Problem
from cotenant.launch import execute
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.conftest import Run

PROGRAMS = Path(__file__).parent / "programs"
MiB = 1 << 20
OUT_OF_MEMORY = "<CUresult.CUDA_ERROR_OUT_OF_MEMORY: 2>"
MOVING_JOB = [sys.executable, "-u", str(PROGRAMS / "moving.py")]


class Compile(Protocol):
    def __call__(self, name: str, *options: str) -> Path: ...


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """`compiled("name", "-shared", ...)`: tests/interposer/programs/name.c as a program or a library."""
    folder = tmp_path_factory.mktemp("programs")
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler")

    def build(name: str, *options: str) -> Path:
        output = folder / (name + "".join(o.strip("-").replace("/", "_") for o in options))
        if not output.exists():
            command = [
                compiler,
                "-O1",
                "-fPIC",
                *options,
                str(PROGRAMS / f"{name}.c"),
                "-o",
                str(output),
                "-ldl",
            ]
            subprocess.run(command, check=True)
        return output

    return build


class Became(Exception):
    """`run` would be the command now."""


def environment_after(words: list[str], env: dict[str, str]) -> dict[str, str] | None:
    """What `cotenant run` gives its command, found out in this process: hundreds of tests would wait for another Python
    to start. None: it does more than that, or has something to say."""
    starts_more = "COTENANT_NO_DAEMON" not in env or "COTENANT_TIMELINE" in env
    if starts_more or env.get("COTENANT_NATIVE") != os.environ.get("COTENANT_NATIVE"):
        return None
    after: dict[str, str] = {}
    said = io.StringIO()

    def become(file: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        after.update(environment)
        raise Became

    with pytest.MonkeyPatch.context() as here, redirect_stdout(said), redirect_stderr(said):
        here.setattr(os, "environ", dict(env))
        here.setattr(execute, "inherited", lambda: dict(env))
        here.setattr(execute, "become", become)
        try:
            cli.main(words, prog_name="cotenant", standalone_mode=False)
        except Became:
            return None if said.getvalue() else after
        except (Problem, ClickException):
            return None
    return None


class Tenant:
    """A program under `cotenant run`; its figures come from the report that the interposer writes at its end."""

    def __init__(self, env: dict[str, str], folder: Path, number: int) -> None:
        self.report = folder / f"report-{number}"
        self.env = env | {"COTENANT_REPORT": str(self.report)}
        self.process: subprocess.Popen[str] | None = None

    def start(self, command: list[str], tenant_class: str = "standard") -> subprocess.Popen[str]:
        words = ["run", "--require", "--class", tenant_class, "--", *command]
        env = environment_after(words, self.env)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cotenant", *words] if env is None else command,
            env=self.env if env is None else env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self.process

    def say(self, line: str) -> None:
        assert self.process and self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process and self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate(timeout=30)
            pytest.fail(f"the program ended with {self.process.returncode}: {errors}")
        return line.strip()

    def finish(self, timeout: float = 60) -> str:
        assert self.process
        out, errors = self.process.communicate(timeout=timeout * PATIENCE)
        assert self.process.returncode == 0, f"exit {self.process.returncode}\n{out}\n{errors}"
        assert "cotenant:" not in errors
        return out

    def figures(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.report.read_text().splitlines()]

    def total(self, figure: str) -> int:
        return sum(int(line[figure]) for line in self.figures())


def tell(one: Tenant, line: str, answer: str) -> None:
    one.say(line)
    assert one.hear() == answer


def of(one: Tenant, tenants: tuple[segment.Tenant, ...]) -> segment.Tenant:
    assert one.process
    return next(t for t in tenants if t.pid == one.process.pid)


def mapped_slot(one: Tenant) -> segment.Slot:
    """As it is at any time."""
    assert one.process
    with Path(one.env["COTENANT_SEGMENT"]).open("r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    places = range(segment.PLACE, segment.SEGMENT_BYTES, segment.PLACE)
    slots = (segment.Slot.from_buffer(memory, at) for at in places)
    return next(slot for slot in slots if segment.is_live(slot) and slot.pid == one.process.pid)


def set_stale_ms(path: Path, milliseconds: int) -> None:
    with (path / "header" if path.is_dir() else path).open("r+b") as file:
        file.seek(segment.Header.knobs.offset + segment.Knobs.stale_ms.offset)
        file.write(milliseconds.to_bytes(4, "little"))


@pytest.fixture
def tenant(softgpu_env: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Tenant]]:
    """`tenant("production", source)`: a Python program (with `soft` importable) that runs as a tenant."""
    started: list[Tenant] = []
    path = Path(softgpu_env["COTENANT_SEGMENT"])
    segment.ensure(path)
    # A machine that is busy with other things may hold a tenant up: only a test about that takes it for stopped.
    set_stale_ms(path, 60_000)
    env = softgpu_env | {"PYTHONPATH": os.pathsep.join([str(PROGRAMS), softgpu_env["PYTHONPATH"]])}

    def start(tenant_class: str, source: str | list[str], **extra: str) -> Tenant:
        one = Tenant(env | extra, tmp_path, len(started))
        started.append(one)
        command = source if isinstance(source, list) else [sys.executable, "-u", "-c", source]
        one.start(command, tenant_class)
        return one

    yield start
    for one in started:
        if one.process and one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


@pytest.fixture
def tenants_now(softgpu_env: dict[str, str]) -> Callable[[], tuple[segment.Tenant, ...]]:
    return lambda: segment.read(Path(softgpu_env["COTENANT_SEGMENT"])).tenants


@pytest.fixture
def job(tenant: Callable[..., Tenant]) -> Callable[..., Tenant]:
    """`job("opportunistic")`: one that does what it is told, on a GPU of which all share 64 MiB, without headroom."""

    def start(tenant_class: str, **extra: str) -> Tenant:
        one = tenant(tenant_class, MOVING_JOB, **{"COTENANT_CAPACITY": "64M"} | extra)
        assert one.hear() == "ready"
        return one

    return start


@pytest.fixture
def knobs(softgpu_env: dict[str, str], tenant: Callable[..., Tenant], cotenant: Run) -> Callable[..., None]:
    """Knobs of memory that moves. Where nothing else is said: no headroom, and short stays."""

    def change(*options: str) -> None:
        done = cotenant("ctl", *options, env=softgpu_env)
        assert done.returncode == 0, done.stderr

    change("--headroom", "0", "--stay", "50ms")
    return change


COMPANY = """
from soft import Gpu, check, driver
for ordinal in range(check(driver.cuInit(0)) or check(driver.cuDeviceGetCount())):
    gpu = Gpu(ordinal); gpu.launch(gpu.kernel('empty')); gpu.synchronize()
print('here', flush=True); input()
"""


@pytest.fixture
def company(tenant: Callable[..., Tenant]) -> Tenant:
    """An idle production tenant on every GPU: whoever has none to wait for passes no gates."""
    one = tenant("production", COMPANY)
    assert one.hear() == "here"
    return one


@pytest.fixture
def driver_with(tmp_path: Path, native: Path) -> Callable[[str], Path]:
    """The software GPU with functions of the test's own instead of some of its: C source that includes this."""

    def build(source: str) -> Path:
        compiler = shutil.which("gcc") or shutil.which("cc")
        if not compiler:
            pytest.skip("no C compiler")
        softgpu = (native / "softgpu" / "libcuda.so.1").resolve()
        stub, driver, text = tmp_path / "stub.so", tmp_path / "driver.so", tmp_path / "driver.c"
        text.write_text("#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <string.h>\n" + source)
        link = [compiler, "-O1", "-fPIC", "-shared", "-Wl,--no-as-needed"]
        # It is found by its path: by its name it would be the interposer.
        subprocess.run([*link, "-x", "c", "/dev/null", f"-Wl,-soname,{softgpu}", "-o", stub], check=True)
        subprocess.run([*link, str(text), "-o", str(driver), str(stub), "-ldl"], check=True)
        return driver

    return build


@pytest.fixture
def preloaded(softgpu_env: dict[str, str], native: Path) -> dict[str, str]:
    """The environment of a tenant that was not started by `run`: its driver may be any."""
    segment.ensure(Path(softgpu_env["COTENANT_SEGMENT"]))
    return softgpu_env | {
        "LD_PRELOAD": str(native / "shim" / "libcuda.so.1"),
        "PYTHONPATH": os.pathsep.join([str(PROGRAMS), softgpu_env["PYTHONPATH"]]),
    }
