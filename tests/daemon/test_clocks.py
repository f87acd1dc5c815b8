"""Each GPU's clock and power, read through NVML by the daemon: what policies, `status` and `explain` see of them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.daemon import clocks, report
from cotenant.daemon.attachment import Attachment
from cotenant.daemon.clocks import Clocks, Reading, in_words
from cotenant.daemon.loop import Daemon
from cotenant.gpus import nvml
from cotenant.launch import driver
from cotenant.policies.interface import GpuState, Tenant, View
from tests.conftest import REAL_GPU
from tests.daemon.made import BUSY, COTENANT, policy_file
from tests.segments import UUID_TEXT
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, LOST = 3, 4, 6, 15
HOT = {
    "ClockInfo": 1455,
    "MaxClockInfo": 1980,
    "PowerUsage": 698_000,
    "EnforcedPowerLimit": 700_000,
    "CurrentClocksEventReasons": 4,
}
LOOKER = """
from cotenant.policies.interface import Knobs
class Looker:
    name, title, every_ms = "looker", "says what it sees", 10
    gpu = None
    def tick(self, view):
        self.gpu = view.gpu
        return Knobs()
    def explain(self, tenant):
        return [self.gpu.in_words() if self.gpu else "Nothing is seen of the GPU."]
"""


class FakeNvml:
    """pynvml with one GPU: answers with figures, or fails with an NVMLError of this number."""

    NVML_CLOCK_SM = 1

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(f"error {value}")
            self.value = value

    def __init__(self, answers: dict[str, int] | None = None, uuid: str = UUID_TEXT) -> None:
        self.uuid, self.answers, self.failing = uuid, HOT | (answers or {}), 0
        self.asked: list[str] = []
        self.is_open = True

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != self.uuid:
            raise self.NVMLError(NOT_FOUND)
        return "instance" if uuid.startswith("MIG") else "device"

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, instance: str) -> str:
        assert instance == "instance"
        return "device"

    def nvmlDeviceGetComputeRunningProcesses(self, place: str) -> list[Any]:
        raise self.NVMLError(NO_PERMISSION)

    def nvmlDeviceGetProcessUtilization(self, place: str, since_us: int) -> list[Any]:
        raise self.NVMLError(NOT_SUPPORTED)

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def __getattr__(self, name: str) -> Callable[..., int]:
        def answer(device: str, *arguments: int) -> int:
            assert device == "device"
            self.asked.append(name)
            value = self.answers.get(name.removeprefix("nvmlDeviceGet"), -13)
            if self.failing or value < 0:
                raise self.NVMLError(self.failing or -value)
            return value

        return answer


@pytest.fixture
def started() -> Iterator[Callable[[Callable[[], Any]], Clocks]]:
    every: list[Clocks] = []

    def start(open_nvml: Callable[[], Any]) -> Clocks:
        every.append(Clocks(open_nvml))
        every[-1].start()
        return every[-1]

    yield start
    for one in every:
        one.end()


def read(one: Clocks, uuid: str = UUID_TEXT) -> Reading:
    """The first that says anything."""
    found = [Reading()]

    def is_there() -> bool:
        found[0] = one.seen({0: uuid})[0]
        return found[0] != Reading()

    wait_for(is_there)
    return found[0]


def test_what_a_hot_gpu_says(started: Any) -> None:
    state = read(started(FakeNvml)).state
    assert state is not None
    assert (state.clock_mhz, state.highest_mhz, state.power_w, state.power_limit_w) == (1455, 1980, 698, 700)
    assert state.throttled and state.slowed_by == ("power limit",)
    assert 0 <= segment.now_ns() / 1000 - state.at_us < 60e6
    assert state.in_words() == "The GPU runs at 1455 of 1980 MHz: power limit; it draws 698 of 700 W."


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        (0x0, ()),
        (0x1, ()),
        (0x4, ("power limit",)),
        (0x24, ("power limit", "temperature")),
        (0x8, ("hardware slowdown",)),
        (0x48, ("temperature (hardware slowdown)",)),
        (0x88, ("power brake (hardware slowdown)",)),
        (0x2, ("applications clock",)),
        (0x40000001, ("reason 0x40000000",)),
    ],
)
def test_the_reasons_have_words(reasons: int, words: tuple[str, ...]) -> None:
    assert in_words(reasons) == words


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"PowerUsage": -NO_PERMISSION}, "The GPU runs at 1455 of 1980 MHz: power limit."),
        ({"EnforcedPowerLimit": -NOT_SUPPORTED}, "The GPU runs at 1455 of 1980 MHz: power limit; it draws 698 W."),
        ({"ClockInfo": -NOT_SUPPORTED}, "The GPU's clock is not known: power limit; it draws 698 of 700 W."),
        ({"MaxClockInfo": -NOT_SUPPORTED, "PowerUsage": 0xFFFFFFFF}, "The GPU runs at 1455 MHz: power limit."),
        (
            {"CurrentClocksEventReasons": -13, "CurrentClocksThrottleReasons": 0x20, "PowerUsage": -NOT_SUPPORTED},
            "The GPU runs at 1455 of 1980 MHz: temperature.",
        ),
    ],
)  # fmt: skip
def test_what_a_gpu_does_not_say_is_left_out(started: Any, answers: dict[str, int], words: str) -> None:
    state = read(started(lambda: FakeNvml(answers))).state
    assert state is not None and state.in_words() == words


def test_a_mig_instance_has_the_clock_of_its_gpu(started: Any) -> None:
    state = read(started(lambda: FakeNvml(uuid=UUID_TEXT.replace("GPU", "MIG")))).state
    assert state is not None and state.clock_mhz == 1455


def no_nvml() -> Any:
    raise OSError("there is no such library")


@pytest.mark.parametrize(
    ("open_nvml", "problem"),
    [
        (no_nvml, "no NVML: there is no such library"),
        (lambda: FakeNvml(uuid="GPU-another"), f"NVML says nothing of this GPU: error {NOT_FOUND}"),
        (
            lambda: FakeNvml(dict.fromkeys(HOT, -NOT_SUPPORTED)),
            "NVML says neither clock nor power of this GPU",
        ),
    ],
)
def test_without_an_answer_it_is_said_why(started: Any, open_nvml: Callable[[], Any], problem: str) -> None:
    assert read(started(open_nvml)) == Reading(problem=problem)


def test_a_gpu_that_is_lost_is_told_apart_from_the_others_and_found_again(
    started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clocks, "READ_SECONDS", 0.001)
    opened: list[FakeNvml] = []

    def open_nvml() -> FakeNvml:
        opened.append(FakeNvml())
        return opened[-1]

    one = started(open_nvml)
    assert read(one).state
    opened[0].failing = LOST
    wait_for(lambda: one.seen({0: UUID_TEXT})[0].problem == f"NVML says nothing of this GPU: error {LOST}")
    asked = len(opened[0].asked)
    # A GPU that is not there is not asked for again and again.
    for _ in range(5):
        before = one.readings
        wait_for(lambda before=before: one.seen({0: UUID_TEXT}) and one.readings is not before)  # type: ignore[misc]
    assert (len(opened[0].asked), len(opened)) == (asked, 1)
    # WHEN it is time to try again, THEN all is looked for anew
    monkeypatch.setattr(clocks, "AGAIN_SECONDS", 0.0)
    wait_for(lambda: one.seen({0: UUID_TEXT})[0].state is not None)
    assert len(opened) == 2 and not opened[0].is_open


def test_one_that_hangs_keeps_nobody_waiting(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def open_nvml() -> FakeNvml:
        go_on.wait()
        return FakeNvml()

    monkeypatch.setattr(clocks, "STALE_SECONDS", 0.01)
    one = started(open_nvml)
    assert read(one) == Reading(problem="NVML does not answer")
    monkeypatch.setattr(clocks, "STALE_SECONDS", 3600)
    go_on.set()
    wait_for(lambda: one.seen({0: UUID_TEXT})[0].state is not None)


def test_an_old_state_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Clocks()  # that nobody starts
    one.readings = {0: Reading(GpuState(segment.now_ns() / 1000, 1455))}
    assert one.seen({0: UUID_TEXT})[0].state
    one.readings = {0: Reading(GpuState(segment.now_ns() / 1000 - 2.5e6, 1455))}
    assert one.seen({0: UUID_TEXT}) == {0: Reading()}


def test_without_a_driver_nvml_is_looked_for_where_it_usually_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(_: object) -> Path:
        raise driver.NoDriver("none")

    monkeypatch.setattr(driver, "find", find)
    monkeypatch.setattr(nvml, "start", lambda file: ("started", file))
    assert clocks.nvml_of_this_machine() == ("started", None)


def test_with_nobody_at_work_nvml_is_closed(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a GPU can be reset or divided."""
    monkeypatch.setattr(clocks, "CLOSE_SECONDS", 0.01)
    opened: list[FakeNvml] = []

    def open_nvml() -> FakeNvml:
        opened.append(FakeNvml())
        return opened[-1]

    one = started(open_nvml)
    assert read(one).state
    wait_for(lambda: not opened[0].is_open)
    one.readings = {}
    assert read(one).state and len(opened) == 2


