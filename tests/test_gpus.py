"""What `--gpu` says becomes what CUDA_VISIBLE_DEVICES must say."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from cotenant.daemon.clocks import STALE_SECONDS, Reading
from cotenant.daemon.report import Shown
from cotenant.doctor import devices
from cotenant.doctor.finding import Finding, Machine
from cotenant.errors import Problem
from cotenant.gpus import nvml, process_memory, states
from cotenant.gpus.naming import first_model, visible_devices
from cotenant.gpus.nvml import Gpu, describe
from cotenant.launch import driver
from cotenant.policies.interface import GpuState

if TYPE_CHECKING:
    from tests.conftest import Run

H200 = Gpu(0, "GPU-aaaa0000-0000-0000-0000-000000000000", "00000000:01:00.0", "H200")
OTHER = Gpu(1, "GPU-aabb0000-0000-0000-0000-000000000000", "00000000:65:00.0", "H200")
DIVIDED = Gpu(
    2, "GPU-cccc0000-0000-0000-0000-000000000000", "00000001:01:00.0", "H200", 0, True, ("MIG-dddd",)
)
GPUS = [H200, OTHER, DIVIDED]


@pytest.mark.parametrize(
    ("wanted", "visible", "expected"),
    [
        ("1", None, "1"),
        ("2,0", None, "2,0"),
        ("1", "5,7", "7"),
        ("0", "GPU-aabb", "GPU-aabb"),
        ("1", "2, 0", "0"),
        ("GPU-aabb", None, OTHER.uuid),
        ("gpu-AABB", None, OTHER.uuid),
        (OTHER.uuid, "1", OTHER.uuid),
        (OTHER.uuid, "GPU-aabb", OTHER.uuid),
        ("MIG-dddd", None, "MIG-dddd"),
        ("00000000:65:00.0", None, OTHER.uuid),
        ("0000:65:00.0", None, OTHER.uuid),
        ("65:00.0", None, OTHER.uuid),
        ("65:00", "0,1", OTHER.uuid),
        ("00000001:01:00.0", None, DIVIDED.uuid),
        ("0,GPU-aabb", None, f"0,{OTHER.uuid}"),
    ],
)
def test_known_gpus(wanted: str, visible: str | None, expected: str) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert visible_devices(wanted, environment, GPUS) == expected


@pytest.mark.parametrize(
    ("wanted", "visible", "hint"),
    [
        ("3", None, "2 H200"),
        ("²", None, H200.uuid),
        ("0", "²", "index"),
        pytest.param("9" * 5000, None, H200.uuid, id="digits"),
        pytest.param("0", "9" * 5000, "index", id="visible digits"),
        ("2", "5,7", "1 (7)"),
        ("1", "0,-1,2", "0 (0)"),
        ("0", "", "index"),
        ("0", "NoDevFiles", "index"),
        ("GPU-aa", None, "exactly one"),
        ("GPU-ffff", None, OTHER.uuid),
        ("MIG-eeee", None, H200.uuid),
        (OTHER.uuid, "0", "CUDA_VISIBLE_DEVICES shows 0"),
        ("65:00.0", "GPU-aaaa", "GPU-aaaa"),
        ("66:00.0", None, "00000000:65:00.0"),
        ("first", None, H200.uuid),
        ("-1", None, H200.uuid),
        ("", None, H200.uuid),
        ("0,", None, H200.uuid),
    ],
)
def test_unknown_gpus_are_usage_errors_that_say_what_exists(
    wanted: str, visible: str | None, hint: str
) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    with pytest.raises(Problem) as caught:
        visible_devices(wanted, environment, GPUS)
    assert caught.value.status == 2
    assert "unknown GPU" in caught.value.message
    assert hint in caught.value.hint


def test_a_gpu_named_twice_is_an_error() -> None:
    with pytest.raises(Problem, match="twice"):
        visible_devices("0,0", {}, GPUS)


def test_without_nvml_an_index_or_uuid_is_passed_on() -> None:
    assert visible_devices("9,GPU-12", {}, None) == "9,GPU-12"


def test_without_nvml_a_pci_id_cannot_be_looked_up() -> None:
    with pytest.raises(Problem, match="NVML"):
        visible_devices("65:00.0", {}, None)


def test_between_different_gpus_cudas_numbers_are_not_nvmls() -> None:
    """CUDA puts the fastest first, so index 0 in CUDA_VISIBLE_DEVICES may be any of them."""
    mixed = [H200, Gpu(1, OTHER.uuid, OTHER.pci_id, "L4")]
    assert visible_devices(OTHER.uuid, {"CUDA_VISIBLE_DEVICES": "0"}, mixed) == OTHER.uuid
    with pytest.raises(Problem):
        visible_devices(OTHER.uuid, {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, mixed)


def test_what_nvml_of_the_driver_in_use_lists_is_what_counts(
    cotenant: Run, softgpu_env: dict[str, str]
) -> None:
    if "COTENANT_SOFTGPU" not in softgpu_env:
        pytest.skip("needs a machine with two GPUs of known place")
    two = softgpu_env | {"COTENANT_SOFTGPU": "small,small"}
    by_place = cotenant(
        "run", "--require", "--gpu", "0000:02:00.0", "printenv", "CUDA_VISIBLE_DEVICES", env=two
    )
    assert by_place.returncode == 0, by_place.stderr
    uuid = by_place.stdout.strip()
    by_uuid = cotenant("run", "--gpu", uuid, "printenv", "CUDA_VISIBLE_DEVICES", env=two)
    assert by_uuid.stdout.strip() == uuid
    unknown = cotenant("run", "--gpu", "2", "true", env=two)
    assert unknown.returncode == 2
    assert uuid in unknown.stderr.splitlines()[1]


LOST = Gpu(1, "", "", "", problem="GPU is lost")


def test_a_lost_gpu_keeps_its_number_and_is_named_by_nothing_else() -> None:
    gpus = [H200, LOST, DIVIDED]
    assert visible_devices("2", {}, gpus) == "2"
    assert visible_devices(DIVIDED.uuid, {}, gpus) == DIVIDED.uuid
    with pytest.raises(Problem) as told:
        visible_devices("GPU-aabb", {}, gpus)
    assert "1 GPU is lost" in told.value.hint


def test_a_machine_with_one_lost_gpu_is_a_warning_and_with_no_other_a_failure() -> None:
    def finding(*listed: Gpu) -> Finding:
        return devices.gpu_list(Machine({}, None, "", list(listed)))

    assert finding(H200, LOST).verdict == "warn" and finding(LOST).verdict == "fail"
    assert finding(LOST).cause == "GPU 1 (GPU is lost) does not answer" and "-i 1" in finding(LOST).fix


@pytest.fixture
def lost(softgpu_env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The software GPU's process does not start in a folder that others can write: its NVML calls the GPU lost."""
    (tmp_path / "everybody's").mkdir()
    (tmp_path / "everybody's").chmod(0o777)
    return softgpu_env | {"COTENANT_SOFTGPU_DIR": str(tmp_path / "everybody's")}


