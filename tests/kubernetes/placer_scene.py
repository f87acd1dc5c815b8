"""Nodes with GPUs, the webhook in front of the API server, and a placer behind it, without Kubernetes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from cotenant.cluster.placement import registry
from cotenant.cluster.placement.interference import Part
from cotenant.kubernetes import inventory, names
from cotenant.kubernetes.inventory import Device, Taint
from cotenant.kubernetes.placer import gate
from cotenant.kubernetes.placer.placer import Placer
from cotenant.kubernetes.placer.slowdowns import Known
from cotenant.kubernetes.webhook.server import Webhook
from tests.kubernetes.fake_cluster import FakeCluster

GIB = 1 << 30
RESOURCE = "resource.k8s.io/v1"
Object = dict[str, Any]
NOON = 1_800_000_000.0

# decode keeps its promise beside gpt, and not beside longk.
PAIRS = Known(
    {
        (Part("decode", True), Part("gpt", False)): 1.01,
        (Part("gpt", False), Part("decode", True)): 1.5,
        (Part("decode", True), Part("longk", False)): 1.4,
        (Part("longk", False), Part("decode", True)): 1.3,
    }
)


@dataclass
class Scene:
    """Nodes with GPUs, the webhook in front of the API server, and a placer behind it."""

    policy: str = "muxflow"
    cluster: FakeCluster = field(default_factory=FakeCluster)
    now: float = NOON

    def __post_init__(self) -> None:
        self.webhook = Webhook(self.cluster, has_placer=True)
        self.placer = self.another_placer()

    def another_placer(self) -> Placer:
        return Placer(
            self.cluster, self.cluster.all_of, registry.find(self.policy)(), PAIRS, lambda: self.now
        )

    def node(self, name: str, *taints: Taint, gpus: int = 1, **labels: str) -> None:
        devices = [Device(f"gpu-{i}", f"GPU-{name}-{i}", "NVIDIA H200", 141 * GIB) for i in range(gpus)]
        tainted = {"gpu-0": taints} if taints else {}
        self.cluster.put(inventory.slice_of(name, devices, 64 * GIB, tainted))
        self.cluster.put(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}}
        )

    def template(
        self, name: str, tenant_class: str, parameters: Object | None = None, **capacity: str
    ) -> None:
        request = {"deviceClassName": f"{tenant_class}.cotenant.dev"}
        exactly: Object = request | ({"capacity": {"requests": capacity}} if capacity else {})
        devices: Object = {"requests": [{"name": "gpu", "exactly": exactly}]}
        if parameters:
            devices["config"] = [{"opaque": {"driver": names.DRIVER, "parameters": parameters}}]
        metadata = {"name": name, "namespace": "team"}
        spec = {"spec": {"devices": devices}}
        self.cluster.put(
            {"apiVersion": RESOURCE, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}
        )

    def pod(self, name: str, template: str, workload: str = "", **spec: Any) -> Object:
        """As the API server has it after the webhook."""
        labels = {names.WORKLOAD_LABEL: workload} if workload else {}
        made: Object = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "team", "labels": labels},
            "spec": {
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}],
                "containers": [{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}],
                **spec,
            },
        }
        return self.admitted(made)

    def admitted(self, pod: Object) -> Object:
        import base64

        request = {"uid": "1", "namespace": "team", "object": pod}
        answer = self.webhook.review({"apiVersion": "v1", "request": request})["response"]
        assert answer["allowed"], answer
        for change in json.loads(base64.b64decode(answer.get("patch", "W10="))):
            pod[change["path"].strip("/")] = change["value"]
        number = len(self.cluster.objects)
        pod["metadata"] |= {
            "uid": f"uid-{pod['metadata']['name']}",
            "resourceVersion": str(number),
            "creationTimestamp": f"2026-01-01T00:00:00Z-{number:04}",
            "namespace": "team",
        }
        return self.cluster.put(pod)

    def claim_of(self, pod: str) -> Object | None:
        found = self.cluster.get("v1", "Pod", pod, "team")
        assert found
        return self.cluster.get(
            RESOURCE, "ResourceClaim", found["spec"]["resourceClaims"][0]["resourceClaimName"], "team"
        )

    def gpu_of(self, pod: str) -> str | None:
        """NODE/DEVICE; "": the scheduler chooses; None: it is gated."""
        made = self.cluster.get("v1", "Pod", pod, "team")
        claim = self.claim_of(pod)
        assert made
        if gate.is_closed(made):
            return None
        assert claim, f"{pod} is released, and has no claim"
        return "/".join(gate.gpu_of(claim) or ())

    def events_of(self, pod: str) -> list[str]:
        return [
            one["message"]
            for one in self.cluster.all_of("v1", "Event")
            if one["involvedObject"]["name"] == pod
        ]