def test_a_policy_sees_it_and_so_does_the_report(attachment: Attachment, tmp_path: Path) -> None:
    one = Daemon(attachment, policy_file(tmp_path, LOOKER), 10, Clocks(FakeNvml))
    one.tick()
    shown = report.read(attachment.path)
    assert shown and shown.tenants[0].decisions[0].text == "Nothing is seen of the GPU."
    one.clocks.start()
    read(one.clocks)
    one.report.next_gpus = one.report.next_write = 0.0
    one.tick()
    one.clocks.end()
    shown = report.read(attachment.path)
    assert shown and "1455 of 1980 MHz: power limit" in shown.tenants[0].decisions[0].text
    state = shown.gpus[0].state
    assert state and (state.clock_mhz, state.power_w, state.slowed_by) == (1455, 698, ("power limit",))


def test_the_processes_on_a_gpu_are_listed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a MIG instance, not of the GPU that it is a part of."""
    listed: list[str] = []

    def processes(place: str) -> list[Any]:
        listed.append(place)
        return [SimpleNamespace(pid=pid) for pid in (9, 7)]

    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    for uuid, place in (UUID_TEXT, "device"), (f"MIG{UUID_TEXT[3:]}", "instance"):
        ml = FakeNvml(uuid=uuid)
        monkeypatch.setattr(ml, "nvmlDeviceGetComputeRunningProcesses", processes)
        session = clocks.Session(ml)
        assert session.read({0: UUID_TEXT})[0].processes == (7, 9)
        now += clocks.LIST_SECONDS - 1
        assert session.read({0: UUID_TEXT})[0].processes == (7, 9) and listed == [place]
        now += 1
        session.read({0: UUID_TEXT})
        assert listed == [place, place]
        listed.clear()


def test_who_has_used_sms_since_the_list_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer is about the time before; where nobody has used any NVML finds nothing."""
    answers: list[Any] = [[(7, 50, 90)], [(7, 80, 0), (9, 90, 5)], None, [(7, 120, 1)]]
    since: list[int] = []

    def utilization(place: str, since_us: int) -> list[Any]:
        since.append(since_us)
        answer = answers.pop(0)
        if answer is None:
            raise FakeNvml.NVMLError(NOT_FOUND)
        return [SimpleNamespace(pid=pid, timeStamp=at_us, smUtil=sms) for pid, at_us, sms in answer]

    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    ml = FakeNvml()
    monkeypatch.setattr(ml, "nvmlDeviceGetProcessUtilization", utilization)
    session, working = clocks.Session(ml), []
    for _ in range(4):
        working.append(session.read({0: UUID_TEXT})[0].working)
        now += clocks.LIST_SECONDS
    assert working == [set(), {9}, set(), {7}] and since == [0, 50, 90, 90]


