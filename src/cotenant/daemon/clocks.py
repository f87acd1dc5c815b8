"""Each GPU's clock and power, as NVML reports them: at the power limit the clock falls, for all tenants alike. NVML
also lists the processes on the GPU; some of them may be no tenants (gpus/outsiders.py).

A thread of its own queries NVML, and no tick waits for it: a query takes 1 or 2 us on an H200, but 1 ms for the highest
clock, longer where NVML has to wake up the GPU, and any query may hang. The thread queries every READ_SECONDS at most,
since NVML itself samples the GPU only every 100 ms, and only while a tenant is at work. After CLOSE_SECONDS with no
tenant at work it closes NVML, so that a GPU can be reset or partitioned while the daemon sleeps.

Where there is no answer (no NVML, no permission, a GPU that is lost) the reading says why, and the thread tries again
later.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.gpus import nvml, process_memory
from cotenant.launch import driver
from cotenant.policies.interface import GpuState, TenantId, View

READ_SECONDS = 0.2
LIST_SECONDS = 5.0  # from one list of processes to the next
STALE_SECONDS = 2.0  # an older state is shown to no policy
AGAIN_SECONDS = 30.0  # after a failure
CLOSE_SECONDS = 10.0
END_SECONDS = 0.5  # for which the daemon waits in the end
OF_LATE_US = 5e6  # of a tenant's work: what is older counts for little in its mean clock

# nvmlClocksEventReasons, the bits that slow a GPU down. NVML names the hardware's slowdown beside its cause.
REASONS = {
    0x004: "power limit",
    0x020: "temperature",
    0x040: "temperature (hardware slowdown)",
    0x080: "power brake (hardware slowdown)",
    0x008: "hardware slowdown",
    0x002: "applications clock",
    0x010: "sync boost with another GPU",
    0x100: "display clock",
}
IDLE, HARDWARE, HARDWARE_CAUSES = 0x001, 0x008, 0x0C0
# What a GPU answers that will not say: invalid argument, not supported, no permission, no such function.
UNSAID = (2, 3, 4, 13)
NO_FIGURE = 0xFFFFFFFF


@dataclass(frozen=True)
class Reading:
    """What is known of a GPU; without a state, why there is none."""

    state: GpuState | None = None
    problem: str = ""
    processes: tuple[int, ...] = ()  # by the numbers that NVML gives them
    working: frozenset[int] = frozenset()  # who used SMs since the list before, where NVML says so


NOT_YET = Reading()


class Clocks:
    def __init__(self, open_nvml: Callable[[], Any] | None = None) -> None:
        """`open_nvml` gives an initialised `pynvml`."""
        self.open_nvml = open_nvml or nvml_of_this_machine
        self.uuids: Mapping[int, str] = {}
        self.readings: Mapping[
            int, Reading
        ] = {}  # the thread never changes it, but puts another in its place
        self.asking_since_ns = 0  # 0: the thread waits for no answer
        self.wanted, self.over = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.work, name="clocks", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def end(self) -> None:
        self.over.set()
        self.wanted.set()
        if self.thread.is_alive():
            self.thread.join(END_SECONDS)

    def seen(self, uuids: Mapping[int, str]) -> dict[int, Reading]:
        """What was last read of these GPUs, by their numbers. Returns at once; they are read anew."""
        self.uuids = uuids
        self.wanted.set()
        now_ns, since_ns = segment.now_ns(), self.asking_since_ns
        if since_ns and now_ns - since_ns > STALE_SECONDS * 1e9:
            return dict.fromkeys(uuids, Reading(problem="NVML does not answer"))
        readings = self.readings
        return {gpu: fresh(readings.get(gpu, NOT_YET), now_ns) for gpu in uuids}

    def work(self) -> None:
        # Signals are for the daemon's main thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        session: Session | None = None
        while not self.over.is_set():
            if not self.wanted.wait(CLOSE_SECONDS if session else None):
                close(session)
                session = None
                continue
            self.wanted.clear()
            self.asking_since_ns = segment.now_ns()
            if session and session.is_to_end():
                close(session)
                session = None
            pause = READ_SECONDS
            try:
                session = session or Session(self.open_nvml())
                self.readings = session.read(self.uuids)
            except Exception as error:  # of any kind: a policy goes without
                self.readings = dict.fromkeys(self.uuids, Reading(problem=f"no NVML: {said(error)}"))
                close(session)
                session, pause = None, AGAIN_SECONDS
            self.asking_since_ns = 0
            self.over.wait(pause)
        close(session)


class ClockAtWork:
    """Each production tenant's mean clock while it had work, of late: what of its slowness may be the clock's."""

    def __init__(self) -> None:
        self.used_us: dict[tuple[int, TenantId], float] = {}  # at the last look
        self.mean_mhz: dict[tuple[int, TenantId], float] = {}

    def look(self, views: Mapping[int, View], readings: Mapping[int, Reading]) -> None:
        used, self.used_us = self.used_us, {}
        means, self.mean_mhz = self.mean_mhz, {}
        for gpu, view in views.items():
            state = readings.get(gpu, NOT_YET).state
            for tenant in view.of_class(TenantClass.production):
                key = (gpu, tenant.id)
                self.used_us[key] = tenant.used_us
                mean = means.get(key)
                worked_us = tenant.used_us - used.get(key, tenant.used_us)
                if state and state.clock_mhz and worked_us > 0:
                    new = 1.0 if mean is None else 1 - math.exp(-worked_us / OF_LATE_US)
                    mean = (1 - new) * (mean or 0.0) + new * state.clock_mhz
                if mean is not None:
                    self.mean_mhz[key] = mean


def fresh(reading: Reading, now_ns: int) -> Reading:
    is_old = reading.state and now_ns / 1000 - reading.state.at_us > STALE_SECONDS * 1e6
    return NOT_YET if is_old else reading


def nvml_of_this_machine() -> Any:
    try:
        file = driver.find(os.environ)
    except driver.NoDriver:
        file = None
    return nvml.start(file)


def close(session: Session | None) -> None:
    if session:
        with contextlib.suppress(Exception):
            session.ml.nvmlShutdown()


def said(error: Exception) -> str:
    return str(error) or type(error).__name__


class Session:
    """From nvmlInit to nvmlShutdown. A GPU that fails is left alone until the session ends, AGAIN_SECONDS later."""

    def __init__(self, ml: Any) -> None:
        self.ml = ml
        self.devices: dict[str, Any] = {}  # by UUID
        self.places: dict[str, Any] = {}  # likewise: the GPU, or the MIG instance
        self.lists: dict[str, tuple[tuple[int, ...], frozenset[int]]] = {}
        self.sampled_us: dict[str, int] = {}  # NVML's last sample of who uses SMs
        self.next_list = 0.0
        self.highest_mhz: dict[str, float | None] = {}
        self.failed: dict[str, str] = {}  # why
        self.failed_at = 0.0

    def is_to_end(self) -> bool:
        return bool(self.failed) and time.monotonic() - self.failed_at > AGAIN_SECONDS

    def read(self, uuids: Mapping[int, str]) -> dict[int, Reading]:
        states = {gpu: self.read_one(uuid) for gpu, uuid in uuids.items()}
        if time.monotonic() >= self.next_list:
            self.next_list = time.monotonic() + LIST_SECONDS
            self.lists = {uuid: self.listed(uuid) for uuid in self.places}
        found = {}
        for gpu, state in states.items():
            processes, working = self.lists.get(uuids[gpu], ((), frozenset()))
            found[gpu] = replace(state, processes=processes, working=working)
        return found

    def listed(self, uuid: str) -> tuple[tuple[int, ...], frozenset[int]]:
        processes = process_memory.processes(self.ml, self.places[uuid])
        return tuple(sorted(one.pid for one in processes)), self.working_on(uuid)

    def working_on(self, uuid: str) -> frozenset[int]:
        try:
            samples = self.ml.nvmlDeviceGetProcessUtilization(self.places[uuid], self.sampled_us.get(uuid, 0))
        except self.ml.NVMLError:  # also where nobody has used any
            return frozenset()
        before_us = self.sampled_us.get(uuid)
        self.sampled_us[uuid] = max((one.timeStamp for one in samples), default=before_us or 0)
        # The first answer goes back to before this daemon began.
        return frozenset(one.pid for one in samples if one.smUtil and before_us is not None)

    def read_one(self, uuid: str) -> Reading:
        if uuid not in self.failed:
            try:
                if uuid not in self.devices:
                    self.devices[uuid], self.places[uuid] = named(self.ml, uuid)
                    self.highest_mhz[uuid] = self.figure("MaxClockInfo", uuid, self.ml.NVML_CLOCK_SM)
                return self.state_of(uuid)
            except self.ml.NVMLError as error:
                self.failed[uuid] = f"NVML says nothing of this GPU: {said(error)}"
                self.failed_at = time.monotonic()
        return Reading(problem=self.failed[uuid])

    def state_of(self, uuid: str) -> Reading:
        at_us = segment.now_ns() / 1000
        clock_mhz = self.figure("ClockInfo", uuid, self.ml.NVML_CLOCK_SM)
        power_mw = self.figure("PowerUsage", uuid)
        limit_mw = self.figure("EnforcedPowerLimit", uuid)
        reasons = self.figure("CurrentClocksEventReasons", uuid)
        if reasons is None:  # as drivers before 535 call it
            reasons = self.figure("CurrentClocksThrottleReasons", uuid)
        if clock_mhz is None and power_mw is None and reasons is None:
            return Reading(problem="NVML says neither clock nor power of this GPU")
        return Reading(
            GpuState(
                at_us,
                clock_mhz,
                self.highest_mhz[uuid],
                None if power_mw is None else power_mw / 1000,
                None if limit_mw is None else limit_mw / 1000,
                in_words(int(reasons or 0)),
            )
        )

    def figure(self, name: str, uuid: str, *arguments: int) -> float | None:
        """None: this GPU, or this driver, does not say."""
        try:
            found = getattr(self.ml, f"nvmlDeviceGet{name}")(self.devices[uuid], *arguments)
        except self.ml.NVMLError as error:
            if error.value in UNSAID:
                return None
            raise
        return None if found == NO_FIGURE else float(found)


def named(ml: Any, uuid: str) -> tuple[Any, Any]:
    """The GPU, twice; or the GPU that a MIG instance is a part of, whose clock it has, and the instance. Only what is
    asked for is looked up: NVML wakes up a GPU that it is asked for. Raises NVMLError."""
    try:
        device = ml.nvmlDeviceGetHandleByUUID(uuid)
        return device, device
    except ml.NVMLError as error:
        try:
            instance = ml.nvmlDeviceGetHandleByUUID(uuid.replace("GPU-", "MIG-", 1))
            return ml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance), instance
        except ml.NVMLError:
            raise error from None


def in_words(reasons: int) -> tuple[str, ...]:
    if reasons & HARDWARE_CAUSES:
        reasons &= ~HARDWARE
    known = tuple(words for bit, words in REASONS.items() if reasons & bit)
    other = reasons & ~(IDLE | sum(REASONS))
    return (*known, f"reason {other:#x}") if other else known
