"""The units under a running systemd, for the system and for a user: start, stop, restart, a killed daemon, permissions.

`make test-systemd` runs them where a machine can be booted in namespaces; elsewhere it says why not.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd.machine import Machine, why_not
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(
    not os.environ.get("COTENANT_TEST_SYSTEMD"), reason="boots a systemd: make test-systemd"
)

SHARED = "/dev/shm/cotenant.shared"
# It works a little all the time, and says so.
GUEST = """
import sys, time
sys.path.insert(0, "/opt/programs")
from soft import Gpu
gpu = Gpu()
while True:
    gpu.launch(gpu.kernel("empty"))
    gpu.synchronize()
    print("computed", flush=True)
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    if reason := why_not():
        pytest.skip(reason)
    booted = Machine()
    try:
        yield booted
    finally:
        booted.end()


def done(machine: Machine, *words: str, user: str = "root", **variables: str) -> str:
    result = machine.run(*words, user=user, **variables)
    assert result.returncode == 0, f"{words}: {result.stdout}{result.stderr}"
    return result.stdout


def refused(machine: Machine, *words: str, user: str) -> str:
    result = machine.run(*words, user=user)
    assert result.returncode != 0, f"{words}: {result.stdout}"
    return result.stderr


@contextlib.contextmanager
def job(machine: Machine, user: str, name: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    run = ("cotenant", "softgpu", "--", "cotenant", "run", "--no-daemon", "--name", name, *options, "--")
    with subprocess.Popen(
        machine.command(*run, "/opt/cotenant/bin/python", "-c", GUEST, user=user),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
    ) as guest:
        try:
            computes(guest)
            yield guest
        finally:
            machine.run("pkill", "--signal", "KILL", "--full", f"--uid={user}", "/opt/programs")
            guest.kill()


def computes(guest: subprocess.Popen[str]) -> None:
    assert guest.stdout is not None and guest.stderr is not None
    assert guest.stdout.readline() == "computed\n", guest.stderr.read()


def tenants(machine: Machine, user: str = "root") -> dict[str, dict[str, object]]:
    text = done(machine, "cotenant", "status", "--interval", "0", "-o", "json", user=user)
    return {one["job"]: one for one in json.loads(text)["tenants"]}


def main_pid(machine: Machine, *which: str, user: str = "root", **variables: str) -> int:
    show = ("systemctl", *which, "show", "--property=MainPID", "--value", "cotenant")
    return int(done(machine, *show, user=user, **variables))


def is_active(machine: Machine, *which: str, user: str = "root", **variables: str) -> bool:
    state = machine.run("systemctl", *which, "is-active", "cotenant", user=user, **variables)
    return state.stdout == "active\n"


@pytest.fixture(autouse=True)
def starts_count_anew(machine: Machine) -> None:
    """systemd refuses the sixth start within 10 s, and these tests are quick."""
    machine.run("systemctl", "reset-failed")


@pytest.fixture(scope="module")
def served(machine: Machine) -> Machine:
    """As docs/two-users.md has it."""
    settings = "COTENANT_SEGMENT_ALLOW=alice=production\nCOTENANT_DAEMON_ADMINS=gpu-admins\n"
    library = "LD_LIBRARY_PATH=" + done(
        machine, "python", "-c", "from cotenant.launch import native_files; print(native_files.softgpu())"
    )
    done(machine, "sh", "-c", f"echo '{settings}{library}' > /etc/default/cotenant")
    done(machine, "cotenant", "daemon", "install", "--system")
    done(machine, "sh", "-c", "systemctl daemon-reload && systemctl enable --now cotenant")
    return machine


def test_the_system_unit_makes_the_segment_and_serves_it(served: Machine) -> None:
    assert is_active(served)
    modes = done(served, "stat", "--format=%n %U %a", SHARED, f"{SHARED}/header", f"{SHARED}/daemon.socket")
    assert modes.splitlines() == [
        f"{SHARED} root 755",
        f"{SHARED}/header root 644",
        f"{SHARED}/daemon.socket root 666",
    ]
    grants = done(served, "cotenant", "segment", "grants", user="bob")
    assert "alice" in grants and "production" in grants


def test_it_is_started_with_the_machine(served: Machine) -> None:
    """What boots a machine asks for this target."""
    done(served, "systemctl", "stop", "cotenant")
    done(served, "rm", "-r", SHARED)
    done(served, "systemctl", "start", "multi-user.target")
    wait_for(lambda: is_active(served))
    assert "alice" in done(served, "cotenant", "segment", "grants")


def test_a_user_steers_own_jobs_and_an_administrator_all(served: Machine) -> None:
    with job(served, "alice", "hers", "--class", "production"), job(served, "bob", "his"):
        seen = tenants(served, user="carol")
        assert {name: (one["user"], one["class"]) for name, one in seen.items()} == {
            "hers": ("alice", "production"),
            "his": ("bob", "standard"),
        }
        done(served, "cotenant", "ctl", "his", "--weight", "3", user="bob")
        refused(served, "cotenant", "ctl", "hers", "--weight", "3", user="bob")
        done(served, "cotenant", "ctl", "hers", "--weight", "5", user="carol")
        weights = {name: one["weight"] for name, one in tenants(served).items()}
        assert weights == {"hers": 5, "his": 3}
        carol, alice = (done(served, "id", "--user", name).strip() for name in ("carol", "alice"))
        journal = done(served, "journalctl", "--unit=cotenant", "--output=cat", "--no-pager")
        assert re.search(rf"user {carol} asks tenant \d+ of user {alice}: .*weight", journal), journal


def test_a_restarted_daemon_takes_the_running_jobs_over(served: Machine) -> None:
    done(served, "cotenant", "ctl", "--policy", "strict")
    with job(served, "alice", "hers") as guest:
        before, pid = main_pid(served), tenants(served)["hers"]["pid"]
        done(served, "systemctl", "restart", "cotenant")
        assert main_pid(served) not in (0, before)
        assert tenants(served)["hers"]["pid"] == pid
        wait_for(lambda: "strict" in done(served, "cotenant", "explain", "hers"))
        done(served, "cotenant", "ctl", "hers", "--weight", "2", user="carol")
        computes(guest)


def test_a_killed_daemon_is_started_again_and_a_stopped_one_is_not(served: Machine) -> None:
    with job(served, "bob", "his") as guest:
        before = main_pid(served)
        done(served, "systemctl", "kill", "--signal=KILL", "cotenant")
        wait_for(lambda: is_active(served) and main_pid(served) not in (0, before))
        done(served, "cotenant", "ctl", "his", "--weight", "4", user="carol")
        done(served, "systemctl", "stop", "cotenant")
        assert not is_active(served)
        assert served.run("test", "-e", f"{SHARED}/daemon.socket").returncode == 1
        computes(guest)  # without a daemon the rules go on
        done(served, "systemctl", "start", "cotenant")
        assert tenants(served)["his"]["weight"] == 4


def test_a_daemon_that_somebody_started_by_hand_hands_over_to_the_unit(served: Machine) -> None:
    done(served, "systemctl", "stop", "cotenant")
    by_hand = subprocess.Popen(
        served.command("cotenant", "daemon", "--segment", SHARED, "--linger", "inf"),
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
    )
    wait_for(lambda: served.run("test", "-S", f"{SHARED}/daemon.socket").returncode == 0)
    done(served, "systemctl", "start", "cotenant")
    assert by_hand.wait(60) == 0
    assert is_active(served)


def test_beside_a_segment_of_all_users_the_users_unit_is_not_started(
    served: Machine, hers: dict[str, str]
) -> None:
    done(served, "systemctl", "--user", "start", "cotenant", user="alice", **hers)
    assert not is_active(served, "--user", user="alice", **hers)


@pytest.fixture(scope="module")
def hers(machine: Machine) -> dict[str, str]:
    """Alice's own systemd, as after a login, with her unit; what her commands need to find it."""
    uid = done(machine, "id", "--user", "alice").strip()
    done(machine, "systemctl", "start", f"user@{uid}.service")
    variables = {"XDG_RUNTIME_DIR": f"/run/user/{uid}"}
    done(machine, "cotenant", "daemon", "install", "--user", user="alice", **variables)
    done(machine, "systemctl", "--user", "daemon-reload", user="alice", **variables)
    done(machine, "systemctl", "--user", "enable", "cotenant", user="alice", **variables)
    return variables


@pytest.fixture(scope="module")
def own(machine: Machine, served: Machine, hers: dict[str, str]) -> dict[str, str]:
    """No segment of all users any more."""
    done(served, "systemctl", "disable", "--now", "cotenant")
    done(served, "rm", "-r", SHARED)
    return hers


def test_the_users_unit_starts_with_her_systemd(machine: Machine, own: dict[str, str]) -> None:
    uid = Path(own["XDG_RUNTIME_DIR"]).name
    done(machine, "systemctl", "restart", f"user@{uid}.service")
    wait_for(lambda: is_active(machine, "--user", user="alice", **own))
    files = done(machine, "sh", "-c", f"stat --format='%n %U %a' /dev/shm/cotenant-{uid}*").splitlines()
    assert files and all(line.split()[1:] in (["alice", "600"], ["alice", "700"]) for line in files), files


def test_her_daemon_is_restarted_under_running_jobs_and_serves_nobody_else(
    machine: Machine, own: dict[str, str]
) -> None:
    with job(machine, "alice", "hers", "--class", "opportunistic") as guest:
        before, pid = (
            main_pid(machine, "--user", user="alice", **own),
            tenants(machine, "alice")["hers"]["pid"],
        )
        done(machine, "systemctl", "--user", "restart", "cotenant", user="alice", **own)
        assert main_pid(machine, "--user", user="alice", **own) not in (0, before)
        done(machine, "systemctl", "--user", "kill", "--signal=KILL", "cotenant", user="alice", **own)
        wait_for(lambda: is_active(machine, "--user", user="alice", **own))
        assert tenants(machine, "alice")["hers"]["pid"] == pid
        assert tenants(machine, "bob") == {}
        computes(guest)
    done(machine, "systemctl", "--user", "stop", "cotenant", user="alice", **own)
    assert not is_active(machine, "--user", user="alice", **own)


def test_nothing_is_left_when_the_machine_ends() -> None:
    if reason := why_not():
        pytest.skip(reason)
    short = Machine()
    first = short.first()
    short.end()
    assert first and not Path(f"/proc/{first}").exists()
