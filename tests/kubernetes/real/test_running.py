"""What the agent does for running pods, on a real node: live changes, taints, pauses, events, metrics."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cotenant import segment
from cotenant.classes import TenantClass
from tests.kubernetes.real.control_plane import PATIENCE_SECONDS, until
from tests.kubernetes.real.node import RealNode
from tests.kubernetes.real.pods import (
    HOLD,
    OUT_OF_MEMORY,
    RESOURCE,
    once,
    phase,
    remove,
    software_gpus,
    start,
)
from tests.ports import free_port

MIB = 1 << 20
pytestmark = pytest.mark.usefixtures("emptied")


def tenant_of(node: RealNode, pod: str) -> segment.Tenant | None:
    return next((one for one in segment.read(node.segment).tenants if one.job == f"default/{pod}"), None)


def describe(node: RealNode, pod: str, reason: str, *words: str) -> None:
    """Until `kubectl describe` says so."""

    def is_told() -> bool:
        lines = node.kubectl("describe", "pod", pod).stdout.splitlines()
        return any(reason in line and all(word in line for word in words) for line in lines)

    until(is_told, f"{pod} has no event {reason} with {words}")


def taints(node: RealNode) -> list[tuple[str, str]]:
    found = node.plane.cluster.get(RESOURCE, "ResourceSlice", f"{node.name}-cotenant.dev")
    assert found is not None
    return [
        (one["key"], one["effect"])
        for device in found["spec"]["devices"]
        for one in device.get("taints") or ()
    ]


def test_a_live_change_is_an_annotation(node: RealNode) -> None:
    start(node, "live", HOLD, memory="64Mi")
    once(node, "live", "Running")
    until(lambda: tenant_of(node, "live"), "there is no tenant")
    describe(node, "live", "Joined", "as standard")

    def terms() -> tuple[int, int]:
        found = tenant_of(node, "live")
        return (found.tenant_class, found.memory_limit) if found else (0, 0)

    node.kubectl("annotate", "pod", "live", "cotenant.dev/class=opportunistic", "cotenant.dev/memory=32Mi")
    until(lambda: terms() == (TenantClass.opportunistic, 32 * MIB), "the tenant has not changed")
    describe(node, "live", "Changed", "class opportunistic, memory up to 32Mi")
    # It counts for what comes later, too: 16 MiB are taken.
    done = node.kubectl("exec", "live", "--", "/bin/program", "20", "8")
    assert done.stdout.split() == [OUT_OF_MEMORY, "0"], done.stderr
    node.kubectl("annotate", "--overwrite", "pod", "live", "cotenant.dev/class=production")
    describe(node, "live", "ChangeRefused", "a change goes no higher", "production.cotenant.dev")
    node.kubectl("annotate", "pod", "live", "cotenant.dev/class-", "cotenant.dev/memory-")
    until(lambda: terms() == (TenantClass.standard, 64 * MIB), "the claim's terms do not hold again")
    remove(node, "live")


def test_a_promise_changes_by_an_annotation_and_comes_back(node: RealNode) -> None:
    start(node, "promising", HOLD, "production", {"promise": "5%"})
    once(node, "promising", "Running")

    def promise() -> int:
        found = tenant_of(node, "promising")
        return found.slowdown if found else 0

    until(lambda: promise() == 50, "the claim's promise does not hold")
    node.kubectl("annotate", "pod", "promising", "cotenant.dev/slowdown=10%")
    until(lambda: promise() == 100, "the promise has not changed")
    describe(node, "promising", "Changed", "slowdown 10%")
    node.kubectl("annotate", "pod", "promising", "cotenant.dev/slowdown-")
    until(lambda: promise() == 50, "the claim's promise does not hold again")
    remove(node, "promising")


@contextmanager
def slowed_down(node: RealNode, tenant: segment.Tenant) -> Iterator[None]:
    """A production tenant whose figures say that it waits as long as it works: its own, as an idle one writes none."""
    folder = segment.FolderSegment(node.segment)
    found = folder.tenant_file(folder.read_header(), tenant.pid)
    assert found is not None
    with found.path.open("r+b") as file:
        slot = segment.Slot.from_buffer(mmap.mmap(file.fileno(), segment.PLACE))
    on = slot.gpus[tenant.uses[0].gpu]
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(0.2):
            on.busy_ns += 100_000_000
            on.waited_ns += 50_000_000
            on.waits += 1
            on.figures.bursts += 1

    writing = threading.Thread(target=write)
    writing.start()
    try:
        yield
    finally:
        ended.set()
        writing.join()


def test_a_broken_promise_taints_the_device_for_new_claims(node: RealNode) -> None:
    start(node, "promised", HOLD, "production", {"promise": "5%"})
    once(node, "promised", "Running")
    tenant: segment.Tenant = until(lambda: tenant_of(node, "promised"), "there is no tenant")
    assert taints(node) == []
    with slowed_down(node, tenant):
        broken = [("cotenant.dev/promise-broken", "NoSchedule")]
        until(lambda: taints(node) == broken, "the device is not tainted")
        describe(node, "promised", "PromiseBroken", "5% at most was promised")
        start(node, "late", HOLD, memory="16Mi")
        until(
            lambda: any(
                "untolerated taint" in one or "cannot allocate" in one for one in node.plane.events_of("late")
            ),
            "no event says why it waits",
        )
        assert phase(node, "late") == "Pending" and phase(node, "promised") == "Running"
    remove(node, "promised")
    until(lambda: taints(node) == [], "the taint was not lifted")
    once(node, "late", "Running")
    remove(node, "late")


def test_a_fault_evicts_and_is_lifted_when_the_gpu_is_well_again(node: RealNode) -> None:
    start(node, "hurt", HOLD, memory="16Mi")
    once(node, "hurt", "Running")
    # The software GPU is killed, and does not come again while others could write its folder.
    folder = Path(node.softgpu["COTENANT_SOFTGPU_DIR"])
    folder.chmod(0o770)
    try:
        for pid in software_gpus(node):
            os.kill(pid, signal.SIGKILL)
        until(lambda: taints(node) == [("cotenant.dev/fault", "NoExecute")], "the device is not tainted")
        told = "pods that do not tolerate it are evicted"
        until(lambda: told in str(node.plane.events_of("hurt")), "the pod was not told")
        until(
            lambda: node.plane.cluster.get("v1", "Pod", "hurt", "default") is None, "it was not evicted", 90
        )
    finally:
        folder.chmod(0o700)
        node.keep_gpu()
    until(lambda: taints(node) == [], "the taint was not lifted")
    start(node, "well", HOLD, memory="16Mi")
    once(node, "well", "Running")
    remove(node, "hurt", "well")


def test_a_preempted_pod_is_paused_before_it_is_evicted(node: RealNode, tmp_path: Path) -> None:
    found = node.plane.cluster.get("v1", "Node", node.name)
    assert found is not None
    cpus = int(found["status"]["allocatable"]["cpu"])
    most = {"resources": {"requests": {"cpu": f"{cpus * 1000 - 500}m"}}}
    # It uses its grace period until it was seen to be paused, however long that takes on a busy machine.
    until_told = "until [ -e /shared/end ]; do sleep 0.1; done"
    stubborn = ["sh", "-c", f"trap '' TERM; sleep 1000000 | program 16 & {until_told}"]
    lower = {"priorityClassName": "cotenant-opportunistic", "terminationGracePeriodSeconds": 600}
    start(node, "lower", stubborn, "opportunistic", pod=lower, container=most, folder=tmp_path)
    once(node, "lower", "Running")
    before: segment.Tenant = until(lambda: tenant_of(node, "lower"), "there is no tenant")
    assert before.where == segment.Where.resident
    start(
        node, "higher", HOLD, "production", pod={"priorityClassName": "cotenant-production"}, container=most
    )

    def is_paused() -> bool:
        now = tenant_of(node, "lower")
        return bool(now and now.paused and now.where == segment.Where.evicted and now.host_bytes)

    until(is_paused, "it is not paused")
    assert phase(node, "lower") == "Running" and phase(node, "higher") == "Pending"
    describe(node, "lower", "Paused", "the pod is to be evicted (PreemptionByScheduler)", "went to the host")
    (tmp_path / "end").touch()
    once(node, "higher", "Running")
    remove(node, "lower", "higher")


def test_prometheus_has_the_figures_of_pods_by_their_names(node: RealNode, tmp_path: Path) -> None:
    if not (prometheus := shutil.which("prometheus")):
        pytest.skip("prometheus is not installed")
    start(node, "served", HOLD, "production")
    once(node, "served", "Running")
    until(lambda: tenant_of(node, "served"), "there is no tenant")
    scraped, asked = free_port(), free_port()
    config = tmp_path / "prometheus.yml"
    config.write_text(f"""\
