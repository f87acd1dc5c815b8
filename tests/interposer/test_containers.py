"""A tenant in a container (other mount, PID and user namespaces) shares the segment with those outside, with nothing
mounted but what `cotenant run --print-mounts` prints."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cotenant import segment
from cotenant.segment import pids
from tests.conftest import REAL_GPU
from tests.interposer.conftest import PROGRAMS, set_stale_ms
from tests.interposer.namespaces import skip_unless_allowed
from tests.interposer.test_gates import OBEDIENT, order, ready, rested, use
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]

pytestmark = pytest.mark.skipif(REAL_GPU, reason="the container's driver is the software GPU's")

CONTAINER = [
    "unshare",
    "--user",
    "--map-root-user",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount",
    "--mount-proc",
]


@pytest.fixture(autouse=True, scope="module")
def _allowed() -> None:
    skip_unless_allowed(CONTAINER, "user, PID and mount")


@pytest.fixture
def in_memory(softgpu_env: dict[str, str]) -> Iterator[dict[str, str]]:
    """The segment lies in /dev/shm, of which a container has its own."""
    with tempfile.TemporaryDirectory(prefix="cotenant-test-", dir="/dev/shm") as folder:
        softgpu_env["COTENANT_SEGMENT"] = f"{folder}/segment"
        yield softgpu_env


class Flags:
    """What `--print-mounts docker` printed."""

    def __init__(self, text: str) -> None:
        self.mounts = re.findall(
            r"^--mount=type=bind,source=([^,]+),target=([^,\n]+)(,readonly)?$", text, re.M
        )
        pairs = re.findall(r"^--env=([A-Z_]+)=(.*)$", text, re.M)
        self.env = dict(pairs)
        assert len(self.mounts) + len(pairs) == len(text.splitlines()), text


def printed(cotenant: Run, env: dict[str, str], *options: str) -> Flags:
    done = cotenant("run", *options, "--print-mounts", "docker", env=env)
    assert done.returncode == 0, done.stderr
    assert "use: docker run" in done.stderr
    return Flags(done.stdout)


def contained(flags: Flags, stage: Path, program: list[str]) -> list[str]:
    """The command that runs a program in a container with these flags, and with Python as its image."""
    lines = ["set -e"]
    for number, (source, _, _) in enumerate(flags.mounts):
        at = stage / str(number)
        at.mkdir() if Path(source).is_dir() else at.touch()
        lines.append(f"mount --bind {source} {at}")
    lines.append("mount -t tmpfs none /dev/shm")
    for number, (_, target, read_only) in enumerate(flags.mounts):
        if target.startswith("/dev/shm/"):
            make = "mkdir -p" if (stage / str(number)).is_dir() else f"mkdir -p {Path(target).parent}; touch"
            lines.append(f"{make} {target}")
        lines.append(f"mount --bind {stage / str(number)} {target}")
        if read_only:
            lines.append(f"mount -o remount,bind,ro {target} || true")
    lines.append('exec env "$@"')
    variables = [f"{name}={value}" for name, value in flags.env.items()]
    python = f"PYTHONPATH={PROGRAMS}:{os.environ.get('PYTHONPATH', '')}"
    return [*CONTAINER, "sh", "-c", "\n".join(lines), "-", *variables, python, *program]


@pytest.fixture
def container(in_memory: dict[str, str], cotenant: Run, tmp_path: Path) -> Iterator[Callable[..., Tenant]]:
    from tests.interposer.conftest import Tenant as Program

    started: list[Program] = []

    def start(tenant_class: str, *options: str) -> Program:
        flags = printed(cotenant, in_memory, "--class", tenant_class, *options)
        stage = tmp_path / f"container-{len(started)}"
        stage.mkdir()
        # As an image has it: nothing of Cotenant's is in its environment.
        plain = {
            name: value for name, value in os.environ.items() if not name.startswith(("COTENANT_", "LD_"))
        }
        one = Program(
            plain | {"COTENANT_SEGMENT": in_memory["COTENANT_SEGMENT"]}, tmp_path, 100 + len(started)
        )
        one.process = subprocess.Popen(
            contained(flags, stage, [sys.executable, "-u", "-c", OBEDIENT]),
            env={name: value for name, value in plain.items()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(one)
        return one

    yield start
    for one in started:
        if one.process and one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


def tenants(env: dict[str, str]) -> tuple[segment.Tenant, ...]:
    return segment.read(Path(env["COTENANT_SEGMENT"])).tenants


def inside(env: dict[str, str], tenant_class: int = 2) -> list[segment.Tenant]:
    return [one for one in tenants(env) if one.tenant_class == tenant_class]


def test_a_tenant_in_a_container_waits_for_one_outside_and_is_seen_under_its_number_here(
    in_memory: dict[str, str], tenant: Start, container: Start, cotenant: Run
) -> None:
    high = rested(tenant("production", OBEDIENT))
    set_stale_ms(Path(in_memory["COTENANT_SEGMENT"]), 60_000)
    low = ready(container("opportunistic", "--name", "contained"))
    (seen,) = inside(in_memory)
    assert seen.own_pid == 1 and seen.is_here and seen.pid > 1
    # The first process of the container, as this side counts.
    assert f"\nNSpid:\t{seen.pid}\t1\n" in Path(f"/proc/{seen.pid}/status").read_text()
    assert (seen.uid, seen.job) == (os.geteuid(), "contained")

    assert order(high, "begin") == "did begin"
    assert order(low, "queue 5") == "did queue"
    for _ in range(20):
        assert order(low, "done?") == "False"
    assert order(high, "end") == "did end"
    wait_for(lambda: order(low, "done?") == "True")

    done = cotenant("status", "-o", "json", env=in_memory)
    assert done.returncode == 0, done.stderr
    assert str(seen.pid) in done.stdout
    done = cotenant("ctl", str(seen.pid), "--class", "standard", env=in_memory)
    assert done.returncode == 0, done.stderr
    assert [one.job for one in inside(in_memory, 1)] == ["contained"]


def test_two_containers_whose_processes_have_one_number_are_told_apart(
    in_memory: dict[str, str], container: Start, cotenant: Run
) -> None:
    one, other = ready(container("opportunistic")), ready(container("opportunistic"))
    seen = inside(in_memory)
    assert [tenant.own_pid for tenant in seen] == [1, 1]
    assert len({tenant.pid for tenant in seen}) == 2
    done = cotenant("ctl", str(seen[1].pid), "--weight", "3", env=in_memory)
    assert done.returncode == 0, done.stderr
    by_pid = {tenant.pid: tenant.weight for tenant in inside(in_memory)}
    assert by_pid == {seen[0].pid: 1000, seen[1].pid: 3000}
    assert [order(job, "work 3") for job in (one, other)] == ["did work"] * 2


def test_a_container_that_is_killed_holds_nobody_back(
    in_memory: dict[str, str], tenant: Start, container: Start
) -> None:
    # This one first: the software GPU's process must not be the container's.
    low = rested(tenant("opportunistic", OBEDIENT))
    high = ready(container("production"))
    set_stale_ms(Path(in_memory["COTENANT_SEGMENT"]), 60_000)
    assert order(high, "begin") == "did begin"
    assert order(low, "queue 3") == "did queue"
    wait_for(lambda: use(tenants(in_memory), low).gated)
    (seen,) = inside(in_memory, 0)
    os.kill(seen.pid, signal.SIGKILL)
    wait_for(lambda: order(low, "done?") == "True")
    assert not inside(in_memory, 0)


def test_a_tenant_that_cannot_be_seen_is_not_taken_for_a_process_here(
    in_memory: dict[str, str], container: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As from a container beside it: its number is somebody else's here."""
    ready(container("opportunistic"))
    ready(container("opportunistic"))
    monkeypatch.setattr(pids, "PROC", tmp_path)
    monkeypatch.setattr(pids, "_found", {})
    monkeypatch.setattr(pids, "_missed", {})
    seen = inside(in_memory)
    assert [(one.pid, one.is_here) for one in seen] == [(1, False)] * 2
    assert not any(segment.is_process(one) for one in seen)
    with pytest.raises(segment.BadSegment, match="cannot be seen from here"):
        segment.with_pid(1, seen)


