"""Reads the segment, the daemon's report and NVML at each scrape. Nothing is kept of a tenant that has ended: its
series vanish with it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from cotenant import figures, segment
from cotenant.errors import Problem
from cotenant.figures import Of
from cotenant.gpus import instances, nvml, process_memory, states
from cotenant.launch import driver
from cotenant.metrics import containers
from cotenant.metrics.families import Families, identity
from cotenant.segment.requests import is_process
from cotenant.tenants import jobs
from cotenant.tenants.lately import Looks
from cotenant.tenants.verdicts import NO_VERDICTS

OLD_SECONDS = 10.0  # what the daemon saw longer ago is not shown
SCRAPE_SECONDS = 10.0  # that a scrape waits for the one before it

Process = tuple[int, int]  # PID, when it was started


class TenantsCollector(Collector):
    def __init__(self, named: Path | None) -> None:
        self.named = named  # None: the default, which may be yet to come
        self.host = socket.gethostname()
        self.models: dict[str, str] = {}  # by UUID; "": NVML does not know it
        self.containers: dict[Process, containers.Within] = {}
        self.names: containers.Names = {}
        self.looks = Looks()  # at each scrape
        self.one_at_a_time = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """Raises Problem where the segment cannot be read."""
        if not self.one_at_a_time.acquire(timeout=SCRAPE_SECONDS):
            raise Problem("an earlier scrape has not ended", "NVML may hang: see nvidia-smi")
        try:
            found = self.families()
        finally:
            self.one_at_a_time.release()
        yield from found.metrics.values()

    def families(self) -> Families:
        path = self.named or segment.path_for({})
        seen = jobs.look(path)
        shown = states.read(path)
        nvml_bytes = self.ask_nvml(seen)
        lately = self.looks.look(
            seen, segment.now_ns(), NO_VERDICTS if isinstance(shown, str) else shown.promises
        )
        found = Families()
        for number, uuid in seen.gpus.items():
            state = states.figures(shown, number, seen.tenants)
            if state["seconds_ago"] is not None and state["seconds_ago"] <= OLD_SECONDS:
                found.add(Of.gpu, state, self.of_machine() | self.of_gpu(number, uuid))
        self.look_into_containers(seen)
        self.names = containers.read_names(path) if seen.tenants else {}
        for tenant in seen.tenants:
            labels = self.of_machine() | self.of_tenant(tenant)
            found.add(Of.tenant, tenant, labels)
            for use in tenant.uses:
                here = figures.place(tenant, use, nvml_bytes, lately)
                gpu = identity(Of.on_gpu, here)
                found.add(Of.on_gpu, here, labels | gpu | self.model_of(use.uuid))
        return found

    def of_machine(self) -> dict[str, str]:
        return {"Hostname": self.host}

    def of_gpu(self, number: int, uuid: str) -> dict[str, str]:
        return {"gpu": str(number), "UUID": uuid} | self.model_of(uuid)

    def model_of(self, uuid: str) -> dict[str, str]:
        model = self.models.get(uuid)
        return {"modelName": model} if model else {}

    def of_tenant(self, tenant: segment.Tenant) -> dict[str, str]:
        return identity(Of.tenant, tenant) | self.containers[process(tenant)].named(self.names)

    def look_into_containers(self, seen: segment.Snapshot) -> None:
        """A process stays in its container: each is looked at once. In a PID namespace of its own it has another number
        here: what has its number is not asked."""
        known = self.containers
        self.containers = {
            one: known[one]
            if one in known
            else containers.of_process(tenant.pid)
            if is_process(tenant)
            else containers.Within()
            for tenant in seen.tenants
            for one in [process(tenant)]
        }

    def ask_nvml(self, seen: segment.Snapshot) -> figures.NvmlBytes:
        """What NVML counts for each process, where it answers; models too, of GPUs that have not been seen before."""
        if not seen.tenants:
            return {}
        import pynvml

        try:
            new = [uuid for uuid in seen.gpus.values() if uuid not in self.models]
            if new:
                self.models |= dict.fromkeys(new, "") | models()
            return process_memory.by_process(os.environ)
        except pynvml.NVMLError:
            return {}


def process(tenant: segment.Tenant) -> Process:
    return (tenant.pid, tenant.started)


def models() -> dict[str, str]:
    """By UUID. A segment has a MIG instance's UUID with GPU- in front."""
    try:
        gpus = nvml.installed(driver.find(os.environ)) or []
    except driver.NoDriver:
        return {}
    known = (gpu for gpu in gpus if not gpu.problem)
    return {instances.in_segment(uuid): gpu.name for gpu in known for uuid in (gpu.uuid, *gpu.instances)}