global: {{scrape_interval: 1s}}
scrape_configs:
- job_name: cotenant
  honor_labels: true
  static_configs: [{{targets: ["127.0.0.1:{scraped}"]}}]
""")
    commands = [
        [
            *(sys.executable, "-m", "cotenant", "metrics", "--segment", str(node.segment)),
            *("--listen", f"127.0.0.1:{scraped}"),
        ],
        [
            *(prometheus, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"),
            f"--web.listen-address=127.0.0.1:{asked}",
        ],
    ]
    log = (tmp_path / "log").open("wb")
    running = [
        subprocess.Popen(one, env=node.environment() | node.softgpu, stdout=log, stderr=log)
        for one in commands
    ]

    def found() -> list[dict[str, Any]]:
        query = 'cotenant_tenant_memory_bytes{namespace="default",pod="served",container="main",class="production"}'
        address = f"http://127.0.0.1:{asked}/api/v1/query?query={urllib.parse.quote(query)}"
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
                return result
        except OSError:
            return []

    try:
        [series] = until(found, "Prometheus has no such series")
        assert float(series["value"][1]) >= 16 * MIB
        assert series["metric"]["UUID"].startswith("GPU-")
    finally:
        for one in running:
            one.terminate()
        for one in running:
            one.wait(PATIENCE_SECONDS)
        log.close()
    remove(node, "served")