def test_the_cdi_file_has_a_device_for_each_class(cotenant: Run, in_memory: dict[str, str]) -> None:
    done = cotenant("run", "--print-mounts", "cdi", env=in_memory)
    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout)
    assert made["cdiVersion"] == "0.6.0"
    # As the specification has them: a domain and a class; names of letters, digits, and a few signs.
    assert re.fullmatch(r"[a-z0-9.-]+\.[a-z]+/[A-Za-z0-9_-]+", made["kind"])
    assert [device["name"] for device in made["devices"]] == ["production", "standard", "opportunistic"]
    for device in made["devices"]:
        edits = device["containerEdits"]
        assert set(edits) == {"env", "mounts"}
        variables = dict(entry.split("=", 1) for entry in edits["env"])
        assert variables["COTENANT_CLASS"] == device["name"]
        assert "COTENANT_RUN_ID" not in variables, "each container is a job of its own"
        paths = {mount["hostPath"]: mount["options"] for mount in edits["mounts"]}
        assert all(mount["containerPath"] == mount["hostPath"] for mount in edits["mounts"])
        assert "ro" not in paths[variables["COTENANT_SEGMENT"]]
        assert any(variables["LD_PRELOAD"].startswith(path) and "ro" in how for path, how in paths.items())


def test_podman_gets_its_own_flags(cotenant: Run, in_memory: dict[str, str]) -> None:
    done = cotenant("run", "--print-mounts", "podman", env=in_memory)
    assert "--security-opt=label=disable" in done.stdout.splitlines()


def test_a_path_that_the_shell_would_split_is_refused(cotenant: Run, in_memory: dict[str, str]) -> None:
    path = f"{in_memory['COTENANT_SEGMENT']} 2"
    done = cotenant("run", "--segment", path, "--print-mounts", "docker", env=in_memory)
    assert (done.returncode, done.stdout) == (2, "")
    assert "would be several words" in done.stderr
