"""A small machine in which the examples of --help are typed: namespaces of its own, four jobs on the software GPU, the
files that the examples name, and stand-ins for the programs of others.

    unshare --mount --pid --fork --net --kill-child python -m tests.examples.house FOLDER

It takes a line of JSON for each example, and answers with one. It ends, with all that was started in it, at the end of
its input. It has a /dev/shm, process numbers and ports of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from cotenant.cli import main
from tests.conftest import TREE

SEGMENT = "/dev/shm/jobs"
# What an example says of a process.
PID = 4711
PATIENCE_S = 120.0

OUT = Path("out")

# It computes a little; with STAY it stays, as a server does, until it is ended.
JOB = f"""\
import os, sys, time
sys.path.insert(0, {str(TREE / "tests" / "interposer" / "programs")!r})
from soft import Gpu, check, driver
gpu = Gpu()
check(driver.cuMemAlloc(1 << 20))
kernel = gpu.kernel("long")
for _ in range(10):
    gpu.launch(kernel)
    gpu.synchronize()
while os.environ.get("STAY"):
    time.sleep(1)
"""
POLICY = """\
from cotenant.policies.strict import Strict

class Mine(Strict):
    name = "mine"
"""
WORKLOAD = """\
[[job]]
name = "{name}"
arrivals = "poisson"
rate = 1
[[job.ops]]
us = 5000
"""
CONFIG = """\
[run]
class = "opportunistic"
"""
# Programs that are others', as far as the examples need them.
STAND_INS = {
    "sudo": 'exec "$@"',
    "docker": 'case "$*" in *COTENANT_CLASS=standard*LD_PRELOAD=*) ;; *) exit 1 ;; esac',
    "kubectl": 'test "$1" = apply && grep -c "^kind: "',
    "jq": "exec python -m json.tool --json-lines",
    "nvidia-smi": "true",
    "sponge": "grep -c ^cotenant_",
    "ssh": 'shift 3; exec "$@"',
    "torchrun": 'exec python "$3"',
}


def furnish(folder: Path) -> None:
    mount = ("mount", "-t", "tmpfs", "none")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)
    subprocess.run([*mount, "/dev/shm"], check=True)
    for name, lines in (
        ("passwd", "alice:x:2001:2001::/:/bin/sh\nbob:x:2002:2002::/:/bin/sh\n"),
        ("group", "gpu-users:x:2011:\ngpu-admins:x:2012:\nserving:x:2013:\n"),
    ):
        mine = folder / name
        mine.write_text(Path("/etc", name).read_text() + lines)
        subprocess.run(["mount", "--bind", mine, f"/etc/{name}"], check=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        up = struct.pack("16sh", b"lo", 0x1)
        fcntl.ioctl(any_socket, 0x8914, up)  # SIOCSIFFLAGS, IFF_UP

    programs = folder / "bin"
    programs.mkdir()
    for name, text in STAND_INS.items():
        if name == "jq" and shutil.which("jq"):
            continue
        (programs / name).write_text(f"#!/bin/bash\n{text}\n")
        (programs / name).chmod(0o755)

    template = folder / "template"
    template.mkdir()
    os.chdir(template)
    for name in ("serve.py", "train.py", "finetune.py", "model.py", "batch.py", "sweep.py"):
        Path(name).write_text(JOB)
    Path("my-program").write_text(f"#!{sys.executable}\n{JOB}")
    Path("my-program").chmod(0o755)
    Path("mine.py").write_text(POLICY)
    Path("config.toml").write_text(CONFIG)
    traces = TREE / "examples" / "traces"
    for name, of in (
        ("serving", "encoder"),
        ("training", "training"),
        ("job", "encoder"),
        ("serve", "encoder"),
    ):
        shutil.copy(traces / f"{of}.trace", f"{name}.trace")
    Path("my-jobs.toml").write_text(WORKLOAD.format(name="serving") + WORKLOAD.format(name="training"))
    Path("training.toml").write_text(WORKLOAD.format(name="training"))
    shutil.copy(TREE / "src" / "cotenant" / "cluster" / "predict" / "h200.csv", "my-pairs.csv")

    os.environ |= {
        "HOME": str(folder / "home"),
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "COTENANT_SEGMENT": SEGMENT,
        "OPENBLAS_NUM_THREADS": "1",
        "MPLCONFIGDIR": str(folder),  # one cache of fonts for all
    }
    for name in (
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_STATE_HOME",
        "COTENANT_NO_DAEMON",
    ):
        os.environ.pop(name, None)


def fresh(folder: Path) -> None:
    """A home and a folder that no earlier example has used. A process may still write into the earlier ones."""
    os.chdir("/")
    for name in ("home", "here"):
        there = folder / name
        if there.exists():
            there.rename(folder / f"{name}-{time.monotonic_ns()}")
    (folder / "home").mkdir()
    shutil.copytree(folder / "template", folder / "here")
    os.chdir(folder / "here")


def start_jobs() -> None:
    for name, tenant_class in (
        ("serve.py", "production"),
        ("train.py", "standard"),
        ("finetune.py", "opportunistic"),
    ):
        start_job("run", "--class", tenant_class, "python", name)
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(PID - 1))
    assert start_job("run", "--class", "opportunistic", "python", "sweep.py") == PID
    deadline = time.monotonic() + PATIENCE_S
    while tenants() < 4:
        assert time.monotonic() < deadline, "the jobs do not start"
        time.sleep(0.2)


def tenants() -> int:
    done = typed("cotenant status --interval 0 -o json")
    return len(json.loads(done.out)["tenants"]) if done.status == 0 else 0  # there may be no segment yet


def start_job(*words: str) -> int:
    os.environ["STAY"] = "1"
    try:
        return start(["cotenant", *words], OUT.with_name("job"), OUT.with_name("job"))
    finally:
        del os.environ["STAY"]


def start(words: list[str], out: Path, err: Path) -> int:
    """A process of its own group. What Cotenant does needs no new interpreter: the child has imported it already."""
    if child := os.fork():
        with contextlib.suppress(OSError):  # the child has become something else already
            os.setpgid(child, child)
        return child
    status = 70
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, file in ((1, out), (2, err)):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        if words[0] == "cotenant":
            status = main(words[1:])
            sys.stdout.flush()
        else:
            os.execvp(words[0], words)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


@dataclass(frozen=True)
class Typed:
    status: int
    out: str
    err: str


def typed(line: str, until: str = "", variables: Mapping[str, str] | None = None) -> Typed:
    """What typing it gives. With `until` it gets a Ctrl-C when it has printed that, or made that file."""
    os.environ |= {"COTENANT_SEGMENT": SEGMENT, **(variables or {})}
    is_plain = line.startswith("cotenant ") and not set(line) & set("|&;<>$~*`")
    out, err = OUT, OUT.with_name("err")
    for file in (out, err):
        file.write_text("")  # what the last one printed says nothing about this one
    child = start(
        shlex.split(line)
        if is_plain
        else ["bash", "-c", ("" if line.endswith("| head") else "set -o pipefail; ") + line],
        out,
        err,
    )
    deadline = time.monotonic() + PATIENCE_S
    is_interrupted = False
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        text = out.read_text(errors="replace") + err.read_text(errors="replace")
        if ended:
            break
        is_up = Path(until).exists() if until.startswith("/") else bool(until) and until in text
        if is_up and not is_interrupted:
            os.killpg(child, signal.SIGINT)
            is_interrupted = True
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.005)
    # The line's own processes end with it, and what it left in the background stays.
    code = os.waitstatus_to_exitcode(status)
    if is_interrupted and code in (-signal.SIGINT, 128 + signal.SIGINT):
        code = 0
    return Typed(code, out.read_text(errors="replace"), err.read_text(errors="replace"))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    OUT = place / "out"
    furnish(place)
    fresh(place)
    start_jobs()
    print("ready", flush=True)
    for request in sys.stdin:
        fresh(place)
        asked = json.loads(request)
        answer = Typed(0, "", "")
        for before in (*asked["before"], asked["line"]):
            if answer.status == 0:
                answer = typed(before, asked["until"] if before == asked["line"] else "", asked["variables"])
        print(json.dumps(asdict(answer)), flush=True)
