"""`cotenant doctor`: each finding has a verdict, a cause and, where it is not well, a fix."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cotenant import segment
from cotenant.config import live
from cotenant.daemon import lock
from cotenant.doctor import checks, configuration, devices, installed, probing, shared_memory
from cotenant.doctor.finding import Finding, Machine
from cotenant.gpus import nvml
from cotenant.launch import elf, native_files
from cotenant.mps import control
from tests.segments import Written

if TYPE_CHECKING:
    from tests.conftest import Run

NAMES = [
    "package",
    "driver",
    "gpu",
    "mps",
    "mig",
    "preload",
    "settings",
    "shared-memory",
    "symbols",
    "self-test",
    "time-slices",
]


@pytest.fixture
def named_in_no_text() -> Iterator[int]:
    """A process whose name is no UTF-8."""
    own = Path("/proc/self/comm")
    before = own.read_bytes()
    own.write_bytes(b"caf\xe9")
    yield os.getpid()
    own.write_bytes(before)


def machine(environment: dict[str, str] | None = None, **about: Any) -> Machine:
    found: dict[str, Any] = {"driver_file": None, "no_driver": "no NVIDIA driver found", "listed": None}
    return Machine(environment or {}, **(found | about))


def test_without_a_driver_it_fails_and_says_what_to_do(cotenant: Run, plain_env: dict[str, str]) -> None:
    done = cotenant("doctor", "-o", "json", env=plain_env | {"COTENANT_DRIVER": "/no/such/libcuda.so.1"})
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["ok"] is False
    assert [check["name"] for check in report["checks"]] == NAMES
    by_name = {check["name"]: check for check in report["checks"]}
    assert by_name["driver"]["verdict"] == "fail"
    assert "/no/such/libcuda.so.1" in by_name["driver"]["cause"]
    assert all(check["fix"] for check in report["checks"] if check["verdict"] in ("fail", "warn"))
    assert all(check["cause"] for check in report["checks"])


def test_what_needs_the_driver_is_skipped_without_one(cotenant: Run, plain_env: dict[str, str]) -> None:
    done = cotenant("doctor", "-o", "json", env=plain_env | {"COTENANT_DRIVER": "/no/such/libcuda.so.1"})
    by_verdict: dict[str, list[str]] = {}
    for check in json.loads(done.stdout)["checks"]:
        by_verdict.setdefault(check["verdict"], []).append(check["name"])
    assert by_verdict["fail"] == ["driver"]
    assert by_verdict["skip"] == ["gpu", "symbols", "self-test", "time-slices"]
    assert done.stderr.endswith("4 skipped\n")


def test_the_segment_is_the_one_that_was_named(
    cotenant: Run, plain_env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "other").write_bytes(b"somebody's file")
    env = plain_env | {"COTENANT_DRIVER": "/no/such/libcuda.so.1"}
    for words, variable in (
        (["--segment", str(tmp_path / "other")], {}),
        ([], {"COTENANT_SEGMENT": str(tmp_path / "other")}),
    ):
        done = cotenant("doctor", *words, env=env | variable)
        assert f"{tmp_path / 'other'} is not a Cotenant segment" in done.stdout
    done = cotenant("doctor", "--segment", str(tmp_path), env=env)
    assert f"{tmp_path} is not a Cotenant segment" in done.stdout
    assert "rm -r" not in done.stdout  # it is somebody's folder


def test_the_table_has_a_fix_below_each_failure(cotenant: Run, plain_env: dict[str, str]) -> None:
    done = cotenant("doctor", env=plain_env | {"COTENANT_DRIVER": "/no/such/libcuda.so.1"})
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert "\x1b" not in done.stdout
    for at, line in enumerate(lines):
        if line.startswith(("fail", "warn")):
            assert "fix:" in lines[at + 1]
    failed = sum(line.startswith("fail") for line in lines)
    assert done.stderr.startswith(f"{len(NAMES)} checks: {failed} failed")


def test_the_software_gpu_passes(cotenant: Run, softgpu_env: dict[str, str]) -> None:
    done = cotenant("doctor", "-o", "json", env=softgpu_env, timeout=200)
    report = json.loads(done.stdout)
    broken = [check for check in report["checks"] if check["verdict"] == "fail"]
    assert (broken, done.returncode) == ([], 0)
    by_name = {check["name"]: check for check in report["checks"]}
    assert by_name["driver"]["facts"]["cuda_version"] >= 12000
    assert by_name["gpu"]["facts"]["gpus"][0]["uuid"].startswith("GPU-")
    measured = by_name["self-test"]["facts"]
    assert measured["plain"]["interposed"] is False
    assert measured["interposed"]["interposed"] is True
    assert measured["interposed"]["launches"] > 0
    assert f"{measured['interposed']['ns_added']:.0f} ns" in by_name["self-test"]["cause"]
    assert not list(Path(softgpu_env["COTENANT_SEGMENT"]).parent.glob("cotenant-doctor-*"))


def test_it_composes_with_softgpu_and_run(cotenant: Run, softgpu_env: dict[str, str]) -> None:
    del softgpu_env["LD_LIBRARY_PATH"]
    inside = (sys.executable, "-m", "cotenant")
    done = cotenant("softgpu", "--", *inside, "run", "--", *inside, "doctor", env=softgpu_env, timeout=200)
    assert done.returncode == 0, done.stdout


def test_another_preloaded_cuda_library_is_a_failure() -> None:
    finding = installed.preloads(machine({"LD_PRELOAD": "/opt/rival/libcuda.so.1"}))
    assert finding.verdict == "fail"
    assert "/opt/rival/libcuda.so.1" in finding.cause


def test_other_preloads_are_named(tmp_path: Path) -> None:
    allocator = tmp_path / "libjemalloc.so"
    allocator.touch()
    finding = installed.preloads(machine({"LD_PRELOAD": f"libtcmalloc.so {allocator}"}))
    assert finding.verdict == "ok"
    assert finding.facts["LD_PRELOAD"] == ["libtcmalloc.so", str(allocator)]
    finding = installed.preloads(machine({"LD_PRELOAD": f"{tmp_path}/gone.so"}))
    assert finding.verdict == "warn"


def test_a_foreign_segment_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"somebody's file")
    finding = shared_memory.shared_memory(machine({"COTENANT_SEGMENT": str(path)}))
    assert finding.verdict == "fail"
    assert str(path) in finding.cause and "COTENANT_SEGMENT" in finding.fix
    assert "rm -r" not in finding.fix  # it is somebody's file


@pytest.mark.parametrize(
    ("version", "fix"), [(segment.VERSION + 1, "a newer Cotenant made it"), (1, "an older Cotenant made it")]
)
def test_a_segment_of_another_version_is_a_failure_with_the_remedy(
    cotenant: Run, plain_env: dict[str, str], version: int, fix: str
) -> None:
    written = Written()
    written.header.version = version
    path = written.to(Path(plain_env["COTENANT_SEGMENT"]))
    finding = shared_memory.shared_memory(machine({"COTENANT_SEGMENT": str(path)}))
    assert finding.verdict == "fail" and finding.fix.startswith(fix) and str(path) in finding.fix
    for words in (["status"], ["ctl", "--policy", "fair"], ["ctl", "--stay", "1s"], ["daemon"]):
        done = cotenant(*words, env=plain_env)
        assert done.returncode == 1 and done.stderr.splitlines()[1] == f"hint: {finding.fix}", words


def test_jobs_of_another_version_do_not_share_and_that_is_said(
    cotenant: Run, softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    path, other = tmp_path / "segment.v7", tmp_path / "segment.v6"
    other.write_bytes(b"of another version")
    env = softgpu_env | {"COTENANT_SEGMENT": str(path), "COTENANT_DAEMON_LINGER": "0"}
    env.pop("COTENANT_NO_DAEMON", None)
    find = functools.partial(shared_memory.shared_memory, machine({"COTENANT_SEGMENT": str(path)}))
    assert find().verdict == "ok"
    held = lock.acquire(other)
    assert held is not None
    try:
        finding = find()
        assert finding.verdict == "warn" and str(other) in finding.cause and "one version" in finding.fix
        done = cotenant("run", "--", "true", env=env)
        assert done.returncode == 0 and f"jobs of another version of Cotenant run in {other}" in done.stderr
    finally:
        lock.release(other, held)
    assert find().verdict == "ok"
    assert "another version" not in cotenant("run", "--", "true", env=env).stderr


def test_a_missing_folder_is_a_failure_and_a_missing_segment_is_not(tmp_path: Path) -> None:
    assert (
        shared_memory.shared_memory(machine({"COTENANT_SEGMENT": "/no/such/folder/segment"})).verdict
        == "fail"
    )
    assert (
        shared_memory.shared_memory(machine({"COTENANT_SEGMENT": str(tmp_path / "segment")})).verdict == "ok"
    )


def test_slots_in_use_and_of_dead_owners_are_counted(tmp_path: Path) -> None:
    written = Written()
    written.tenant(0, pid=1)
    written.tenant(1, pid=2, owner=segment.OWNER_DIED | 2)
    path = written.to(tmp_path / "segment")
    finding = shared_memory.shared_memory(machine({"COTENANT_SEGMENT": str(path)}))
    assert finding.verdict == "ok"
    assert (finding.facts["in_use"], finding.facts["lost"]) == (1, 1)
    assert finding.cause == f"{path}: 1 of {segment.SLOTS} slots in use, 1 of dead owners"


def test_a_full_segment_is_a_failure(tmp_path: Path) -> None:
    written = Written()
    for index in range(segment.SLOTS):
        written.tenant(index, pid=index + 1)
    path = written.to(tmp_path / "segment")
    assert shared_memory.shared_memory(machine({"COTENANT_SEGMENT": str(path)})).verdict == "fail"


def test_a_divided_gpu_is_a_warning() -> None:
    whole = nvml.Gpu(0, "GPU-0", "0000:01:00.0", "H200")
    divided = nvml.Gpu(1, "GPU-1", "0000:02:00.0", "H200", mig=True)
    assert devices.mig(machine(listed=[whole])).verdict == "ok"
    empty = devices.mig(machine(listed=[whole, divided]))
    assert empty.verdict == "warn" and "no instances" in empty.cause and "cotenant mig plan" in empty.fix
    parts = dataclasses.replace(divided, instances=("MIG-1",), instance_names=("H200 MIG 3g.71gb",))
    found = devices.mig(machine(listed=[whole, parts]))
    assert found.verdict == "warn" and "GPU 1: 3g.71gb MIG-1" in found.cause


def test_hidden_gpus_are_a_failure() -> None:
    gpu = nvml.Gpu(0, "GPU-0", "0000:01:00.0", "H200")
    found = machine({"CUDA_VISIBLE_DEVICES": ""}, driver_file=Path("/x"), listed=[gpu])
    assert devices.gpu_list(found).verdict == "fail"


def test_a_name_that_is_no_text_fails_nothing(named_in_no_text: int) -> None:
    assert "caf\ufffd" in devices.process_names()
    assert not control.is_of_mps(named_in_no_text)


def test_a_pipe_of_mps_without_its_daemon_is_a_warning(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "control")
    finding = devices.mps(machine({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}))
    assert finding.verdict == "warn"


def test_functions_that_only_the_driver_has_are_named(
    native: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the segment's library as the driver: the interposer exports none of its functions."""
    if not (native / "shim" / "libcuda.so.1").exists():
        pytest.skip("the interposer is not built")
    monkeypatch.setenv("COTENANT_NATIVE", str(native))
    finding = installed.symbols(machine(driver_file=native / "libcotenant_wire.so"))
    assert finding.verdict == "warn"
    assert "cotenant_segment_open" in finding.facts["missing"]
    # What it uses of the C library is none of its own.
    assert not {"close", "memcpy", "strlen"} & elf.exported(native / "libcotenant_wire.so").keys()
    assert installed.symbols(machine(driver_file=native_files.shim())).verdict == "ok"


