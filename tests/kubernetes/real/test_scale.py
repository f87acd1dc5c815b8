"""Many nodes against the real API server and scheduler: how fast claims are placed, and what an agent takes."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from cotenant.kubernetes import manifests
from cotenant.kubernetes.inventory import Device, slice_of
from cotenant.kubernetes.webhook.wish import Wish, template
from tests.kubernetes.real.control_plane import ControlPlane, until

GIB = 1 << 30
NODES = int(os.environ.get("COTENANT_TEST_NODES", "300"))
PODS = NODES
LABEL = "cotenant.dev.scale"


def test_claims_on_many_nodes_are_all_placed(control_plane: ControlPlane, tmp_path: Path) -> None:
    cluster = control_plane.cluster
    for made in manifests.device_classes():
        cluster.apply(made)
    began = time.monotonic()
    names = [f"scale-{number}" for number in range(NODES)]
    for name in names:
        control_plane.fake_node(name)
        devices = [Device(f"gpu-{i}", f"GPU-{name}-{i}", "NVIDIA H200", 141 * GIB) for i in range(8)]
        cluster.apply(slice_of(name, devices, 256 * GIB))
    offered = time.monotonic() - began
    wanted = template(Wish("main", memory_bytes=30 * GIB), "default", list)
    cluster.create(wanted)
    began = time.monotonic()
    for number in range(PODS):
        cluster.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"scale-{number}", "namespace": "default", "labels": {LABEL: "yes"}},
                "spec": {
                    "resourceClaims": [
                        {"name": "gpu", "resourceClaimTemplateName": wanted["metadata"]["name"]}
                    ],
                    "containers": [
                        {"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
                    ],
                },
            }
        )

    def bound() -> int:
        pods = [pod for pod in cluster.all_of("v1", "Pod") if LABEL in (pod["metadata"].get("labels") or {})]
        return sum(bool(pod["spec"].get("nodeName")) for pod in pods)

    until(lambda: bound() == PODS, "not all pods are bound", 280)
    placed = time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report = (
        f"{NODES} nodes of 8 GPUs offered in {offered:.0f} s; {PODS} pods with claims created and bound in"
        f" {placed:.0f} s, {PODS / placed:.1f} a second; {peak:.0f} MiB in this client\n"
    )
    Path(os.environ.get("COTENANT_TEST_REPORT", tmp_path / "report")).write_text(report)
    for number in range(PODS):
        control_plane.kill("v1", "Pod", f"scale-{number}", "default")
    for name in names:
        cluster.delete("resource.k8s.io/v1", "ResourceSlice", f"{name}-cotenant.dev")
        cluster.delete("v1", "Node", name)
