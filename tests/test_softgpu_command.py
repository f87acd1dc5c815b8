"""`cotenant softgpu` puts the software GPU where the loader and `cotenant run` look for a driver."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Run

COTENANT = (sys.executable, "-m", "cotenant")


@pytest.fixture
def env(native: Path, plain_env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """A native folder whose software GPU is a loadable library that does nothing."""
    folder = tmp_path / "stand-ins"
    library = (native / "libcotenant_wire.so").read_bytes()
    for path in ("libcotenant_wire.so", "shim/libcuda.so.1", "softgpu/libcuda.so.1", "softgpu/softgpud"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(library)
    (folder / "devices").mkdir()
    for name in ("small", "h200"):
        (folder / "devices" / f"{name}.gpu").write_text("name = X\n")
    kept = {k: v for k, v in plain_env.items() if k not in ("LD_LIBRARY_PATH", "LD_PRELOAD")}
    return kept | {"COTENANT_NATIVE": str(folder)}


def seen(cotenant: Run, env: dict[str, str], *arguments: str) -> dict[str, str]:
    done = cotenant("softgpu", *arguments, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def test_the_command_finds_it_first(cotenant: Run, env: dict[str, str]) -> None:
    softgpu = env["COTENANT_NATIVE"] + "/softgpu"
    assert seen(cotenant, env, "--", "env")["LD_LIBRARY_PATH"] == softgpu
    assert seen(cotenant, env, "env")["COTENANT_SOFTGPU"] == "small"
    there = env | {"LD_LIBRARY_PATH": "/opt/lib:/other"}
    assert seen(cotenant, there, "env")["LD_LIBRARY_PATH"] == softgpu + ":/opt/lib:/other"


def test_devices_and_sharing_are_handed_on(cotenant: Run, env: dict[str, str], tmp_path: Path) -> None:
    own = tmp_path / "own.gpu"
    own.write_text("name = Y\n")
    given = seen(cotenant, env, "--device", f"h200,small,{own}", "--sharing", "all-at-once", "--", "env")
    assert given["COTENANT_SOFTGPU"] == f"h200,small,{own}"
    assert given["COTENANT_SOFTGPU_SHARING"] == "all-at-once"


def test_an_unknown_device_is_an_error(cotenant: Run, env: dict[str, str]) -> None:
    done = cotenant("softgpu", "--device", "h100", "--", "true", env=env)
    assert done.returncode == 2
    assert done.stderr == "error: unknown device 'h100'\nhint: did you mean 'h200'?\n"
    done = cotenant("softgpu", "--device", "/no/such.gpu", "--", "true", env=env)
    assert done.returncode == 2
    assert done.stderr.splitlines()[1] == "hint: shipped devices: h200, small"


def test_list_names_the_shipped_devices(cotenant: Run, env: dict[str, str]) -> None:
    done = cotenant("softgpu", "--list", env=env)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["h200", "small"]


def test_run_inside_shares_the_software_gpu(cotenant: Run, env: dict[str, str]) -> None:
    inside = seen(cotenant, env, "--", *COTENANT, "run", "--class", "production", "--", "env")
    assert inside["COTENANT_DRIVER"] == env["COTENANT_NATIVE"] + "/softgpu/libcuda.so.1"
    assert inside["LD_PRELOAD"] == env["COTENANT_NATIVE"] + "/shim/libcuda.so.1"


def test_inside_a_run_it_takes_the_place_of_the_runs_driver(cotenant: Run, env: dict[str, str]) -> None:
    shim = env["COTENANT_NATIVE"] + "/shim/libcuda.so.1"
    other = env["COTENANT_NATIVE"] + "/libcotenant_wire.so"
    outer = env | {"COTENANT_DRIVER": "/usr/lib/libcuda.so.1", "LD_PRELOAD": f"{shim}:{other}"}
    inside = seen(cotenant, outer, "--", "env")
    assert "COTENANT_DRIVER" not in inside
    assert inside["LD_PRELOAD"] == other
    assert "LD_PRELOAD" not in seen(cotenant, env | {"LD_PRELOAD": shim}, "--", "env")


def test_a_package_without_it_says_so(cotenant: Run, env: dict[str, str]) -> None:
    (Path(env["COTENANT_NATIVE"]) / "softgpu" / "libcuda.so.1").unlink()
    done = cotenant("softgpu", "--", "echo", "started", env=env)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is missing" in done.stderr


def test_a_missing_program_is_127(cotenant: Run, env: dict[str, str]) -> None:
    assert cotenant("softgpu", "--", "no-such-program", env=env).returncode == 127
