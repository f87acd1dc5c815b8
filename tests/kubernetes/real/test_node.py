"""A real kubelet and containerd with our agent: limits hold inside pods, and whoever is killed, pods run on and nothing
is left behind."""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.kubernetes import manifests
from cotenant.launch import native_files
from tests.kubernetes.real.control_plane import ControlPlane, until
from tests.kubernetes.real.node import SHELL, RealNode, required

RESOURCE = "resource.k8s.io/v1"
OUT_OF_MEMORY = "2"
CHURN_SECONDS = float(os.environ.get("COTENANT_TEST_CHURN_SECONDS", "20"))
HOLD = ["sh", "-c", "sleep 1000000 | program 16"]  # waits for more, and keeps its memory


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    required()
    for made in (*manifests.device_classes(), *manifests.priority_classes()):
        control_plane.cluster.apply(made)
    program = tmp_path_factory.mktemp("program") / "allocate"
    source = Path(__file__).parents[1] / "allocate.c"
    subprocess.run(["cc", "-w", "-o", str(program), str(source), "-ldl"], check=True)
    # Sockets have short paths.
    with (
        tempfile.TemporaryDirectory(prefix="cotenant-node-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryDirectory(prefix="cotenant-gpu-") as sockets,
    ):
        softgpu = {
            "LD_LIBRARY_PATH": str(native_files.softgpu()),
            "COTENANT_SOFTGPU": "small",
            "COTENANT_SOFTGPU_DIR": sockets,
        }
        made_node = RealNode(control_plane, f"real-{os.urandom(3).hex()}", Path(folder), softgpu)
        try:
            made_node.start(program)
            until(made_node.is_ready, "the node is not ready", 120)
            yield made_node
        finally:
            made_node.stop()
            control_plane.cluster.delete(RESOURCE, "ResourceSlice", f"{made_node.name}-cotenant.dev")
            control_plane.cluster.delete("v1", "Node", made_node.name)


@pytest.fixture(autouse=True)
def emptied(node: RealNode) -> Iterator[None]:
    """Whatever a test has left is not the next one's."""
    yield
    names = {one["metadata"]["name"] for one in node.plane.cluster.all_of("v1", "Pod") if is_here(one, node)}
    remove(node, *names)


def is_here(pod: dict[str, Any], node: RealNode) -> bool:
    return bool(pod["spec"].get("nodeSelector", {}).get("kubernetes.io/hostname") == node.name)


def start(
    node: RealNode,
    name: str,
    command: list[str],
    tenant_class: str = "standard",
    parameters: dict[str, Any] | None = None,
    **capacity: str,
) -> None:
    request = {
        "deviceClassName": f"{tenant_class}.cotenant.dev",
        "capacity": {"requests": {"memory": "64Mi"} | capacity},
    }
    metadata = {"name": name, "namespace": "default"}
    devices: dict[str, Any] = {"requests": [{"name": "gpu", "exactly": request}]}
    if parameters:
        devices["config"] = [{"opaque": {"driver": "cotenant.dev", "parameters": parameters}}]
    node.plane.cluster.apply(
        {
            "apiVersion": RESOURCE,
            "kind": "ResourceClaim",
            "metadata": metadata,
            "spec": {"devices": devices},
        }
    )
    container = {
        "name": "main",
        "image": SHELL,
        "imagePullPolicy": "Never",
        "command": command,
        "resources": {"claims": [{"name": "gpu"}]},
    }
    node.plane.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": node.name},
                "hostNetwork": True,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": False,
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
                "containers": [container],
            },
        }
    )


def phase(node: RealNode, name: str) -> str:
    return str(node.plane.pod(name)["status"].get("phase"))


def once(node: RealNode, name: str, *phases: str) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    while phase(node, name) not in phases and time.monotonic() < deadline:
        time.sleep(0.2)
    pod = node.plane.pod(name)
    told = (pod["status"].get("containerStatuses"), node.plane.events_of(name))
    assert pod["status"].get("phase") in phases, told
    return pod


def remove(node: RealNode, *names: str) -> None:
    for name in names:
        node.plane.cluster.delete("v1", "Pod", name, "default")
    for name in names:
        until(
            lambda name=name: node.plane.cluster.get("v1", "Pod", name, "default") is None,  # type: ignore[misc]
            f"{name} is still there",
            90,
        )
        node.plane.cluster.delete(RESOURCE, "ResourceClaim", name, "default")


def until_nothing_is_left(node: RealNode) -> None:
    deadline = time.monotonic() + 120
    while (left := node.left_of_claims()) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert left == []


