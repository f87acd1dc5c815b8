"""Runs the tests of the shared memory on a kernel with pages of 16 KiB: Debian's for aarch64, in qemu.

    make test-16k

The machine has nothing but an initial file system: Debian's Python, our wheel and the tests, with their C++ programs
compiled ahead. It is emulated: its tests take half an hour, more where others need the processors too. Each test's
result is printed as it comes. What has passed when the machine is interrupted is not run again, as long as the wheel
and the tests stay the same: the next `make test-16k` goes on. The whole output is in build/large-pages/console.log.
"""

from __future__ import annotations

import hashlib
import os
import queue
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import foreign
import wheels
from checkout import ROOT, PackagingError
from debian import Debian

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
    "tests/tenant/test_fork.py",
    "tests/tenant/test_fresh_blocks.py",
    "tests/tenant/test_memory_quota.py",
    "tests/tenant/test_host_memory.py",
]
PASSED = FOLDER / "passed"
TEST_SECONDS = 600
SILENT_SECONDS = 2 * TEST_SECONDS
END = "the tests ended with status "

INIT = f"""\
#!/usr/bin/busybox sh
export PATH=/usr/bin:/usr/sbin HOME=/tmp
/usr/bin/busybox mkdir -p /proc /sys /dev /tmp
/usr/bin/busybox mount -t proc none /proc
/usr/bin/busybox mount -t sysfs none /sys
/usr/bin/busybox mount -t devtmpfs none /dev
/usr/bin/busybox mkdir -p /dev/shm
/usr/bin/busybox mount -t tmpfs -o mode=1777 none /dev/shm
/usr/bin/busybox mount -t tmpfs -o mode=1777 none /tmp
/usr/bin/busybox --install -s /usr/bin 2>/dev/null
ip link set lo up
cd /cotenant
export COTENANT_TEST_PROGRAMS=/cotenant/programs COTENANT_TEST_PATIENCE=10
{foreign.PYTHON.name} -c 'import mmap; assert mmap.PAGESIZE == {PAGE}, mmap.PAGESIZE' &&
    {foreign.PYTHON.name} -m cotenant softgpu -- {foreign.PYTHON.name} -m cotenant doctor &&
    {foreign.PYTHON.name} -m pytest -vv --color=no --tb=short -p no:cacheprovider -o timeout={TEST_SECONDS} @tests.txt
echo "{END}$?"
poweroff -f
"""


def compile_programs(folder: Path) -> Path:
    """What the tests compile where they run, compiled here: pytest sets up every test and runs none."""
    sources = sorted(
        path for part in ("native", "tests") for path in (ROOT / part).rglob("*.*") if is_source(path)
    )
    made = folder / digest(path.read_bytes() for path in sources)
    if (made / "complete").exists():
        return made
    shutil.rmtree(folder, ignore_errors=True)
    made.mkdir(parents=True)
    pytest("--setup-only", COTENANT_TEST_PROGRAMS=str(made), COTENANT_TEST_CXX=COMPILER)
    if not list(made.iterdir()):
        raise PackagingError("the tests compile no programs")
    (made / "complete").touch()
    return made


def is_source(path: Path) -> bool:
    return path.suffix in (".cpp", ".h", ".c", ".inc", ".py")


def digest(parts: Iterable[bytes]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part)
    return whole.hexdigest()[:16]


