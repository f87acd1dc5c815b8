"""Segments with two tenants at work, and policies, for the tests of the daemon."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.daemon.attachment import Attachment
from cotenant.daemon.loop import Daemon
from tests.segments import Written

COTENANT = [sys.executable, "-m", "cotenant"]
# Does to everybody all that a controller can do.
FIRM = """
from cotenant.policies.interface import Knobs, Rule, TenantKnobs
class Firm:
    name, title, every_ms = "firm", "all at once", 10
    def tick(self, view):
        assert view.now_us > 0
        wanted = {
            one.id: TenantKnobs(shut=one.tenant_class > 0, tolerant=one.tenant_class == 0, rate=0.25)
            for one in view.tenants
        }
        return Knobs(rule=Rule.fair, gate_every_us=7, tenants=wanted)
    def explain(self, tenant):
        return [f"Tenant {tenant} is held firmly."]
"""
BROKEN = """
class Broken:
    name, title, every_ms = "broken", "fails", 10
    def tick(self, view): raise RuntimeError("unforeseen")
    def explain(self, tenant): raise RuntimeError("speechless")
"""


def add(written: Written, index: int, pid: int, tenant_class: TenantClass) -> segment.Slot:
    slot = written.tenant(index, pid, tenant_class=tenant_class)
    slot.started, slot.weight, slot.heartbeat_ns = 7, 2000, time.monotonic_ns()
    slot.gpus[0].busy = 1
    slot.gpus[0].figures = segment.Figures(kernels=5, graphs=2, copies=3, memory_ops=1, bursts=4)
    written.header.members[tenant_class][index // 64] |= 1 << index % 64
    return slot


def daemon(attachment: Attachment, policy: str) -> Daemon:
    return Daemon(attachment, policy, linger_seconds=10)


def ids(attachment: Attachment) -> list[int]:
    return [one.id for one in attachment.look().views[0].tenants]


def policy_file(folder: Path, source: str) -> str:
    file = folder / "policy.py"
    file.write_text(source)
    return str(file)


# A program that always has work, until its input ends.
BUSY = """
import sys, threading
from cuda.bindings import driver

def check(result, *values):
    assert result == driver.CUresult.CUDA_SUCCESS, result
    return values[0] if values else None

check(*driver.cuInit(0))
device = check(*driver.cuDeviceGet(0))
check(*driver.cuCtxSetCurrent(check(*driver.cuDevicePrimaryCtxRetain(device))))
module = check(*driver.cuModuleLoadData(b"softgpu 1\\nkernel burn time=10ms\\n\\0"))
burn = check(*driver.cuModuleGetFunction(module, b"burn"))
stream, memory = check(*driver.cuStreamCreate(0)), check(*driver.cuMemAlloc(1024))
ends = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ends.set())).start()
while not ends.wait(0.01):
    check(*driver.cuLaunchKernel(burn, 8, 1, 1, 32, 1, 1, 0, stream, 0, 0))
    check(*driver.cuStreamSynchronize(stream))
"""
