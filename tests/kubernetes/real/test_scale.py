"""Nodes without kubelets against the real API server and scheduler; bench/kubernetes has three hundred of them."""

from __future__ import annotations

from tests.kubernetes.real import fake_nodes
from tests.kubernetes.real.control_plane import ControlPlane

NODES = 20


def test_claims_on_many_nodes_are_all_placed(control_plane: ControlPlane) -> None:
    with fake_nodes.offered(control_plane, "scale", NODES) as names:
        fake_nodes.template(control_plane, "scale", "standard", "30Gi")
        made = [fake_nodes.pod(f"scale-{number}", "scale") for number in range(2 * NODES)]
        try:
            assert fake_nodes.bind(control_plane, made).pods == 2 * NODES
            assert {one["spec"]["nodeName"] for one in fake_nodes.pods(control_plane)} <= set(names)
        finally:
            fake_nodes.remove(control_plane)