def test_a_probe_that_fails_is_told_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_NATIVE", str(tmp_path))
    probe = tmp_path / "cotenant-probe"
    for script, reason in [
        ("echo 'cuInit answered 100' >&2; exit 1", "cuInit answered 100"),
        ("exit 3", "status 3"),
        ("echo nonsense", "Expecting value"),
    ]:
        probe.write_text(f"#!/bin/sh\n{script}\n")
        probe.chmod(0o755)
        measured, why = probing.run_probe(dict(os.environ))
        assert measured is None
        assert reason in why


def slices(refused: bool = False, granted_us: int = 100) -> dict[str, object]:
    return {"asked_us": 100, "granted_us": granted_us, "refused": refused}


def test_time_slices_are_asked_for_in_the_highest_and_the_lowest_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, tuple[str, ...]]] = []

    def run_probe(variables: dict[str, str], *options: str) -> tuple[dict[str, object] | None, str]:
        asked.append((variables["COTENANT_CLASS"], options))
        return {"time_slice": {"refused": False, "granted_us": 2000}}, ""

    monkeypatch.setattr(probing, "private_tenancy", lambda _: contextlib.nullcontext(({}, {})))
    monkeypatch.setattr(probing, "run_probe", run_probe)
    finding = probing.time_slices(machine(driver_file=Path("libcuda.so.1")))
    assert asked == [("production", ("--batches", "1")), ("opportunistic", ("--batches", "1"))]
    assert finding.verdict == "ok" and finding.facts.keys() == {"production", "opportunistic"}
    monkeypatch.setattr(probing, "run_probe", lambda *_: (None, "it hangs"))
    finding = probing.time_slices(machine(driver_file=Path("libcuda.so.1")))
    assert (finding.verdict, finding.cause) == ("fail", "as production: it hangs")


