"""Nodes without kubelets, each with eight GPUs, and pods with claims that are bound to them: for the scheduler, the
placer and the API server that is all the same."""

from __future__ import annotations

import base64
import contextlib
import datetime
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cotenant.kubernetes import certificates, manifests, names
from cotenant.kubernetes.inventory import Device, slice_of
from cotenant.kubernetes.placer import gate
from cotenant.kubernetes.webhook import server
from cotenant.kubernetes.webhook.server import Webhook
from tests.kubernetes.real.control_plane import PATIENCE_SECONDS, ControlPlane, until

GIB = 1 << 30
GPUS = 8
RESOURCE = "resource.k8s.io/v1"
LABEL = "cotenant.dev.scale"
CREATED_AT_ONCE = 8


@dataclass(frozen=True)
class Bound:
    """How pods came to their nodes."""

    pods: int
    seconds: float  # from the first one's creation to the last one's binding
    median_seconds: float  # of one pod, in whole seconds as the API server keeps them

    @property
    def a_second(self) -> float:
        return self.pods / self.seconds


@contextlib.contextmanager
def offered(plane: ControlPlane, prefix: str, count: int) -> Iterator[list[str]]:
    for made in manifests.device_classes():
        plane.cluster.apply(made)
    found = [f"{prefix}-{number:03}" for number in range(count)]
    try:
        for name in found:
            plane.fake_node(name)
            devices = [Device(f"gpu-{i}", f"GPU-{name}-{i}", "NVIDIA H200", 141 * GIB) for i in range(GPUS)]
            plane.cluster.apply(slice_of(name, devices, 256 * GIB))
        yield found
    finally:
        for name in found:
            plane.cluster.delete(RESOURCE, "ResourceSlice", f"{name}-{names.DRIVER}")
            plane.cluster.delete("v1", "Node", name)


def template(plane: ControlPlane, name: str, tenant_class: str, memory: str, promise: str = "") -> None:
    request = {
        "deviceClassName": f"{tenant_class}.{names.DRIVER}",
        "capacity": {"requests": {"memory": memory}},
    }
    devices: dict[str, Any] = {"requests": [{"name": "gpu", "exactly": request}]}
    if promise:
        devices["config"] = [{"opaque": {"driver": names.DRIVER, "parameters": {"promise": promise}}}]
    plane.cluster.apply(
        {
            "apiVersion": RESOURCE,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"spec": {"devices": devices}},
        }
    )


def pod(name: str, template_name: str, workload: str = "") -> dict[str, Any]:
    labels = {LABEL: "yes"} | ({names.WORKLOAD_LABEL: workload} if workload else {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template_name}],
            "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
        },
    }


def bind(plane: ControlPlane, made: list[dict[str, Any]], seconds: float = PATIENCE_SECONDS) -> Bound:
    """Creates the pods and waits until all of them have a node."""
    wanted = {one["metadata"]["name"] for one in made}
    waiting = set(wanted)
    began = time.monotonic()
    with ThreadPoolExecutor(CREATED_AT_ONCE) as pool:
        creating = [pool.submit(plane.cluster.create, one) for one in made]
        while waiting:
            # A watch costs the machine less than looking again and again.
            for _, some in plane.cluster.follow("v1", "Pod", labels=f"{LABEL}=yes"):
                waiting -= {one["metadata"]["name"] for one in some if one["spec"].get("nodeName")}
                if not waiting:
                    break
                if time.monotonic() - began > seconds:
                    pytest.fail(f"after {seconds:.0f} s {len(waiting)} pods are not bound")
        took = time.monotonic() - began
    assert all(one.result() for one in creating)
    delays = sorted(delay(one) for one in pods(plane) if one["metadata"]["name"] in wanted)
    return Bound(len(made), took, delays[len(delays) // 2])


def pods(plane: ControlPlane) -> list[dict[str, Any]]:
    return [
        one for one in plane.cluster.all_of("v1", "Pod") if LABEL in (one["metadata"].get("labels") or {})
    ]


def delay(pod: dict[str, Any]) -> float:
    """From its creation to its binding."""
    [scheduled] = [one for one in pod["status"]["conditions"] if one["type"] == "PodScheduled"]
    return moment(scheduled["lastTransitionTime"]) - moment(pod["metadata"]["creationTimestamp"])


def moment(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


def remove(plane: ControlPlane) -> None:
    for one in pods(plane):
        plane.kill("v1", "Pod", one["metadata"]["name"], "default")
    until(lambda: not pods(plane), "pods are still there")


@contextlib.contextmanager
def webhook(plane: ControlPlane, has_placer: bool) -> Iterator[None]:
    """Reached by an address instead of a service: this cluster has no network."""
    made = certificates.for_service(manifests.WEBHOOK, names.NAMESPACE, ["127.0.0.1"])
    running: list[ThreadingHTTPServer] = []
    is_ready = threading.Event()

    def ready(one: ThreadingHTTPServer) -> None:
        running.append(one)
        is_ready.set()

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tls.crt").write_bytes(base64.b64decode(made.certificate))
        (Path(folder) / "tls.key").write_bytes(base64.b64decode(made.key))
        reviewing = Webhook(plane.cluster, has_placer)
        thread = threading.Thread(target=server.serve, args=(reviewing, Path(folder), 0, ready))
        thread.start()
        assert is_ready.wait(PATIENCE_SECONDS)
        settings = manifests.Settings(authority=made.authority, placer="muxflow" if has_placer else "")
        *_, configuration = manifests.webhook(settings)
        address = f"https://127.0.0.1:{running[0].server_port}/mutate"
        configuration["webhooks"][0]["clientConfig"] = {"url": address, "caBundle": made.authority}
        try:
            plane.cluster.apply(configuration)
            yield
        finally:
            plane.cluster.delete(
                configuration["apiVersion"], configuration["kind"], configuration["metadata"]["name"]
            )
            running[0].shutdown()
            thread.join()


def until_gated(plane: ControlPlane, template_name: str) -> None:
    """The API server takes a moment until it calls a new webhook."""

    def is_gated() -> bool:
        plane.cluster.create(pod("first", template_name))
        found = gate.LABEL in plane.pod("first")["metadata"]["labels"]
        plane.kill("v1", "Pod", "first", "default")
        return found

    until(is_gated, "the webhook does not act")


@contextlib.contextmanager
def placer(plane: ControlPlane, policy: str) -> Iterator[subprocess.Popen[bytes]]:
    """`cotenant kubernetes placer`, as its pod runs it."""
    words = ["kubernetes", "placer", "--policy", policy, "--kubeconfig", str(plane.kubeconfig)]
    with (plane.folder / "placer.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "cotenant", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
