"""A machine at its limits: a full disk, /dev/shm that is full, read-only or missing, a terminal that goes away, a clock
that jumps. A job runs on without sharing, a command says one line, nothing is written where it should not be."""

from __future__ import annotations

import ast
import contextlib
import os
import pty
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cotenant import segment
from cotenant.mps import last_runs, pairs
from cotenant.policies.interface import Met, Pair
from cotenant.profile import store
from tests.conftest import REAL_GPU, TREE, processes_naming
from tests.interposer.conftest import PROGRAMS
from tests.waiting import wait_for

NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
LAUNCHES = """
from soft import Gpu
gpu = Gpu(); gpu.launch(gpu.kernel('empty')); gpu.synchronize(); print('computed')
"""
# Of /dev, what programs need besides /dev/shm.
WITHOUT_SHM = """
mkdir -p "$0/dev" && mount -t tmpfs none "$0/dev"
for name in null zero full urandom tty; do touch "$0/dev/$name"; mount --bind "/dev/$name" "$0/dev/$name"; done
mount --rbind "$0/dev" /dev
"""
SHM = {
    "full": "mount -t tmpfs -o size=64k none /dev/shm",
    "read-only": "mount -t tmpfs -o ro none /dev/shm",
    "missing": WITHOUT_SHM,
}
REASONS = {"full": "No space left", "read-only": "Read-only", "missing": "No such file"}