@pytest.mark.parametrize(
    ("production", "opportunistic", "verdict", "says"),
    [
        (slices(granted_us=1_000_000), slices(), "ok", "production 1000000 us, opportunistic 100 us"),
        (slices(), slices(refused=True, granted_us=2048), "warn", "refused the time slices of opportunistic"),
        (
            slices(granted_us=0),
            slices(granted_us=0),
            "warn",
            "no time slice for production and opportunistic",
        ),
        (None, slices(), "warn", "no time slice for production"),
    ],
)
def test_what_the_driver_says_to_time_slices(
    production: object, opportunistic: object, verdict: str, says: str
) -> None:
    finding = probing.judged_slices({"production": production, "opportunistic": opportunistic})
    assert (finding.verdict, says in finding.cause) == (verdict, True), finding
    assert ("runs to its end" in finding.cause) == (verdict == "warn") == bool(finding.fix)


def test_the_probe_tells_its_time_slice(native: Path, softgpu_env: dict[str, str]) -> None:
    """The software GPU's driver asks for none."""
    if "COTENANT_TEST_REAL_GPU" in softgpu_env:
        pytest.skip("a real driver asks for one")
    found = machine(softgpu_env, driver_file=native / "softgpu" / "libcuda.so.1")
    with probing.private_tenancy(found) as (_, shared):
        probed, why = probing.run_probe(shared, "--batches", "1")
    assert probed is not None, why
    assert probed["time_slice"] == {"asked_us": 0, "granted_us": 0, "refused": False}


