"""Makes dist/cotenant-VERSION-linux-MACHINE.tar.gz: all that a machine of that kind needs without a network.

install.sh    installs and self-tests
CONTENTS      which machine and Python versions it serves and how new a C library it needs, for install.sh
wheels/       our wheel, pip, and the dependencies' wheels for each Python version
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

import wheels
from checkout import ROOT, PackagingError, pip

from cotenant.launch.architecture import ARCHITECTURES, HERE, Architecture

# pip takes these tags as they are, without the older ones that each implies.
GLIBC_2_OF_WHEELS = (28, 27, 26, 24, 17, 12, 5)
PLATFORMS = ["linux", "manylinux2014", *(f"manylinux_2_{minor}" for minor in GLIBC_2_OF_WHEELS)]


def download(requirements: list[str], machine: Architecture, python: str, folder: Path) -> None:
    target = [f"--python-version={python}", *(f"--platform={tag}_{machine.name}" for tag in PLATFORMS)]
    pip("download", "--only-binary=:all:", *target, "-d", folder, *requirements)


def runtime_requirements() -> list[str]:
    """What the installed package depends on, its demo included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["demo"]]


def write_archive(folder: Path, archive: Path) -> None:
    """Whole or not at all: an interrupted run leaves no archive that looks complete."""
    partial = archive.with_suffix(".partial")
    with tarfile.open(partial, "w:gz", compresslevel=1) as tar:  # wheels are compressed already
        tar.add(folder, arcname=folder.name)
    partial.replace(archive)


def make_bundle(machine: Architecture, pythons: list[str], output: Path) -> Path:
    with tempfile.TemporaryDirectory(prefix="cotenant-bundle-") as scratch:
        gathered = Path(scratch) / "wheels"
        print(f"building the wheel for {machine.name}", flush=True)
        ours = wheels.build(machine, gathered)
        version = ours.name.split("-")[1]
        for python in pythons:
            print(f"fetching the wheels for Python {python}", flush=True)
            download(runtime_requirements(), machine, python, gathered)
        download(["pip"], machine, pythons[0], gathered)

        folder = Path(scratch) / f"cotenant-{version}"
        folder.mkdir()
        gathered.rename(folder / "wheels")
        shutil.copy(ROOT / "packaging" / "install.sh", folder)
        shutil.copy(ROOT / "LICENSE", folder)
        contents = (
            f"version={version}\nmachine={machine.name}\npythons={' '.join(pythons)}\n"
            f"glibc={'.'.join(map(str, wheels.OLDEST_GLIBC))}\n"
        )
        (folder / "CONTENTS").write_text(contents)

        output.mkdir(parents=True, exist_ok=True)
        archive = output / f"cotenant-{version}-linux-{machine.name}.tar.gz"
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
    machines = {machine.name: machine for machine in ARCHITECTURES}
    parser.add_argument(
        "--machine", choices=machines, default=HERE.name, help="this one's kind, if not given"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder of the archive")
    options = parser.parse_args()
    try:
        archive = make_bundle(machines[options.machine], options.pythons, options.output)
    except PackagingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    megabytes = archive.stat().st_size / 1e6
    print(f"{archive} ({megabytes:.0f} MB, Python {', '.join(options.pythons)})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
