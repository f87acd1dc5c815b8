"""Makes dist/cotenant-VERSION-linux-MACHINE.tar.gz: all that a machine like this one needs without a network.

install.sh    installs and self-tests
CONTENTS      which machine and Python versions it serves and how new a C library it needs, for install.sh
wheels/       our wheel, pip, and the dependencies' wheels for each Python version
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

ROOT = Path(__file__).resolve().parent.parent
MACHINE = os.uname().machine
# pip takes these tags as they are, without the older ones that each implies.
GLIBC_2_OF_WHEELS = (28, 27, 26, 24, 17, 12, 5)
PLATFORMS = ["linux", "manylinux2014", *(f"manylinux_2_{minor}" for minor in GLIBC_2_OF_WHEELS)]


class BundleError(Exception):
    pass


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", *map(str, arguments)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode:
        raise BundleError(f"pip {arguments[0]} failed:\n{(result.stderr or result.stdout).strip()}")


def build_wheel(folder: Path) -> Path:
    pip("wheel", "--no-deps", "--no-build-isolation", "-C", "build-dir=build/native", "-w", folder, ROOT)
    [wheel] = folder.glob("cotenant-*.whl")
    return wheel


def download(requirements: list[str], python: str, folder: Path) -> None:
    target = [f"--python-version={python}", *(f"--platform={tag}_{MACHINE}" for tag in PLATFORMS)]
    pip("download", "--only-binary=:all:", *target, "-d", folder, *requirements)


def runtime_requirements() -> list[str]:
    """What the installed package depends on, its demo included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["demo"]]


def newest_glibc(wheel: Path) -> tuple[int, int]:
    """The newest C library version that a file in the wheel asks for."""
    newest = (2, 0)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.startswith("cotenant/native/"):
                continue
            with archive.open(name) as file:
                try:
                    sections = list(ELFFile(file).iter_sections())
                except ELFError:
                    continue
                for section in sections:
                    if isinstance(section, GNUVerNeedSection):
                        newest = max([newest, *glibc_versions(section)])
    return newest


def glibc_versions(section: GNUVerNeedSection) -> list[tuple[int, int]]:
    names = [auxiliary.name for _, auxiliaries in section.iter_versions() for auxiliary in auxiliaries]
    found = [re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", name) for name in names]
    return [(int(match[1]), int(match[2])) for match in found if match]


def write_archive(folder: Path, archive: Path) -> None:
    """Whole or not at all: an interrupted run leaves no archive that looks complete."""
    partial = archive.with_suffix(".partial")
    with tarfile.open(partial, "w:gz", compresslevel=1) as tar:  # wheels are compressed already
        tar.add(folder, arcname=folder.name)
    partial.replace(archive)


def make_bundle(pythons: list[str], output: Path) -> Path:
    with tempfile.TemporaryDirectory(prefix="cotenant-bundle-") as scratch:
        wheels = Path(scratch) / "wheels"
        wheels.mkdir()
        print("building the wheel", flush=True)
        ours = build_wheel(wheels)
        version = ours.name.split("-")[1]
        for python in pythons:
            print(f"fetching the wheels for Python {python}", flush=True)
            download(runtime_requirements(), python, wheels)
        download(["pip"], pythons[0], wheels)

        glibc_major, glibc_minor = newest_glibc(ours)
        folder = Path(scratch) / f"cotenant-{version}"
        folder.mkdir()
        wheels.rename(folder / "wheels")
        shutil.copy(ROOT / "packaging" / "install.sh", folder)
        shutil.copy(ROOT / "LICENSE", folder)
        contents = (
            f"version={version}\nmachine={MACHINE}\npythons={' '.join(pythons)}\n"
            f"glibc={glibc_major}.{glibc_minor}\n"
        )
        (folder / "CONTENTS").write_text(contents)

        output.mkdir(parents=True, exist_ok=True)
        archive = output / f"cotenant-{version}-linux-{MACHINE}.tar.gz"
        write_archive(folder, archive)
    return archive


def python_version(text: str) -> str:
    if not re.fullmatch(r"3\.1[123]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is none of 3.11, 3.12, 3.13")
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description="Make one archive for a machine without a network.")
    parser.add_argument(
        "pythons", nargs="+", type=python_version, metavar="VERSION", help="3.11, 3.12 or 3.13"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder of the archive")
    options = parser.parse_args()
    try:
        archive = make_bundle(options.pythons, options.output)
    except BundleError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    megabytes = archive.stat().st_size / 1e6
    print(f"{archive} ({megabytes:.0f} MB, Python {', '.join(options.pythons)})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
