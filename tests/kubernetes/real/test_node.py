"""A real kubelet and containerd with our agent: limits hold inside pods."""

from __future__ import annotations

import pytest

from cotenant import segment
from cotenant.classes import TenantClass
from tests.kubernetes.real.control_plane import until
from tests.kubernetes.real.node import RealNode
from tests.kubernetes.real.pods import (
    HOLD,
    OUT_OF_MEMORY,
    once,
    remove,
    spec,
    start,
    until_nothing_is_left,
)

pytestmark = pytest.mark.usefixtures("emptied")


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


def test_a_cleared_environment_and_a_nested_container_keep_the_limit(node: RealNode) -> None:
    start(node, "nest", HOLD, container={"securityContext": {"privileged": True}})
    once(node, "nest", "Running")
    nested = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--fork", "--mount-proc"]
    for before in ([], nested, [*nested, "env", "-i"]):
        done = node.kubectl("exec", "nest", "--", *before, "/bin/program", "clear", "60", "20")
        assert done.stdout.split() == [OUT_OF_MEMORY, "0"], (before, done.stderr)
    remove(node, "nest")


def test_tenants_of_two_pods_meet_in_the_node_s_segment_with_their_classes(node: RealNode) -> None:
    start(node, "serving", HOLD, "production")
    start(node, "training", HOLD, "opportunistic", overflow="64Mi")
    once(node, "serving", "Running")
    once(node, "training", "Running")

    def classes() -> dict[str, int]:
        return {one.job: one.tenant_class for one in segment.read(node.segment).tenants}

    wanted = {"default/serving": TenantClass.production, "default/training": TenantClass.opportunistic}
    # A pod that is gone for the API server may take a moment until it is on the node.
    until(lambda: classes() == wanted, "the pods are not the tenants")
    remove(node, "serving", "training")
    until_nothing_is_left(node)


def test_a_claim_with_a_wrong_parameter_says_so_in_the_pod_s_events(node: RealNode) -> None:
    start(node, "wrong", HOLD, parameters={"wieght": 2})
    until(
        lambda: any("did you mean 'weight'?" in event for event in node.plane.events_of("wrong")),
        "no event says what is wrong",
    )
    remove(node, "wrong")


def test_without_claims_extended_resources_have_the_same_limits(node: RealNode) -> None:
    plugin = node.ours("device-plugin", "--split", "standard=50")

    def units() -> str | None:
        found = node.plane.cluster.get("v1", "Node", node.name)
        return ((found or {}).get("status", {}).get("allocatable") or {}).get("cotenant.dev/standard")

    try:
        until(lambda: units() == "50", "kubelet does not know the resource")
        limits = {"cotenant.dev/standard": "10"}
        made = spec(node, ["env", "-i", "/bin/program", "60", "60"], True, {"limits": limits})
        metadata = {"name": "units", "namespace": "default"}
        node.plane.cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made})
        once(node, "units", "Succeeded")
        assert node.kubectl("logs", "units").stdout.split() == ["0", OUT_OF_MEMORY]
    finally:
        node.kill(plugin)
