"""Makes a wheel for each machine that Cotenant runs on, whichever machine this is.

    python packaging/wheels.py [--output dist] [MACHINE...]

PyPI's ziglang compiles, against the C library of 2018 (2.28), so that a wheel serves every system from then on.
Each is installed and tested; that for the other machine with qemu-user and Debian's Python, where there are such.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

import foreign
from checkout import ROOT, PackagingError, pip
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from cotenant.launch.architecture import ARCHITECTURES, HERE, Architecture

OLDEST_GLIBC = (2, 28)
SELF_TEST_SECONDS = 1800.0  # for a step; an emulated machine beside other work is slow


def write_compilers(folder: Path, machine: Architecture) -> None:
    """CMake wants commands that are one file each."""
    folder.mkdir(parents=True, exist_ok=True)
    target = f"{machine.name}-linux-gnu.{OLDEST_GLIBC[0]}.{OLDEST_GLIBC[1]}"
    for name, arguments in {"c++": f"c++ -target {target}", "ar": "ar", "ranlib": "ranlib"}.items():
        command = folder / name
        text = f'#!/bin/sh\nexec "{sys.executable}" -m ziglang {arguments} "$@"\n'
        if not command.exists() or command.read_text() != text:
            command.write_text(text)
            command.chmod(0o755)


def build(machine: Architecture, output: Path) -> Path:
    """The wheel for `machine`, in `output`."""
    folder = ROOT / "build" / f"wheel-{machine.name}"
    write_compilers(folder / "zig", machine)
    with tempfile.TemporaryDirectory(prefix="cotenant-wheel-") as scratch:
        made = compile_wheel(machine, Path(scratch), folder, "zig.cmake", ZIG=str(folder / "zig"))
        check(made, machine)
        output.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(made, output / made.name))


def compile_wheel(machine: Architecture, output: Path, folder: Path, toolchain: str, **defined: str) -> Path:
    """The wheel in `output`, built in `folder` as CMake's toolchain file says; whom it serves is not checked."""
    defined |= {
        "CMAKE_TOOLCHAIN_FILE": str(ROOT / "packaging" / toolchain),
        "MACHINE": machine.name,
        "Python3_EXECUTABLE": sys.executable,
    }
    settings = [f"build-dir={folder}", "install.strip=false"]
    settings += [f"cmake.define.{name}={value}" for name, value in defined.items()]
    options = [part for setting in settings for part in ("-C", setting)]
    # What the wheel is for: scikit-build-core takes this for the name of the platform.
    platform = {"_PYTHON_HOST_PLATFORM": platform_of(machine)}
    pip("wheel", "--no-deps", "--no-build-isolation", *options, "-w", output, ROOT, extra=platform)
    [made] = output.glob("cotenant-*.whl")
    return made


def platform_of(machine: Architecture) -> str:
    return f"manylinux_{OLDEST_GLIBC[0]}_{OLDEST_GLIBC[1]}_{machine.name}"


def check(wheel: Path, machine: Architecture) -> None:
    """Is it what its name says: for this machine, with any of its pages, and for C libraries as old as that?"""
    platform = platform_of(machine)
    if not wheel.name.endswith(f"-py3-none-{platform}.whl"):
        raise PackagingError(f"the wheel came out as {wheel.name}, not for {platform}")
    files = 0
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            with archive.open(name) as file:
                if file.read(4) != b"\x7fELF":
                    continue
                file.seek(0)
                elf, files = ELFFile(file), files + 1
                if elf["e_machine"] != machine.elf_machine_name:
                    raise PackagingError(f"{name} is for {elf['e_machine']}")
                if (page := page_of(elf)) < machine.largest_page:
                    raise PackagingError(f"{name} is laid out for pages of up to {page} bytes")
                for version in glibc_versions(elf):
                    if version > OLDEST_GLIBC:
                        raise PackagingError(f"{name} needs glibc {version[0]}.{version[1]}")
    if not files:
        raise PackagingError(f"{wheel.name} has no native files")


def page_of(elf: ELFFile) -> int:
    """The largest with which a kernel can load it."""
    return min(int(part["p_align"]) for part in elf.iter_segments() if part["p_type"] == "PT_LOAD")


def glibc_versions(elf: ELFFile) -> list[tuple[int, int]]:
    """Those that a file asks for."""
    names = [
        auxiliary.name
        for section in elf.iter_sections()
        if isinstance(section, GNUVerNeedSection)
        for _, auxiliaries in section.iter_versions()
        for auxiliary in auxiliaries
    ]
    found = [re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", name) for name in names]
    return [(int(match[1]), int(match[2])) for match in found if match]


def self_test(python: str, before: list[str]) -> None:
    """What was installed for this Python works: it starts, and shares the software GPU."""
    cotenant = [python, "-m", "cotenant"]
    where = "from cotenant.launch import native_files; print(native_files.probe())"
    with tempfile.TemporaryDirectory(prefix="cotenant-wheel-") as scratch:
        env = clean_environment() | {
            "COTENANT_SOFTGPU_DIR": scratch,
            "COTENANT_SEGMENT": f"{scratch}/segment",
            "COTENANT_NO_DAEMON": "1",
        }

        def succeed(*command: str) -> str:
            try:
                done = subprocess.run(
                    [*before, *command],
                    env=env,
                    cwd=scratch,
                    capture_output=True,
                    text=True,
                    timeout=SELF_TEST_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise PackagingError(f"{' '.join(command)} took longer than {error.timeout:.0f} s") from None
            if done.returncode:
                raise PackagingError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
            return done.stdout

        print(f"  {succeed(*cotenant, '--version').strip()}", flush=True)
        print(f"  {succeed(*cotenant, 'softgpu', '--', *cotenant, 'doctor').splitlines()[-1]}", flush=True)
        probe = succeed(python, "-c", where).strip()
        said = succeed(*cotenant, "softgpu", "--", *cotenant, "run", "--require", "--", probe)
        if '"interposed": true' not in said:
            raise PackagingError(f"a job ran past the interposer: {said}")


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("COTENANT_", "PYTHON"))}


def test_here(wheel: Path, folder: Path) -> None:
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip("install", wheel, python=python)
    self_test(str(python), [])


def test_elsewhere(wheel: Path, machine: Architecture) -> None:
    """With Debian's Python for that machine, by qemu's emulation of a process."""
    if problem := foreign.cannot_run(machine):
        print(f"  not tested: {problem}", flush=True)
        return
    root = foreign.root_with(machine, [str(wheel)])
    self_test(f"/{foreign.PYTHON}", foreign.inside(root, machine))


def main() -> int:
    machines = {machine.name: machine for machine in ARCHITECTURES}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "machines", nargs="*", metavar="MACHINE", help=f"{' or '.join(machines)}; both if none"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder of the wheels")
    options = parser.parse_args()
    if unknown := set(options.machines) - set(machines):
        parser.error(f"no machine {sorted(unknown)[0]!r}: there are {', '.join(machines)}")
    try:
        for name in options.machines or machines:
            print(f"building the wheel for {name}", flush=True)
            wheel = build(machines[name], options.output)
            print(f"testing {wheel}", flush=True)
            if machines[name] is HERE:
                with tempfile.TemporaryDirectory(prefix="cotenant-wheel-") as scratch:
                    test_here(wheel, Path(scratch))
            else:
                test_elsewhere(wheel, machines[name])
    except PackagingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