def test_where_nvml_lists_no_processes_the_clock_is_known_all_the_same() -> None:
    reading = clocks.Session(FakeNvml()).read({0: UUID_TEXT})[0]
    assert reading.state and reading.processes == ()


def test_the_report_has_the_processes(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    for state in None, GpuState(1.0):
        report.Report(path).show("guard", "", {}, {0: Reading(state, processes=(7, 9))})
        shown = report.read(path)
        assert shown and shown.gpus[0].processes == (7, 9)


def test_the_clock_at_work_is_a_mean_over_work_and_not_over_time() -> None:
    at_work = clocks.ClockAtWork()

    def look(
        used_s: float, mhz: float | None, tenant_class: TenantClass = TenantClass.production
    ) -> dict[Any, float]:
        readings = {0: Reading(GpuState(0, mhz))}
        at_work.look({0: View(0, [Tenant(7, tenant_class, used_us=used_s * 1e6)])}, readings)
        return at_work.mean_mhz

    assert look(0, 1980) == {}  # what it did before nobody saw
    assert look(1, 1980) == {(0, 7): 1980}
    for _ in range(1000):
        assert look(1, 345)[0, 7] == 1980  # an idle GPU
    assert 1700 < look(2, 1000)[0, 7] < 1900
    for used_s in range(3, 60):
        look(used_s, 1000)
    assert look(60, 1000)[0, 7] == pytest.approx(1000, rel=1e-3)
    assert look(61, None)[0, 7] == pytest.approx(1000, rel=1e-3)
    at_work.look({0: View(0, [])}, {})
    assert not at_work.mean_mhz  # it has left
    look(1, 1980, TenantClass.opportunistic)
    assert look(2, 1980, TenantClass.opportunistic) == {}


def test_ticks_go_on_while_nvml_hangs(attachment: Attachment, tmp_path: Path) -> None:
    go_on = threading.Event()
    one = Daemon(attachment, policy_file(tmp_path, LOOKER), 10, Clocks(go_on.wait))
    one.clocks.start()
    for _ in range(3):
        assert one.tick() == 10
    shown = report.read(attachment.path)
    assert shown and shown.tenants[0].decisions[0].text == "Nothing is seen of the GPU."
    go_on.set()
    one.clocks.end()


@pytest.mark.parametrize(
    "gpus",
    [
        "3",
        "[3]",
        '[{"gpu": 0}]',
        '[{"gpu": "0", "problem": "", "state": null}]',
        '[{"gpu": 0, "problem": 3, "state": null}]',
        '[{"gpu": 0, "problem": "", "state": 3}]',
        '[{"gpu": 0, "problem": "", "state": null, "at_work": [{"pid": 1, "started": 1, "clock_mhz": "1"}]}]',
        '[{"gpu": 0, "problem": "", "state": null, "processes": ["1"], "at_work": []}]',
        '[{"gpu": 0, "problem": "", "state": {"at_us": 1, "slowed_by": []}}]',
        '[{"gpu": 0, "problem": "", "state": {"at_us": NaN, "slowed_by": [], "clock_mhz": 1, "highest_mhz": 1,'
        ' "power_w": 1, "power_limit_w": 1}}]',
    ],
)
def test_a_damaged_state_is_no_report(tmp_path: Path, gpus: str) -> None:
    path = tmp_path / "segment"
    beginning = '{"pid": 1, "policy": "", "problem": "", "tenants": []'
    report.file_for(path).write_text(f"{beginning}}}")
    assert report.read(path)  # as a daemon of before has it
    report.file_for(path).write_text(f'{beginning}, "gpus": {gpus}}}')
    assert report.read(path) is None


@pytest.mark.skipif(REAL_GPU, reason="tells the software GPU what to say")
def test_a_clock_that_falls_is_seen_by_everybody_who_asks(cotenant: Run, env: dict[str, str]) -> None:
    pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    says = Path(env["COTENANT_SOFTGPU_DIR"]) / "clock.0"

    def state() -> dict[str, Any]:
        done = cotenant("status", "-o", "json", env=env)
        seen = json.loads(done.stdout) if done.returncode == 0 else {"gpus": []}  # the job makes the segment
        return dict(seen["gpus"][0]) if seen["gpus"] else {}

    command = [*COTENANT, "run", "--require", "--class", "production", sys.executable, "-c", BUSY]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE) as job:
        try:
            # A busy machine says how old it is as well.
            wait_for(lambda: state().get("in_words") == "The GPU runs at 1980 of 1980 MHz.")
            assert state()["throttled"] is False
            says.write_text("clock_mhz = 1455\npower_w = 99\nreasons = 4\n")
            wait_for(lambda: state()["clock_mhz"] == 1455)
            seen = state()
            assert (seen["throttled"], seen["slowed_by"]) == (True, ["power limit"])
            assert (seen["power_w"], seen["power_limit_w"], seen["highest_mhz"]) == (99, 100, 1980)
            words = "The GPU runs at 1455 of 1980 MHz: power limit; it draws 99 of 100 W"
            assert words in cotenant("explain", str(job.pid), env=env).stdout

            def is_slowed_at_work() -> bool:
                about = json.loads(cotenant("explain", str(job.pid), "-o", "json", env=env).stdout)
                at_work = about["tenants"][0]["gpus"][0]["at_work"]
                # None: on a busy machine the last reading may be too old for a moment.
                return (
                    at_work is not None
                    and at_work["clock_mhz"] < 1940
                    and "its kernels take up to" in at_work["in_words"]
                )

            wait_for(is_slowed_at_work)
            # WHEN the GPU is lost, THEN it is said, and the job goes on
            says.write_text("answer = 15\n")
            wait_for(lambda: "GPU is lost" in state()["in_words"])
            assert "GPU is lost" in cotenant("explain", str(job.pid), env=env).stdout
        finally:
            job.communicate(b"", timeout=60)
    assert job.returncode == 0


def test_one_that_has_answered_is_not_taken_for_one_that_hangs(started: Any) -> None:
    one = started(FakeNvml)
    assert read(one).state
    wait_for(lambda: one.asking_since_ns == 0)


def test_one_that_nobody_has_asked_ends_at_once(started: Any) -> None:
    one = started(FakeNvml)
    one.end()
    wait_for(lambda: not one.thread.is_alive())