@pytest.mark.parametrize(
    ("options", "stream", "batches"),
    [
        ((), "own", 40),
        (("--batches", "2", "--stream", "legacy"), "legacy", 2),
        (("--stream", "per-thread", "--batches", "0"), "per-thread", 1),
    ],
)
def test_the_probe_does_what_its_options_say(
    native: Path, softgpu_env: dict[str, str], options: tuple[str, ...], stream: str, batches: int
) -> None:
    probed, why = probing.run_probe(softgpu_env, *options)
    assert probed is not None, why
    assert (probed["stream"], probed["launches"]) == (stream, 256 * batches)
    assert probed["ns_per_launch"] > 0 and not probed["interposed"]


@pytest.mark.parametrize("options", [("--batches",), ("--stream",), ("--bathces", "3"), ("3",)])
def test_the_probe_refuses_what_it_does_not_know(
    native: Path, softgpu_env: dict[str, str], options: tuple[str, ...]
) -> None:
    done = subprocess.run(
        [native / "cotenant-probe", *options], check=False, env=softgpu_env, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr[:22]) == (2, "", "usage: cotenant-probe ")


def test_a_check_that_breaks_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(machine: Machine) -> Finding:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(checks, "CHECKS", {"broken": (broken, ()), "mig": (devices.mig, ())})
    first, second = checks.all_findings(machine())
    assert (first.verdict, first.name) == ("fail", "broken")
    assert "unforeseen" in first.cause
    assert second.verdict == "ok"


def test_a_check_is_left_out_where_what_it_needs_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(machine: Machine) -> Finding:
        return Finding("first", "fail", "it is so")

    def breaks(machine: Machine) -> Finding:
        raise OSError("unforeseen")

    each: dict[str, Any] = {
        "first": (fails, ()),
        "second": (breaks, ("first",)),
        "third": (breaks, ("second",)),
        "fourth": (breaks, ()),
    }
    monkeypatch.setattr(checks, "CHECKS", each)
    found = list(checks.all_findings(Machine({}, None, "", None)))
    assert [(one.verdict, one.cause) for one in found] == [
        ("fail", "it is so"),
        ("skip", "needs what first checks"),
        ("skip", "needs what second checks"),
        ("fail", "the check itself failed: OSError('unforeseen')"),
    ]


def test_settings_that_the_daemon_could_not_take_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine({"COTENANT_USER_CONFIG": "", "COTENANT_MACHINE_CONFIG": ""}, None, "", None)
    assert configuration.settings(machine) == Finding(
        "settings", "ok", "no file: 0 settings", facts={"files": [], "settings": 0}
    )
    monkeypatch.setattr(live, "problem_of_daemon", lambda path: "user.toml: unknown key")
    found = configuration.settings(machine)
    assert (found.verdict, found.cause) == (
        "warn",
        "the daemon keeps the last good settings: user.toml: unknown key",
    )
