"""The systemd units: those in deploy/ are those of the code, systemd accepts them, and installing writes just them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant.daemon import readiness, units
from tests.conftest import TREE

if TYPE_CHECKING:
    from tests.conftest import Run

each_kind = pytest.mark.parametrize("kind", ["user", "system"])


@each_kind
def test_the_units_in_the_repository_are_those_of_the_code(kind: str) -> None:
    """`python -m cotenant.daemon.units deploy/systemd` writes them again."""
    there = TREE / "deploy" / "systemd" / f"cotenant-{kind}.service"
    assert there.read_text() == units.unit(kind == "system", "/usr/bin/cotenant")


@each_kind
def test_systemd_accepts_the_unit(kind: str, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if not analyze:
        pytest.skip("systemd-analyze is not installed")
    file = tmp_path / units.NAME
    # It looks for the program, too.
    file.write_text(units.unit(kind == "system", shutil.which("true") or "/bin/true"))
    command = [analyze, f"--{kind}", "--man=no", "verify", str(file)]
    # Without such a folder the user's manager does not come as far as the unit.
    env = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=env)
    assert "Failed to initialize" not in done.stderr
    # What is said of other units of this machine is not about ours.
    about = [line for line in (done.stdout + done.stderr).splitlines() if units.NAME in line]
    assert about == [], done.stderr
    if not (done.stdout + done.stderr).strip():
        assert done.returncode == 0


@pytest.mark.parametrize("is_abstract", [False, True])
def test_systemd_is_told_once_that_the_daemon_serves(is_abstract: bool, tmp_path: Path) -> None:
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{name}" if is_abstract else name)
        systemd.setblocking(False)
        environment = {"NOTIFY_SOCKET": f"@{name}" if is_abstract else name}
        for _ in range(2):
            readiness.tell(environment)
        assert systemd.recv(100) == b"READY=1"
        with pytest.raises(BlockingIOError):
            systemd.recv(100)
    # Nobody listens any more, or nobody ever did.
    for address in (name, "@nobody", "nonsense", ""):
        readiness.tell({"NOTIFY_SOCKET": address})
    readiness.tell({})


@each_kind
def test_a_dry_run_prints_the_unit_and_writes_nothing(
    kind: str, cotenant: Run, plain_env: dict[str, str], tmp_path: Path
) -> None:
    done = cotenant(
        "daemon", "install", f"--{kind}", "--dry-run", env=plain_env | {"XDG_CONFIG_HOME": str(tmp_path)}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == units.unit(kind == "system", units.this_program())
    assert list(tmp_path.iterdir()) == []


def test_installing_for_a_user_writes_one_file_and_says_what_comes_next(
    cotenant: Run, plain_env: dict[str, str], tmp_path: Path
) -> None:
    env = plain_env | {"XDG_CONFIG_HOME": str(tmp_path)}
    for _ in range(2):  # again: ours is written anew
        done = cotenant("daemon", "install", "--user", env=env)
        assert done.returncode == 0, done.stderr
    file = tmp_path / "systemd" / "user" / "cotenant.service"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]
    assert "systemctl --user enable" in done.stderr or "enable --now cotenant" in done.stderr
    program = units.this_program().split()[0]
    assert f"ExecStart={program}" in file.read_text() and os.access(program, os.X_OK)


def test_a_program_that_the_services_own_tmp_hides_is_known() -> None:
    assert units.is_hidden("/tmp/venv/bin/cotenant") and units.is_hidden("/var/tmp/bin/python -P -m cotenant")
    assert not units.is_hidden("/opt/cotenant/bin/cotenant") and not units.is_hidden("/tmpfs/bin/cotenant")


def test_somebody_elses_unit_is_not_overwritten(
    cotenant: Run, plain_env: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "systemd" / "user" / "cotenant.service"
    file.parent.mkdir(parents=True)
    file.write_text("[Service]\n")
    done = cotenant("daemon", "install", "--user", env=plain_env | {"XDG_CONFIG_HOME": str(tmp_path)})
    assert done.returncode == 1 and "is not ours" in done.stderr
    assert file.read_text() == "[Service]\n"


def test_a_program_without_its_script_is_named_by_its_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(python))
    assert units.this_program() == f"{python} -P -m cotenant"
    script = tmp_path / "cotenant"
    script.touch(0o755)
    assert units.this_program() == str(script)
