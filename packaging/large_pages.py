"""Runs the tests of the shared memory on a kernel with pages of 16 KiB: Debian's for aarch64, in qemu.

    make test-16k

The machine has nothing but an initial file system: Debian's Python, our wheel and the tests, with their C++ programs
compiled ahead. It is emulated, and takes some minutes. Its output goes to build/large-pages/console.log.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import foreign
import wheels
from debian import Debian
from wheels import ROOT, PackagingError

from cotenant.launch.architecture import ARCHITECTURES

[MACHINE] = [one for one in ARCHITECTURES if one.name == "aarch64"]
KERNEL = "linux-image-arm64-16k"
PAGE = 16384
FOLDER = ROOT / "build" / "large-pages"
COMPILER = "aarch64-linux-gnu-g++" if os.uname().machine != MACHINE.name else "g++"
TESTS = [
    "tests/test_wire.py",
    "tests/test_segment.py",
    "tests/test_shared_segment.py",
    "tests/wire",
    "tests/tenant/test_memory_quota.py",
    "tests/tenant/test_host_memory.py",
]
SECONDS = 1500
END = "the tests ended with status "

INIT = f"""\
#!/usr/bin/busybox sh
export PATH=/usr/bin:/usr/sbin HOME=/tmp PYTHONDONTWRITEBYTECODE=1
/usr/bin/busybox mkdir -p /proc /sys /dev /tmp
/usr/bin/busybox mount -t proc none /proc
/usr/bin/busybox mount -t sysfs none /sys
/usr/bin/busybox mount -t devtmpfs none /dev
/usr/bin/busybox mkdir -p /dev/shm
/usr/bin/busybox mount -t tmpfs -o mode=1777 none /dev/shm
/usr/bin/busybox mount -t tmpfs -o mode=1777 none /tmp
/usr/bin/busybox ip link set lo up
cd /cotenant
export COTENANT_TEST_PROGRAMS=/cotenant/programs
{foreign.PYTHON.name} -c 'import mmap; assert mmap.PAGESIZE == {PAGE}, mmap.PAGESIZE' &&
    {foreign.PYTHON.name} -m cotenant softgpu -- {foreign.PYTHON.name} -m cotenant doctor &&
    {foreign.PYTHON.name} -m pytest -vv --color=no --tb=short -p no:cacheprovider -o timeout=600 {" ".join(TESTS)}
echo "{END}$?"
/usr/bin/busybox poweroff -f
"""


def compile_programs(folder: Path) -> None:
    """What the tests compile where they run, compiled here: pytest sets up every test and runs none."""
    folder.mkdir(parents=True, exist_ok=True)
    env = os.environ | {"COTENANT_TEST_PROGRAMS": str(folder), "COTENANT_TEST_CXX": COMPILER}
    command = [sys.executable, "-m", "pytest", "-q", "--setup-only", *TESTS]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode or not list(folder.iterdir()):
        raise PackagingError(f"the tests' programs do not compile:\n{done.stdout}{done.stderr}")


def write_entry(out: BinaryIO, name: str, mode: int, content: bytes) -> None:
    """One file of a cpio archive of the kind that the kernel unpacks; everything in it is root's."""
    encoded = name.encode() + b"\0"
    fields = [0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields)
    out.write(head + encoded + bytes(-(len(head) + len(encoded)) % 4))
    out.write(content + bytes(-len(content) % 4))


def pack(root: Path, out: BinaryIO, prefix: str = "") -> None:
    for path in sorted(root.rglob("*")):
        about = path.lstat()
        if "__pycache__" in path.parts or stat.S_ISSOCK(about.st_mode):
            continue
        content = b""
        if stat.S_ISLNK(about.st_mode):
            content = os.readlink(path).encode()
        elif stat.S_ISREG(about.st_mode):
            content = path.read_bytes()
        write_entry(out, f"{prefix}{path.relative_to(root)}", about.st_mode, content)


def make_file_system(root: Path) -> Path:
    made = FOLDER / "initial.cpio"
    with made.open("wb") as out:
        pack(root, out)
        write_entry(out, "init", stat.S_IFREG | 0o755, INIT.encode())
        write_entry(out, "etc/passwd", stat.S_IFREG | 0o644, b"root:x:0:0::/:/bin/sh\n")
        write_entry(out, "etc/group", stat.S_IFREG | 0o644, b"root:x:0:\n")
        write_entry(out, "cotenant", stat.S_IFDIR | 0o755, b"")
        settings = (ROOT / "pyproject.toml").read_bytes()
        write_entry(out, "cotenant/pyproject.toml", stat.S_IFREG | 0o644, settings)
        folders = {"tests": ROOT / "tests", "native": ROOT / "native", "programs": FOLDER / "programs"}
        for name, folder in folders.items():
            write_entry(out, f"cotenant/{name}", stat.S_IFDIR | 0o755, b"")
            pack(folder, out, f"cotenant/{name}/")
        write_entry(out, "TRAILER!!!", 0, b"")
    return made


def boot(kernel: Path, file_system: Path) -> int:
    """The status that the tests ended with."""
    log = FOLDER / "console.log"
    command = ["qemu-system-aarch64", "-M", "virt", "-cpu", "max,pauth-impdef=on", "-smp", "2", "-m", "3G"]
    command += [
        "-nographic",
        "-no-reboot",
        "-nic",
        "none",
        "-kernel",
        str(kernel),
        "-initrd",
        str(file_system),
    ]
    command += ["-append", "console=ttyAMA0 rdinit=/init panic=-1 quiet"]
    with log.open("wb") as out:
        subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=SECONDS, check=False
        )
    lines = log.read_text(errors="replace").splitlines()
    print("\n".join(lines[-40:]), flush=True)
    ended = [line for line in lines if line.startswith(END)]
    return int(ended[-1].removeprefix(END)) if ended else 1


def main() -> int:
    for tool in ("qemu-system-aarch64", COMPILER):
        if not shutil.which(tool):
            print(f"skipped: no {tool} (Debian: apt-get install qemu-system-arm g++-aarch64-linux-gnu)")
            return 0
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        kernels = FOLDER / "kernel"
        if not list(kernels.glob("boot/vmlinuz-*")):
            print("fetching the kernel", flush=True)
            Debian(ROOT / "build" / f"debian-{MACHINE.debian}", MACHINE.debian).unpack_what_it_stands_for(
                KERNEL, kernels
            )
        [kernel] = kernels.glob("boot/vmlinuz-*")
        print("building the wheel and the tests' programs", flush=True)
        wheel = wheels.build(MACHINE, ROOT / "dist")
        root = foreign.root_with(MACHINE, [str(wheel), "pytest", "pytest-timeout", "hypothesis"])
        compile_programs(FOLDER / "programs")
        file_system = make_file_system(root)
        print(f"booting {kernel.name}", flush=True)
        return boot(kernel, file_system)
    except PackagingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except subprocess.TimeoutExpired:
        print(f"error: no end after {SECONDS} s; see {FOLDER / 'console.log'}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