def test_a_lost_gpu_is_one_line_and_keeps_no_command_from_running(
    cotenant: Run, lost: dict[str, str], tmp_path: Path
) -> None:
    done = cotenant("run", "--gpu", "0", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES", env=lost)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    done = cotenant("segment", "create", tmp_path / "shared", env=lost)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "GPU 0 does not answer (GPU is lost): it is left out",
        "error: no GPU was found",
        "hint: name them with --gpu UUID",
    ]
    done = cotenant("mig", "plan", "job", env=lost)
    assert done.returncode == 1 and "GPU 0 does not answer: GPU is lost" in done.stderr.splitlines()[-2]
    done = cotenant("doctor", env=lost)
    assert done.returncode == 1 and "fail  gpu            GPU 0 (GPU is lost) does not answer" in done.stdout
    assert "Traceback" not in done.stderr


class OldNvml:
    """An NVML that knows no MIG, and answers in bytes."""

    class NVMLError(Exception):
        pass

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMigMode(self, device: int) -> list[int]:
        raise self.NVMLError

    def nvmlDeviceGetUUID(self, device: int) -> bytes:
        return b"GPU-%d" % device

    def nvmlDeviceGetName(self, device: int) -> str:
        return "An old one"

    def nvmlDeviceGetPciInfo(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(busId=b"00000000:01:00.0")

    def nvmlDeviceGetMemoryInfo(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(total=8 << 30)


def test_a_gpu_of_a_driver_that_knows_no_mig_is_a_whole_one() -> None:
    assert describe(OldNvml(), 3) == Gpu(
        3, "GPU-3", "00000000:01:00.0", "An old one", memory_bytes=8 << 30, mig=False
    )


@pytest.mark.parametrize(
    ("visible", "model"),
    [
        (None, "H200"),
        ("1", "L4"),
        ("GPU-aabb,0", "L4"),
        ("gpu-AAAA", "H200"),
        ("2", ""),
        ("-1,1", ""),
        ("", ""),
        ("GPU-eeee", ""),
    ],
)
def test_the_model_is_that_of_the_gpu_that_cuda_shows_first(visible: str | None, model: str) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    gpus = [H200, replace(OTHER, name="L4")]
    assert first_model(environment, gpus) == model
    assert first_model(environment, []) == first_model(environment, None) == ""


def test_a_number_that_is_no_gpus_shows_none() -> None:
    with pytest.raises(Problem) as problem:
        visible_devices(OTHER.uuid, {"CUDA_VISIBLE_DEVICES": "2"}, [H200, OTHER])
    assert problem.value.hint == "CUDA_VISIBLE_DEVICES shows 2"


def test_an_instance_that_is_not_there_hides_none_behind_it() -> None:
    class Ml:
        NVMLError = LookupError
        nvmlDeviceGetMaxMigDeviceCount = staticmethod(lambda device: 3)
        nvmlDeviceGetUUID = staticmethod(lambda handle: b"MIG-%d" % handle)
        nvmlDeviceGetName = staticmethod(lambda handle: f"H200 MIG {handle}")

        @staticmethod
        def nvmlDeviceGetMigDeviceHandleByIndex(device: object, index: int) -> int:
            if index == 1:
                raise LookupError
            return index

    assert list(nvml.instances(Ml, None)) == [("MIG-0", "H200 MIG 0"), ("MIG-2", "H200 MIG 2")]


def test_nvml_is_given_back_whatever_happened_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr(nvml, "start", lambda file: SimpleNamespace(nvmlShutdown=lambda: ended.append("x")))
    with pytest.raises(KeyError), nvml.session(None):
        raise KeyError
    assert ended == ["x"]


def test_how_fast_a_gpu_runs_is_said_with_how_long_ago_that_was(monkeypatch: pytest.MonkeyPatch) -> None:
    state = GpuState(at_us=5e6, clock_mhz=1500, highest_mhz=2000, slowed_by=("power limit",))
    shown = Shown(1, "guard", "", (), {1: Reading(state), 2: Reading(problem="no NVML")}, {}, {})
    for now_s, ago in (
        (5.25, ""),
        (5.0 + STALE_SECONDS, ""),
        (6.0 + STALE_SECONDS, f", {1 + STALE_SECONDS:.0f} s ago"),
    ):
        monkeypatch.setattr("cotenant.segment.now_ns", lambda now_s=now_s: int(now_s * 1e9))
        told = states.figures(shown, 1, ())
        assert told["in_words"] == f"The GPU runs at 1500 of 2000 MHz: power limit{ago}."
        assert (told["throttled"], told["seconds_ago"], told["clock_mhz"]) == (True, now_s - 5, 1500)
    monkeypatch.setattr("cotenant.segment.now_ns", lambda: 0)
    assert states.figures(shown, 1, ())["seconds_ago"] == 0
    for gpu, why in (0, "nobody has worked on it since the daemon began"), (2, "no NVML"):
        told = states.figures(shown, gpu, ())
        assert told["in_words"] == f"How fast the GPU runs is not known: {why}."
        assert (told["throttled"], told["seconds_ago"], "at_us" in told) == (None, None, False)
    assert "no daemon runs" in states.figures("no daemon runs", 1, ())["in_words"]


def test_a_gpu_that_is_lost_hides_no_process_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = {OTHER.uuid: [(7, 5), (8, None)], "MIG-dddd": [(9, 6)]}

    class Ml:
        NVMLError = LookupError
        nvmlDeviceGetCount = staticmethod(lambda: 3)
        nvmlDeviceGetHandleByUUID = staticmethod(lambda uuid: running[uuid])
        nvmlDeviceGetComputeRunningProcesses = staticmethod(
            lambda found: [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in found]
        )

    lost = Gpu(0, "", "", "", problem="GPU is lost")
    monkeypatch.setattr(driver, "find", lambda environment: tmp_path)
    monkeypatch.setattr(nvml, "session", lambda file: nullcontext(Ml))
    monkeypatch.setattr(nvml, "describe", lambda ml, index: [lost, OTHER, DIVIDED][index])
    assert process_memory.by_process({}) == {(OTHER.uuid, 7): 5, ("GPU-dddd", 9): 6}