def test_a_pod_over_its_memory_is_refused_also_with_an_empty_environment(node: RealNode) -> None:
    start(node, "limited", ["env", "-i", "/bin/program", "32", "30", "8"])
    once(node, "limited", "Succeeded")
    told = node.kubectl("logs", "limited")
    assert told.stdout.split() == ["0", "0", OUT_OF_MEMORY], told.stderr
    remove(node, "limited")


def test_what_kubectl_exec_starts_has_the_pod_s_limit(node: RealNode) -> None:
    start(node, "shell", HOLD)
    once(node, "shell", "Running")
    done = node.kubectl("exec", "shell", "--", "env", "-i", "/bin/program", "60", "20")
    assert done.stdout.split() == [OUT_OF_MEMORY, "0"], done.stderr
    remove(node, "shell")


def test_tenants_of_two_pods_meet_in_the_node_s_segment_with_their_classes(node: RealNode) -> None:
    start(node, "serving", HOLD, "production")
    start(node, "training", HOLD, "opportunistic", overflow="64Mi")
    once(node, "serving", "Running")
    once(node, "training", "Running")

    def classes() -> dict[str, int]:
        return {one.job: one.tenant_class for one in segment.read(node.segment).tenants}

    wanted = {"default/serving": TenantClass.production, "default/training": TenantClass.opportunistic}
    # A pod that is gone for the API server may take a moment until it is on the node.
    until(lambda: classes() == wanted, "the pods are not the tenants", 30)
    remove(node, "serving", "training")
    until_nothing_is_left(node)


def test_a_claim_with_a_wrong_parameter_says_so_in_the_pod_s_events(node: RealNode) -> None:
    start(node, "wrong", HOLD, parameters={"wieght": 2})
    until(
        lambda: any("did you mean 'weight'?" in event for event in node.plane.events_of("wrong")),
        "no event says what is wrong",
        60,
    )
    remove(node, "wrong")


def test_without_claims_extended_resources_have_the_same_limits(node: RealNode) -> None:
    plugin = node.ours("device-plugin", "--split", "standard=50")

    def units() -> str | None:
        found = node.plane.cluster.get("v1", "Node", node.name)
        return ((found or {}).get("status", {}).get("allocatable") or {}).get("cotenant.dev/standard")

    try:
        until(lambda: units() == "50", "kubelet does not know the resource", 60)
        limits = {"cotenant.dev/standard": "10"}
        container = {
            "name": "main",
            "image": SHELL,
            "imagePullPolicy": "Never",
            "command": ["env", "-i", "/bin/program", "60", "60"],
            "resources": {"limits": limits},
        }
        spec = {
            "nodeSelector": {"kubernetes.io/hostname": node.name},
            "hostNetwork": True,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [container],
        }
        metadata = {"name": "units", "namespace": "default"}
        node.plane.cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        once(node, "units", "Succeeded")
        assert node.kubectl("logs", "units").stdout.split() == ["0", OUT_OF_MEMORY]
    finally:
        node.kill(plugin)


def test_agent_and_kubelet_are_killed_while_pods_come_and_go(node: RealNode) -> None:
    start(node, "steady", HOLD)
    steady = once(node, "steady", "Running")["status"]["containerStatuses"][0]
    seed = random.Random(1)
    running: list[str] = []
    number = 0
    ending = time.monotonic() + CHURN_SECONDS
    while time.monotonic() < ending:
        act = seed.choice(["start", "start", "start", "remove", "agent", "kubelet"])
        if act == "start" and len(running) < 6:
            number += 1
            start(node, f"churn-{number}", HOLD, memory="16Mi")
            running.append(f"churn-{number}")
        elif act == "remove" and running:
            name = running.pop(seed.randrange(len(running)))
            node.plane.cluster.delete("v1", "Pod", name, "default")
            node.plane.cluster.delete(RESOURCE, "ResourceClaim", name, "default")
        elif act == "agent":
            node.kill(node.agent)
            node.start_agent()
        elif act == "kubelet":
            node.kill(node.kubelet)
            node.start_kubelet()
        time.sleep(seed.uniform(0, 1))
    for name in running:
        once(node, name, "Running")
    after = once(node, "steady", "Running")["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (steady["containerID"], 0)
    remove(node, "steady", *running)
    until_nothing_is_left(node)
    claims = [one["metadata"]["name"] for one in node.plane.cluster.all_of(RESOURCE, "ResourceClaim")]
    assert [name for name in claims if name.startswith(("churn", "steady"))] == []
