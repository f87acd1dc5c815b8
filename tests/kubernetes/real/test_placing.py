"""The placer with the real scheduler: pods are bound to the GPUs that it has chosen, and none waits because of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kubernetes.real import fake_nodes
from tests.kubernetes.real.control_plane import ControlPlane, until
from tests.kubernetes.real.fake_nodes import RESOURCE


@pytest.fixture(scope="module")
def placing(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    with (
        fake_nodes.offered(control_plane, "placing", 2),
        fake_nodes.webhook(control_plane, has_placer=True),
        fake_nodes.placer(control_plane, "muxflow"),
    ):
        fake_nodes.template(control_plane, "serving", "production", "100Gi", promise="5%")
        fake_nodes.template(control_plane, "batch", "opportunistic", "40Gi")
        fake_nodes.until_gated(control_plane, "batch")
        yield control_plane


@pytest.fixture(autouse=True)
def emptied(placing: ControlPlane) -> Iterator[None]:
    yield
    fake_nodes.remove(placing)


def gpu_of(plane: ControlPlane, pod: str) -> tuple[str, str] | None:
    """Node and device of a bound pod."""
    found = plane.pod(pod)
    if not found["spec"].get("nodeName"):
        return None
    name = found["spec"]["resourceClaims"][0]["resourceClaimName"]
    claim: dict[str, Any] | None = plane.cluster.get(RESOURCE, "ResourceClaim", name, "default")
    assert claim
    [result] = claim["status"]["allocation"]["devices"]["results"]
    return result["pool"], result["device"]


def test_pods_are_bound_to_the_gpus_that_no_promise_forbids(placing: ControlPlane) -> None:
    """`decode` keeps a promise of 5 % beside `gpt`, and not beside `longk`."""
    servers = [f"server-{number}" for number in range(2)]
    fake_nodes.bind(placing, [fake_nodes.pod(name, "serving", "decode") for name in servers])
    batch = {f"gpt-{number}": "gpt" for number in range(6)} | {
        f"longk-{number}": "longk" for number in range(6)
    }
    fake_nodes.bind(placing, [fake_nodes.pod(name, "batch", kind) for name, kind in batch.items()])
    taken = {gpu_of(placing, name) for name in servers}
    assert len(taken) == 2
    for name, kind in batch.items():
        assert kind == "gpt" or gpu_of(placing, name) not in taken, name


def test_a_pod_with_no_room_says_so_and_is_bound_when_there_is(placing: ControlPlane) -> None:
    fake_nodes.template(placing, "whole", "standard", "141Gi")
    full = [f"full-{number}" for number in range(16)]
    fake_nodes.bind(placing, [fake_nodes.pod(name, "whole") for name in full])
    placing.cluster.create(fake_nodes.pod("placed-late", "whole"))
    said = "no GPU has 141Gi of memory left: the most is 0"
    until(lambda: said in placing.events_of("placed-late"), "no event says why it waits")
    placing.kill("v1", "Pod", full[0], "default")
    until(lambda: gpu_of(placing, "placed-late"), "it is not bound though there is space")


def test_a_claim_goes_with_its_pod(placing: ControlPlane) -> None:
    fake_nodes.bind(placing, [fake_nodes.pod("short", "batch")])
    name = placing.pod("short")["spec"]["resourceClaims"][0]["resourceClaimName"]
    placing.kill("v1", "Pod", "short", "default")
    until(
        lambda: placing.cluster.get(RESOURCE, "ResourceClaim", name, "default") is None,
        "the claim is still there",
    )


def test_a_pod_over_its_quota_is_told_so_and_holds_up_no_other(placing: ControlPlane) -> None:
    used = len(placing.cluster.all_of(RESOURCE, "ResourceClaim"))
    word = "count/resourceclaims.resource.k8s.io"
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "claims", "namespace": "default"},
        "spec": {"hard": {word: str(used)}},
    }
    placing.cluster.create(quota)
    try:
        until(
            lambda: (
                (placing.cluster.get("v1", "ResourceQuota", "claims", "default") or {})
                .get("status", {})
                .get("used")
            ),
            "the quota is not counted",
        )
        placing.cluster.create(fake_nodes.pod("refused", "batch"))
        until(
            lambda: any("exceeded quota" in said for said in placing.events_of("refused")),
            "no event says that the quota refuses it",
        )
    finally:
        placing.kill("v1", "ResourceQuota", "claims", "default")
    until(lambda: gpu_of(placing, "refused"), "it is not bound though there is no quota any more")


def test_a_stranger_s_deep_parameters_do_not_blind_the_placer(placing: ControlPlane) -> None:
    """Of a driver that is not there, as deep as 10 KiB allow."""
    parameters: dict[str, Any] = {"a": json.loads("[" * 5000 + "]" * 5000)}
    exactly = {"deviceClassName": "standard.cotenant.dev"}
    devices = {
        "requests": [{"name": "gpu", "exactly": exactly}],
        "config": [{"opaque": {"driver": "x.example", "parameters": parameters}}],
    }
    claim = {
        "apiVersion": RESOURCE,
        "kind": "ResourceClaim",
        "metadata": {"name": "deep", "namespace": "default"},
        "spec": {"devices": devices},
    }
    assert placing.cluster.create(claim)
    try:
        fake_nodes.bind(placing, [fake_nodes.pod("beside", "batch")])
        assert gpu_of(placing, "beside")
    finally:
        placing.kill(RESOURCE, "ResourceClaim", "deep", "default")