def pytest(*options: str, **settings: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", *options, *TESTS]
    env = os.environ | settings
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PackagingError(f"pytest {options[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.splitlines()


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


def make_file_system(root: Path, programs: Path) -> Path:
    """All but the list of tests."""
    made = FOLDER / "initial.cpio"
    with made.open("wb") as out:
        pack(root, out)
        write_entry(out, "init", stat.S_IFREG | 0o755, INIT.encode())
        write_entry(out, "etc/passwd", stat.S_IFREG | 0o644, b"root:x:0:0::/:/bin/sh\n")
        write_entry(out, "etc/group", stat.S_IFREG | 0o644, b"root:x:0:\n")
        write_entry(out, "cotenant", stat.S_IFDIR | 0o755, b"")
        settings = (ROOT / "pyproject.toml").read_bytes()
        write_entry(out, "cotenant/pyproject.toml", stat.S_IFREG | 0o644, settings)
        folders = {"tests": ROOT / "tests", "native": ROOT / "native", "programs": programs}
        for name, folder in folders.items():
            write_entry(out, f"cotenant/{name}", stat.S_IFDIR | 0o755, b"")
            pack(folder, out, f"cotenant/{name}/")
        write_entry(out, "TRAILER!!!", 0, b"")
    return made


def tests_left(file_system: Path) -> list[str]:
    """Without those that have passed with this very file system."""
    with file_system.open("rb") as file:
        whole = hashlib.file_digest(file, "sha256").hexdigest()
    known, *passed = PASSED.read_text().splitlines() if PASSED.exists() else [""]
    if known != whole:
        PASSED.write_text(f"{whole}\n")
        passed = []
    tests = [line for line in pytest("--collect-only") if "::" in line]
    left = [test for test in tests if test not in passed]
    if len(left) < len(tests):
        print(
            f"{len(tests) - len(left)} of {len(tests)} tests have passed before the interruption", flush=True
        )
    return left


def add_tests(file_system: Path, tests: list[str]) -> None:
    """The kernel unpacks one archive after the other."""
    with file_system.open("ab") as out:
        out.write(bytes(-out.tell() % 4))
        write_entry(out, "cotenant/tests.txt", stat.S_IFREG | 0o644, "\n".join(tests).encode())
        write_entry(out, "TRAILER!!!", 0, b"")


def lines_of(machine: subprocess.Popen[str]) -> Iterator[str]:
    """As the console has them; ends with the machine, or after a long silence."""
    heard: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        assert machine.stdout
        for line in machine.stdout:
            heard.put(line.rstrip())
        heard.put(None)

    threading.Thread(target=listen, daemon=True).start()
    while (line := heard.get(timeout=SILENT_SECONDS)) is not None:
        yield line


def boot(kernel: Path, file_system: Path) -> int:
    """The status that the tests ended with."""
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
    started, status = time.monotonic(), 1
    with (
        (FOLDER / "console.log").open("w") as console,
        PASSED.open("a") as passed,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as machine,
    ):
        try:
            for line in lines_of(machine):
                said = f"{time.monotonic() - started:6.0f} s  {line}"
                print(said, flush=True)
                print(said, file=console, flush=True)
                if found := re.match(r"(tests/.*?) (PASSED|SKIPPED)\b", line):
                    print(found[1], file=passed, flush=True)
                if line.startswith(END):
                    status = int(line.removeprefix(END))
        finally:
            machine.kill()
    if status == 0:
        PASSED.unlink()  # the next time all run again
    return status


def main() -> int:
    for tool in ("qemu-system-aarch64", COMPILER):
        if not shutil.which(tool):
            print(f"skipped: no {tool} (Debian: apt-get install qemu-system-arm g++-aarch64-linux-gnu)")
            return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
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
        shutil.rmtree(FOLDER / "wheel", ignore_errors=True)
        wheel = wheels.compile_wheel(
            MACHINE,
            FOLDER / "wheel",
            ROOT / "build" / f"cross-{MACHINE.name}",
            "cross.cmake",
            COMPILER=COMPILER,
            COTENANT_WERROR="ON",
        )
        root = foreign.root_with(MACHINE, [str(wheel), "pytest", "pytest-timeout", "hypothesis"])
        file_system = make_file_system(root, compile_programs(FOLDER / "programs"))
        add_tests(file_system, tests_left(file_system))
        print(f"booting {kernel.name}", flush=True)
        return boot(kernel, file_system)
    except PackagingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except queue.Empty:
        print(f"error: silent for {SILENT_SECONDS} s; see {FOLDER / 'console.log'}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; what has passed is not run again", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
