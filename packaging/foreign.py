"""A root folder with Debian's Python for another machine and what pip installs for it, and how it runs here."""

from __future__ import annotations

from pathlib import Path

from checkout import ROOT, pip
from debian import Debian

from cotenant.launch.architecture import Architecture

PYTHON_VERSION = "3.13"  # of debian.SUITE
PYTHON = Path(f"usr/bin/python{PYTHON_VERSION}")
SITE = Path("usr/lib/python3/dist-packages")
FORMATS = Path("/proc/sys/fs/binfmt_misc")
# Debian's aarch64 programs sign their return addresses: with a formula of qemu's own they start eight times as fast.
CPUS = {"aarch64": "max,pauth-impdef=on"}
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")


def cannot_run(machine: Architecture) -> str:
    """Why the kernel does not start that machine's programs, and what would help; empty if it does."""
    name = f"qemu-{machine.name}"
    if list(FORMATS.glob(f"{name}*")):
        return ""
    help_ = "Debian: apt-get install qemu-user-static"
    settings = Path(f"/usr/lib/binfmt.d/{name}.conf")
    if settings.exists():  # in a container, or without systemd: installed, and the kernel was not told
        help_ = f"as root: mount -t binfmt_misc none {FORMATS}; cat {settings} >{FORMATS / 'register'}"
    return f"this kernel starts no programs for {machine.name} ({help_})"


def root_with(machine: Architecture, requirements: list[str]) -> Path:
    """Its root: made once, and what is required installed anew."""
    folder = ROOT / "build" / f"debian-{machine.debian}"
    root = folder / "root"
    if not (root / PYTHON).exists():
        print("  fetching Debian's Python for it", flush=True)
        make_root(Debian(folder, machine.debian), root)
    target = [f"--platform={platform}_{machine.name}" for platform in PLATFORMS]
    target += [f"--python-version={PYTHON_VERSION}", "--only-binary=:all:", f"--target={root / SITE}"]
    # What pip would compile is for the Python that runs it.
    pip("install", "--upgrade", "--no-compile", *target, *requirements)
    return root


def make_root(debian: Debian, root: Path) -> None:
    # As Debian's base system has them; packages expect it and do not bring it.
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    debian.unpack_all(["python3", "libstdc++6", "busybox-static"], root)


def inside(root: Path, machine: Architecture) -> list[str]:
    """What stands before that machine's command to run it in its root, with this system's /proc, /dev and /tmp."""
    parts = ("proc", "dev", "tmp")
    for part in parts:
        (root / part).mkdir(exist_ok=True)
    binds = "; ".join(f'mount --rbind /{part} "$0/{part}"' for part in parts)
    cpu = f'export QEMU_CPU="${{QEMU_CPU-{CPUS[machine.name]}}}"; ' if machine.name in CPUS else ""
    script = f'set -e; {cpu}{binds}; exec chroot "$0" "$@"'
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(root)]
