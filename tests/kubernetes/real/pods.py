"""Pods with claims on a real node, from their creation to the last trace of them."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.kubernetes.real.control_plane import PATIENCE_SECONDS, until
from tests.kubernetes.real.node import SHELL, RealNode

RESOURCE = "resource.k8s.io/v1"
OUT_OF_MEMORY = "2"
HOLD = ["sh", "-c", "sleep 1000000 | program 16"]  # waits for more, and keeps its memory


def start(
    node: RealNode,
    name: str,
    command: list[str],
    tenant_class: str = "standard",
    parameters: dict[str, Any] | None = None,
    pinned: bool = True,
    folder: Path | None = None,
    pod: dict[str, Any] | None = None,
    container: dict[str, Any] | None = None,
    **capacity: str,
) -> None:
    """A pod and its claim, both of that name; on this node, unless it may go where it fits. `folder` is the host's,
    and /shared in the pod; `pod` and `container` are more of their specifications."""
    claim(node, name, tenant_class, parameters, **capacity)
    claims = [{"name": "gpu", "resourceClaimName": name}]
    resources = {"claims": [{"name": "gpu"}]} | (container or {}).get("resources", {})
    made = spec(node, command, pinned, resources) | {"resourceClaims": claims} | (pod or {})
    made["containers"][0] = (container or {}) | made["containers"][0]
    if folder:
        made["volumes"] = [{"name": "shared", "hostPath": {"path": str(folder)}}]
        made["containers"][0]["volumeMounts"] = [{"name": "shared", "mountPath": "/shared"}]
    metadata = {"name": name, "namespace": "default"}
    node.plane.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made})


def claim(
    node: RealNode, name: str, tenant_class: str, parameters: dict[str, Any] | None = None, **capacity: str
) -> None:
    request = {
        "deviceClassName": f"{tenant_class}.cotenant.dev",
        "capacity": {"requests": {"memory": "64Mi"} | capacity},
    }
    devices: dict[str, Any] = {"requests": [{"name": "gpu", "exactly": request}]}
    if parameters:
        devices["config"] = [{"opaque": {"driver": "cotenant.dev", "parameters": parameters}}]
    metadata = {"name": name, "namespace": "default"}
    node.plane.cluster.apply(
        {"apiVersion": RESOURCE, "kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": devices}}
    )


def spec(node: RealNode, command: list[str], pinned: bool, resources: dict[str, Any]) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": SHELL,
        "imagePullPolicy": "Never",
        "command": command,
        "resources": resources,
    }
    return {
        **({"nodeSelector": {"kubernetes.io/hostname": node.name}} if pinned else {}),
        "hostNetwork": True,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "containers": [container],
    }


def phase(node: RealNode, name: str) -> str:
    return str(node.plane.pod(name)["status"].get("phase"))


def once(node: RealNode, name: str, *phases: str) -> dict[str, Any]:
    """The pod when it is in one of the phases."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    over = {"Succeeded", "Failed"}
    while (now := phase(node, name)) not in phases and now not in over and time.monotonic() < deadline:
        time.sleep(0.2)
    pod = node.plane.pod(name)
    if pod["status"].get("phase") not in phases:
        said = node.kubectl("logs", name)
        told = (pod["status"].get("containerStatuses"), node.plane.events_of(name), said.stdout, said.stderr)
        raise AssertionError(told)
    return pod


def remove(node: RealNode, *names: str) -> None:
    for name in names:
        node.plane.cluster.delete("v1", "Pod", name, "default")
    for name in names:
        until(
            lambda name=name: node.plane.cluster.get("v1", "Pod", name, "default") is None,  # type: ignore[misc]
            f"{name} is still there",
        )
        node.plane.cluster.delete(RESOURCE, "ResourceClaim", name, "default")


def remove_all(node: RealNode) -> None:
    """All pods that are on the node, or could come there only."""
    here = [
        one["metadata"]["name"]
        for one in node.plane.cluster.all_of("v1", "Pod")
        if node.name
        in (one["spec"].get("nodeName"), one["spec"].get("nodeSelector", {}).get("kubernetes.io/hostname"))
        and one["metadata"]["namespace"] == "default"
    ]
    remove(node, *here)


def until_nothing_is_left(node: RealNode) -> None:
    """Of claims, once their pods are gone."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (left := node.left_of_claims()) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert left == []


def software_gpus(node: RealNode) -> list[int]:
    """The processes of the node's software GPU."""
    folder = node.softgpu["COTENANT_SOFTGPU_DIR"].encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if words[0].endswith(b"softgpud") and folder in words:
                found.append(int(entry.name))
    return found
