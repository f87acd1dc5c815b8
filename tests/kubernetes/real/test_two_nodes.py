"""Two kubelets, each with its own containerd, segment and GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cotenant import segment
from tests.kubernetes.real.control_plane import until
from tests.kubernetes.real.node import RealNode
from tests.kubernetes.real.pods import HOLD, once, remove_all, start


@pytest.fixture(autouse=True)
def emptied_both(node: RealNode, other_node: RealNode) -> Iterator[None]:
    yield
    remove_all(node)
    remove_all(other_node)


def jobs_on(node: RealNode) -> set[str]:
    return {one.job for one in segment.read(node.segment).tenants}


def test_what_does_not_fit_on_one_node_runs_on_the_other(node: RealNode, other_node: RealNode) -> None:
    """`small` has 1 GiB: two claims of 600 MiB cannot share it."""
    for name in ("first", "second"):
        start(node, name, HOLD, pinned=False, memory="600Mi")
    where = {name: once(node, name, "Running")["spec"]["nodeName"] for name in ("first", "second")}
    assert set(where.values()) == {node.name, other_node.name}
    for name, place in where.items():
        there, elsewhere = (node, other_node) if place == node.name else (other_node, node)
        until(lambda: f"default/{name}" in jobs_on(there), "the pod is no tenant")  # noqa: B023
        assert f"default/{name}" not in jobs_on(elsewhere)


def test_a_node_whose_kubelet_and_agent_are_dead_does_not_trouble_the_other(
    node: RealNode, other_node: RealNode
) -> None:
    start(node, "there", HOLD)
    container = once(node, "there", "Running")["status"]["containerStatuses"][0]
    node.kill(node.kubelet)
    node.kill(node.agent)
    try:
        start(other_node, "here", HOLD)
        once(other_node, "here", "Running")
        assert "default/there" in jobs_on(node)
    finally:
        node.start_agent()
        node.start_kubelet()
    until(node.is_ready, "the node does not come back")
    after = once(node, "there", "Running")["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (container["containerID"], 0)
