"""What is shipped, and what the scripts around it say when a machine does not fit."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

import cotenant
from cotenant import events
from cotenant.daemon import lock
from cotenant.launch.architecture import ARCHITECTURES, HERE
from tests.conftest import REAL_GPU, package_folder, processes_with
from tests.interposer.conftest import PROGRAMS
from tests.waiting import wait_for

TREE = Path(__file__).resolve().parent.parent
[ELSEWHERE] = [one for one in ARCHITECTURES if one is not HERE]
C_LIBRARY = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", HERE.loader}
THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def elf_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            yield path


def needed_libraries(path: Path) -> set[str]:
    with path.open("rb") as file:
        dynamic = ELFFile(file).get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        return {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}  # type: ignore[attr-defined]


def exported_names(path: Path) -> set[str]:
    with path.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(symbols, SymbolTableSection)
        return {
            symbol.name
            for symbol in symbols.iter_symbols()
            if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_LOCAL"
        }


def test_native_files_need_only_the_c_library(native: Path) -> None:
    needed = {path.name: needed_libraries(path) - C_LIBRARY for path in elf_files(native)}
    # The stand-in for NVML is nothing but these two, in this order.
    assert needed.pop("libcotenant-nvml.so.1") == {"libcuda.so.1", "libnvidia-ml.so.1"}
    assert needed
    assert {name: libraries for name, libraries in needed.items() if libraries} == {}


def test_the_interposer_exports_nothing_that_a_guest_could_mistake_for_its_own(native: Path) -> None:
    # A C++ symbol here would take the place of the one in the guest's C++ library: the interposer is preloaded.
    exported = exported_names(native / "shim" / "libcuda.so.1")
    assert "cuLaunchKernel" in exported
    assert {
        name
        for name in exported
        if not re.match(r"cu[A-Z]|cudbg|cotenant_|(dlopen|ioctl|nvmlDeviceGetMemoryInfo(_v2)?)$", name)
    } == set()


@pytest.mark.parametrize("links", [True, False], ids=["with it", "without lto-wrapper"])
def test_link_time_optimisation_is_used_where_a_program_links_with_it(tmp_path: Path, links: bool) -> None:
    cmake, ninja = (shutil.which(tool, path=str(Path(sys.executable).parent)) for tool in ("cmake", "ninja"))
    compiler = shutil.which("g++")
    if not (cmake and ninja and compiler):
        pytest.skip("no cmake, ninja or g++ to build with")
    # As gcc without lto-wrapper: it compiles with -flto and does not link with it.
    halfway = tmp_path / "g++"
    halfway.write_text(
        f'#!/bin/sh\ncase " $* " in *" -c "*) ;; *" -flto"*) echo no lto-wrapper >&2; exit 1 ;; esac\n'
        f'exec {compiler} "$@"\n'
    )
    halfway.chmod(0o755)
    options = {
        "CMAKE_CXX_COMPILER": compiler if links else halfway,
        "CMAKE_MAKE_PROGRAM": ninja,
        "Python3_EXECUTABLE": sys.executable,
    }
    subprocess.run(
        [cmake, "-S", TREE, "-B", tmp_path, "-G", "Ninja", *(f"-D{k}={v}" for k, v in options.items())],
        check=True,
        capture_output=True,
        timeout=120,
    )
    assert ("-flto" in (tmp_path / "build.ninja").read_text()) == links


def fake_wheel(folder: Path, machine: str, content: bytes) -> Path:
    wheel = folder / f"cotenant-1.0-py3-none-manylinux_2_28_{machine}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("cotenant/native/one", content)
    return wheel


@pytest.fixture
def wheels(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(TREE / "packaging"))
    return importlib.import_module("wheels")


def test_a_wheel_with_another_machines_files_is_refused(tmp_path: Path, native: Path, wheels: Any) -> None:
    content = (native / "shim" / "libcuda.so.1").read_bytes()
    wheel = fake_wheel(tmp_path, ELSEWHERE.name, content)
    with pytest.raises(wheels.PackagingError, match=f"one is for EM_{HERE.name.upper()}"):
        wheels.check(wheel, ELSEWHERE)


def test_a_wheel_that_needs_a_newer_c_library_than_it_says_is_refused(
    tmp_path: Path, native: Path, wheels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = fake_wheel(tmp_path, HERE.name, (native / "shim" / "libcuda.so.1").read_bytes())
    monkeypatch.setattr(wheels, "OLDEST_GLIBC", (2, 999))
    wheel = wheel.rename(tmp_path / wheel.name.replace("_28_", "_999_"))
    wheels.check(wheel, HERE)
    monkeypatch.setattr(wheels, "OLDEST_GLIBC", (2, 1))
    wheel = wheel.rename(tmp_path / wheel.name.replace("_999_", "_1_"))
    with pytest.raises(wheels.PackagingError, match=r"one needs glibc 2\."):
        wheels.check(wheel, HERE)


def test_a_wheel_that_a_kernel_with_large_pages_cannot_load_is_refused(
    tmp_path: Path, native: Path, wheels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "OLDEST_GLIBC", (2, 999))
    wheel = fake_wheel(tmp_path, HERE.name, (native / "libcotenant_wire.so").read_bytes())
    wheel = wheel.rename(tmp_path / wheel.name.replace("_28_", "_999_"))
    wheels.check(wheel, HERE)
    with pytest.raises(wheels.PackagingError, match=r"one is laid out for pages of up to [0-9]+ bytes"):
        wheels.check(wheel, replace(HERE, largest_page=1 << 20))


def test_a_wheel_with_another_platforms_name_or_no_native_files_is_refused(
    tmp_path: Path, wheels: Any
) -> None:
    with pytest.raises(wheels.PackagingError, match="not for manylinux_2_28_"):
        wheels.check(tmp_path / "cotenant-1.0-py3-none-linux_x86_64.whl", HERE)
    with pytest.raises(wheels.PackagingError, match="no native files"):
        wheels.check(fake_wheel(tmp_path, HERE.name, b"text"), HERE)


def test_a_self_test_that_does_not_end_is_an_error_of_one_line(
    wheels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "SELF_TEST_SECONDS", 0.1)
    with pytest.raises(wheels.PackagingError, match=r"^python -m cotenant --version took longer than 0 s$"):
        wheels.self_test("python", ["sh", "-c", "exec sleep 60"])


def test_types_are_shipped() -> None:
    assert (Path(cotenant.__file__).parent / "py.typed").is_file()


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """An unpacked bundle for this Python, but without wheels: nothing that checks the machine may need them."""
    (tmp_path / "wheels").mkdir()
    shutil.copy(TREE / "packaging" / "install.sh", tmp_path)
    write_contents(tmp_path)
    return tmp_path


def write_contents(
    bundle: Path, pythons: str = THIS_PYTHON, glibc: str = "2.17", machine: str = os.uname().machine
) -> None:
    (bundle / "CONTENTS").write_text(f"version=1.2.3\nmachine={machine}\npythons={pythons}\nglibc={glibc}\n")


def install(bundle: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [bundle / "install.sh", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_install_names_the_pythons_it_has_wheels_for(bundle: Path) -> None:
    write_contents(bundle, pythons="3.7 3.8")
    result = install(bundle, "--python", sys.executable, str(bundle / "new"))
    assert result.returncode == 1
    assert result.stderr.startswith("error: no wheels for Python 3.1")
    assert "serves 3.7 3.8" in result.stderr
    assert not (bundle / "new").exists()


def test_install_refuses_a_bundle_for_another_processor(bundle: Path) -> None:
    write_contents(bundle, machine="sparc64")
    result = install(bundle, "--python", sys.executable, str(bundle / "new"))
    assert result.returncode == 1
    assert "error: this bundle is for Linux on sparc64; this is Linux " in result.stderr
    assert not (bundle / "new").exists()


def test_install_refuses_a_machine_with_too_old_a_c_library(bundle: Path) -> None:
    write_contents(bundle, glibc="2.999")
    result = install(bundle, "--python", sys.executable, str(bundle / "new"))
    assert result.returncode == 1
    assert "error: this bundle needs glibc 2.999; this machine has 2." in result.stderr
    assert not (bundle / "new").exists()


def test_install_leaves_a_folder_that_is_no_environment_alone(bundle: Path) -> None:
    taken = bundle / "taken"
    taken.mkdir()
    (taken / "thesis.txt").write_text("years of work")
    result = install(bundle, "--python", sys.executable, str(taken))
    assert result.returncode == 1
    assert "is no virtual environment" in result.stderr
    assert [path.name for path in taken.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("devices", "has_gpu"),
    [
        ([], False),
        (["null", "nvidiactl"], False),
        (["nvidia0"], True),
        (["dxg"], True),
        (["nvidia10", "dxg"], True),
    ],
)
def test_install_tests_on_the_gpu_where_there_is_one(
    tmp_path: Path, devices: list[str], has_gpu: bool
) -> None:
    text = (TREE / "packaging" / "install.sh").read_text()
    function = re.search(r"^has_gpu\(\) \{.*?^\}", text, re.MULTILINE | re.DOTALL)
    assert function
    for device in devices:
        (tmp_path / device).touch()
    done = subprocess.run(
        ["sh", "-eu", "-c", function[0].replace("/dev/", f"{tmp_path}/") + "\nhas_gpu"], check=False
    )
    assert (done.returncode == 0) == has_gpu


def test_install_without_a_destination_says_how(bundle: Path) -> None:
    result = install(bundle)
    assert result.returncode == 2
    assert result.stderr.startswith("usage: install.sh FOLDER")


def prerequisites(**changes: str) -> subprocess.CompletedProcess[str]:
    script = TREE / "packaging" / "prerequisites.sh"
    return subprocess.run(
        [script], env=os.environ | changes, capture_output=True, text=True, timeout=60, check=False
    )


def test_prerequisites_pick_the_python_asked_for() -> None:
    result = prerequisites(PYTHON=sys.executable)
    assert (result.returncode, result.stdout.strip()) == (0, sys.executable)


def test_prerequisites_name_all_that_is_missing_in_one_line() -> None:
    result = prerequisites(PYTHON="no-such-python", CXX="no-such-compiler")
    assert result.returncode == 1
    [line] = result.stderr.splitlines()
    assert "no-such-python" in line
    assert "no-such-compiler" in line
    assert "apt install python3 python3-venv g++" in line


def test_the_page_says_what_each_dependency_is_for() -> None:
    about = tomllib.loads((TREE / "pyproject.toml").read_text())
    groups = [
        about["build-system"]["requires"],
        about["project"]["dependencies"],
        *about["project"]["optional-dependencies"].values(),
        *about["dependency-groups"].values(),
    ]
    needed = {re.match(r"[\w-]+", one)[0] for group in groups for one in group if isinstance(one, str)}  # type: ignore[index]
    table = re.findall(r"^\| ([^|]+) \|", (TREE / "docs" / "install.md").read_text(), re.MULTILINE)
    assert needed - {word for cell in table for word in cell.split(", ")} == set()


TWICE = """
from soft import Gpu
gpu = Gpu(); kernel = gpu.kernel('empty')
gpu.launch(kernel); gpu.synchronize(); print('ready', flush=True)
input()
gpu.launch(kernel); gpu.synchronize(); print('computed', flush=True)
"""


def has_looked(path: Path) -> bool:
    """Whether its daemon has seen the tenant."""
    return any(event.kind is events.Kind.joined for event in events.read(path))


@pytest.mark.skipif(REAL_GPU, reason="it brings a software GPU of its own")
def test_when_the_package_is_removed_jobs_run_on_and_nothing_else_does(
    softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    installed = tmp_path / "installed"
    shutil.copytree(package_folder(), installed / "cotenant")
    path = Path(softgpu_env["COTENANT_SEGMENT"])
    env = softgpu_env | {
        "PYTHONPATH": os.pathsep.join([str(installed), str(PROGRAMS), softgpu_env["PYTHONPATH"]]),
    }
    cotenant_command = [sys.executable, "-m", "cotenant"]
    command = [*cotenant_command, "run", "--require", "--", sys.executable, "-c", TWICE]
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        try:
            assert job.stdout and job.stdout.readline() == "ready\n"
            assert str(installed) in Path(f"/proc/{job.pid}/maps").read_text(), "it is not the copy that runs"
            # Not the daemon that `run` starts: that one may have ended before a slow job has come.
            with subprocess.Popen([*cotenant_command, "daemon", "--linger", "0"], env=env) as daemon:
                try:
                    wait_for(lambda: lock.is_held(path))
                    wait_for(lambda: has_looked(path))
                    shutil.rmtree(installed)
                    out, errors = job.communicate("go on\n", timeout=60)
                    assert daemon.wait(60) == 0
                finally:
                    daemon.kill()
        finally:
            job.kill()
    assert (job.returncode, out, errors) == (0, "computed\n", "")
    assert not lock.is_held(path)
    wait_for(lambda: not processes_with({f"COTENANT_SEGMENT={path}"}))
    left = {one.name.removeprefix(path.name) for one in path.parent.glob(f"{path.name}*")}
    assert left == {"", ".daemon.events"}
