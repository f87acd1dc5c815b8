"""Debian's Slurm, unpacked into a folder: nothing of this system changes, and no script of a package runs.

python tests/slurm/unpack.py FOLDER      # prints why not, and fails, where that cannot be
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = (
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "slurm-wlm-mysql-plugin",
    "slurm-client",
    "munge",
    "mariadb-server-core",
)
# As update-alternatives names them. A daemon knows by its name what it is: slurmctld crashes under another one.
DAEMONS = ("slurmctld", "slurmd", "slurmstepd")


def unpack(folder: Path) -> str:
    """Why it cannot be; nothing: it is there."""
    root, archives = folder / "root", folder / "archives"
    if is_whole(root):
        return ""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return "this system has no apt-get and dpkg-deb"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    # What this system has already is not fetched; the lists of packages are this system's own.
    options = [
        "-o",
        f"Dir::Cache::archives={archives}/",
        "-o",
        "Debug::NoLocking=1",
        "-o",
        "APT::Sandbox::User=root",
    ]
    done = subprocess.run(
        [
            "apt-get",
            "-qq",
            "install",
            "-y",
            "--download-only",
            "--no-install-recommends",
            *options,
            *PACKAGES,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return f"apt-get cannot fetch {', '.join(PACKAGES)}: {done.stderr.strip().splitlines()[-1:]}"
    beside = folder / "root.new"
    shutil.rmtree(beside, ignore_errors=True)
    for package in sorted(archives.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, beside], check=True)
    for name in DAEMONS:
        (beside / "usr" / "sbin" / name).symlink_to(f"{name}-wlm")
    if not is_whole(beside):
        return "Slurm is installed on this system in parts: remove it, or install all of it"
    shutil.rmtree(root, ignore_errors=True)
    beside.rename(root)
    return ""


def is_whole(root: Path) -> bool:
    return all(
        (root / "usr" / "sbin" / name).exists() for name in ("munged", "mariadbd", "slurmdbd", *DAEMONS)
    )


if __name__ == "__main__":
    why = unpack(Path(sys.argv[1]).absolute())
    if why:
        sys.exit(f"test-slurm: {why}")