@pytest.fixture
def namespace(tmp_path: Path) -> Callable[..., list[str]]:
    """`namespace(script, command...)`: the command, in a mount namespace in which the script has run."""
    try:
        done = subprocess.run(
            [*NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("no unshare command")
    if done.returncode:
        pytest.skip(f"no mount namespaces here: {done.stderr.decode().strip()}")
    return lambda script, *command: [
        *NAMESPACE,
        "sh",
        "-c",
        f'set -e\n{script}\nexec "$@"',
        str(tmp_path),
        *command,
    ]


def as_a_job(env: dict[str, str]) -> dict[str, str]:
    """Its segment is the default one, in /dev/shm."""
    env = {name: value for name, value in env.items() if name != "COTENANT_SEGMENT"}
    return env | {"PYTHONPATH": os.pathsep.join([str(PROGRAMS), env["PYTHONPATH"]])}


def call(command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.skipif(REAL_GPU, reason="it is about the shared memory, not about the GPU")
@pytest.mark.parametrize("state", SHM)
def test_a_job_runs_without_sharing_where_there_is_no_shared_memory(
    state: str, namespace: Callable[..., list[str]], softgpu_env: dict[str, str]
) -> None:
    cotenant = [sys.executable, "-m", "cotenant"]
    env = as_a_job(softgpu_env)
    done = call(namespace(SHM[state], *cotenant, "run", "--", sys.executable, "-c", LAUNCHES), env)
    assert (done.returncode, done.stdout) == (0, "computed\n"), done.stderr
    (line,) = done.stderr.splitlines()
    assert REASONS[state] in line and "running without sharing" in line

    done = call(namespace(SHM[state], *cotenant, "run", "--require", "--", "true"), env)
    assert done.returncode == 1 and REASONS[state] in done.stderr.splitlines()[0]


@pytest.mark.parametrize("state", SHM)
def test_commands_say_one_line_where_there_is_no_shared_memory(
    state: str, namespace: Callable[..., list[str]], softgpu_env: dict[str, str]
) -> None:
    env = as_a_job(softgpu_env)
    for words in (["status"], ["ctl", "--policy", "fair"], ["daemon", "--linger", "0"], ["doctor"]):
        done = call(namespace(SHM[state], sys.executable, "-m", "cotenant", *words), env)
        assert "Traceback" not in done.stderr, (words, done.stderr)
        if words[0] == "daemon":
            assert REASONS[state] in done.stderr and done.returncode == 1


@pytest.mark.skipif(REAL_GPU, reason="it is about the shared memory, not about the GPU")
def test_a_disk_that_is_full_once_jobs_run_harms_none(
    namespace: Callable[..., list[str]], softgpu_env: dict[str, str]
) -> None:
    """The segment has all its pages from the beginning: the next tenant needs none."""
    script = """
mount -t tmpfs -o size=4m none /dev/shm
"$3" -m cotenant run -- true
! cat /dev/zero > /dev/shm/rest 2> /dev/null
"""
    command = [
        "env",
        "--",
        sys.executable,
        "-m",
        "cotenant",
        "run",
        "--require",
        "--",
        sys.executable,
        "-c",
        LAUNCHES,
    ]
    done = call(namespace(script, *command), as_a_job(softgpu_env))
    assert (done.returncode, done.stdout, done.stderr) == (0, "computed\n", "")


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["status", "-o", "json"],
        ["policies"],
        ["top", "--once"],
        ["run", "--dry-run", "--", "true"],
    ],
    ids=" ".join,
)
def test_output_to_a_full_disk_is_an_error_of_one_line(words: list[str], plain_env: dict[str, str]) -> None:
    segment.ensure(Path(plain_env["COTENANT_SEGMENT"]))
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cotenant", *words],
            env=plain_env,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: No space left on device"
    assert "Traceback" not in done.stderr


# --- what is written where


@pytest.mark.skipif(REAL_GPU, reason="the software GPU's folder is part of the test")
def test_nothing_is_written_outside_of_the_shared_memory_and_the_runtime_folder(
    namespace: Callable[..., list[str]], softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    """The whole file system is read-only but for these two; the home folder too."""
    runtime = tempfile.mkdtemp(prefix="cotenant-test-")
    shared = tempfile.mkdtemp(prefix="cotenant-test-", dir="/dev/shm")
    env = as_a_job(softgpu_env) | {
        "HOME": str(tmp_path),
        "COTENANT_SEGMENT": f"{shared}/segment",
        "COTENANT_SOFTGPU_DIR": runtime,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # Each mount by itself: a read-only one has others below it.
    script = f"""
mount --bind {runtime} {runtime}
mount --bind {shared} {shared}
awk '{{print $5}}' /proc/self/mountinfo | sort | while read -r at; do
    case $at in {runtime}|{shared}|/proc*|/sys*) ;; *) mount -o remount,bind,ro "$at" 2> /dev/null || true ;; esac
done
! touch {tmp_path}/written 2> /dev/null
! touch /dev/shm/written 2> /dev/null
"""
    python = [sys.executable, "-m", "cotenant"]
    try:
        done = call(namespace(script, *python, "run", "--require", "--", sys.executable, "-c", LAUNCHES), env)
        if "written" in str(list(tmp_path.iterdir())):
            pytest.skip("a mount cannot be made read-only here")
        assert (done.returncode, done.stdout, done.stderr) == (0, "computed\n", "")
        for words in (["status"], ["explain"], ["doctor"], ["policies"], ["daemon", "--linger", "0"]):
            done = call(namespace(script, *python, *words), env)
            assert "Read-only file system" not in done.stderr + done.stdout, (words, done.stderr)
            assert "Traceback" not in done.stderr, (words, done.stderr)
        left = {path: stat.S_IMODE(path.lstat().st_mode) for path in Path(shared).iterdir()}
        assert {path.name for path in left} == {"segment", "segment.daemon.events"}
        assert set(left.values()) == {0o600}
        assert all(stat.S_IMODE(path.lstat().st_mode) & 0o077 == 0 for path in Path(runtime).iterdir())
    finally:
        wait_for(lambda: not processes_naming([Path(runtime)]))
        shutil.rmtree(runtime)
        shutil.rmtree(shared)


# --- the clock


def wall_clock_reads(path: Path) -> list[str]:
    """The functions in which a Python file reads the wall clock."""
    found = []

    class Visitor(ast.NodeVisitor):
        where = "module"

        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            before, self.where = self.where, node.name
            self.generic_visit(node)
            self.where = before

        def visit_Call(self, node: ast.Call) -> None:
            text = ast.unparse(node.func)
            if text in (
                "time.time",
                "time.time_ns",
                "datetime.now",
                "datetime.datetime.now",
                "datetime.utcnow",
            ):
                found.append(self.where)
            self.generic_visit(node)

    Visitor().visit(ast.parse(path.read_text()))
    return found


# What decides: the others show moments to people, and write them into files.
DECIDING = ("segment", "daemon", "policies", "launch")
SHOWN = {"src/cotenant/daemon/report.py": {"__init__", "show"}}  # when a decision was made


def test_what_is_kept_of_jobs_only_their_user_can_read(tmp_path: Path) -> None:
    learned = {Pair("serve.py", "train.py", True): Met(0.01)}
    before = os.umask(0o022)
    try:
        for part in ("last run", "pairs", "profile"):
            home = tmp_path / part
            home.mkdir()
            environment = {"HOME": str(home)}
            if part == "last run":
                assert last_runs.prepare(environment, "train.py")
            elif part == "pairs":
                assert pairs.keep(pairs.file_in(environment), "GPU-1", learned)
            else:
                store.check_place(environment)
            assert oct((home / ".cache" / "cotenant").stat().st_mode & 0o777) == "0o700", part
    finally:
        os.umask(before)


def test_nothing_is_decided_by_a_clock_that_can_be_set() -> None:
    for folder in DECIDING:
        for path in sorted((TREE / "src" / "cotenant" / folder).rglob("*.py")):
            name = path.relative_to(TREE).as_posix()
            assert set(wall_clock_reads(path)) <= SHOWN.get(name, set()), f"{name} reads the wall clock"


def test_the_native_side_reads_no_clock_that_can_be_set() -> None:
    clock = re.compile(
        r"CLOCK_REALTIME\b|system_clock|gettimeofday|\btime\((?:NULL|nullptr|0)\)|FUTEX_CLOCK_REALTIME"
    )
    # The head of a trace says when it was recorded.
    allowed = {"native/tenant/record/trace_file.cpp"}
    found = {
        path.relative_to(TREE).as_posix()
        for path in (TREE / "native").rglob("*")
        if path.suffix in (".cpp", ".h") and clock.search(path.read_text())
    }
    assert found <= allowed


def test_a_clock_that_jumps_changes_no_reports_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cotenant.daemon import report

    monkeypatch.setattr(time, "time", iter([1e9, 1e9, 5.0, 4e9, 1e9, 1e9]).__next__)
    path = tmp_path / "segment"
    segment.ensure(path)
    one = report.Report(path)
    assert one.is_due()
    for text in ("First.", "Second.", "Third."):
        one.show("guard", "", {(1, 2, 0): [text]})
        shown = report.read(path)
        assert shown and shown.tenants[0].decisions[-1].text == text
    one.pause(0.0)
    assert not one.is_due()
    wait_for(one.is_due)


# --- the terminal


TAKES_THE_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
if sys.argv[1] == '1': signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, '-m', 'cotenant', *sys.argv[2:]])
"""


class Terminal:
    """A command on a terminal of its own, which can be closed."""

    def __init__(self, words: list[str], env: dict[str, str], errors: Path, is_ignored: bool) -> None:
        self.side, inner = pty.openpty()
        self.errors = errors

        with errors.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", TAKES_THE_TERMINAL, str(int(is_ignored)), *words],
                env=env | {"TERM": "xterm"},
                stdin=inner,
                stdout=inner,
                stderr=log,
                start_new_session=True,
            )
        os.close(inner)
        os.set_blocking(self.side, False)
        self.shown = b""

    def shows(self, text: bytes) -> bool:
        with contextlib.suppress(BlockingIOError):
            self.shown += os.read(self.side, 1 << 16)
        return text in self.shown

    def close(self) -> int:
        os.close(self.side)
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()


@pytest.mark.parametrize("is_ignored", [False, True], ids=["SIGHUP", "ignored"])
def test_top_ends_with_its_terminal(plain_env: dict[str, str], tmp_path: Path, is_ignored: bool) -> None:
    segment.ensure(Path(plain_env["COTENANT_SEGMENT"]))
    one = Terminal(["top"], plain_env, tmp_path / "errors", is_ignored)
    wait_for(lambda: one.shows(b"GPU"))
    one.close()
    assert "Traceback" not in one.errors.read_text()


@pytest.mark.skipif(REAL_GPU, reason="it brings a software GPU of its own")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_demo_whose_terminal_goes_leaves_nothing_behind(
    softgpu_env: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings are not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    mark = f"hardening-{os.getpid()}-{number}"
    env = softgpu_env | {"COTENANT_TEST_MARK": mark}
    words = ["demo", "--seconds", "20", "--software-gpu", "--output", str(tmp_path / "report")]
    with (tmp_path / "errors").open("w+") as errors:
        # Under nohup the signal would be ignored, as nohup wants it.
        demo = subprocess.Popen(
            [sys.executable, "-m", "cotenant", *words],
            env=env,
            stderr=errors,
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # noqa: PLW1509 - pytest's own thread forks
        )
        try:
            wait_for(lambda: bool(folders_of(mark)))
            there = folders_of(mark)
            demo.send_signal(number)
            assert demo.wait(60) == 128 + number
        finally:
            demo.kill()
            demo.wait()
        assert "Traceback" not in (tmp_path / "errors").read_text()
    wait_for(lambda: not marked(mark))
    assert not any(folder.exists() for folder in there)


NOHUP = """
import signal
from cotenant import endings
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with endings.tidy():
    signal.raise_signal(signal.SIGHUP)
    print('runs on')
assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
"""


def test_a_command_under_nohup_outlives_its_terminal() -> None:
    done = subprocess.run([sys.executable, "-c", NOHUP], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "runs on\n"), done.stderr


def marked(mark: str) -> list[Path]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if f"COTENANT_TEST_MARK={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(entry)
            except OSError:
                continue
    return found


def folders_of(mark: str) -> set[Path]:
    """The temporary folders that its processes name."""
    found = set()
    for entry in marked(mark):
        try:
            text = (entry / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        found |= {
            Path(one).parent for one in re.findall(r"COTENANT_SEGMENT=(\S*?cotenant-demo-[^\0]*)\0", text)
        }
    return found
