"""The stock scheduler, controllers and API server with our objects: what is offered, claimed, refused and removed."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.kubernetes import certificates, manifests, names, removal
from cotenant.kubernetes.claims import terms_of
from cotenant.kubernetes.cluster import ApiServer, Unreachable
from cotenant.kubernetes.inventory import Device
from cotenant.kubernetes.node import container
from cotenant.kubernetes.node.agent import Agent, Places
from cotenant.kubernetes.node.preparing import Claims
from cotenant.kubernetes.node.story import NORMAL, About, Story
from cotenant.kubernetes.webhook.wish import Wish, template
from tests.kubernetes.real import fake_nodes
from tests.kubernetes.real.control_plane import ControlPlane, until

GIB = 1 << 30
RESOURCE = "resource.k8s.io/v1"
MANIFESTS = Path(__file__).parents[1] / "manifests"


def agent_of(node: str, plane: ControlPlane, folder: Path, gpus: int = 1) -> Agent:
    devices = [Device(f"gpu-{i}", f"GPU-{node}-{i}", "NVIDIA H200", 141 * GIB) for i in range(gpus)]
    host = container.Host(folder / "native", folder / "preload", folder / "segment", folder / "gpu")
    claims = Claims(folder / "state", folder / "cdi", host, node, devices)
    return Agent(node, plane.cluster, claims, devices, Places(folder, folder), 256 * GIB)


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """All that `install` creates, with one node and its GPU, and no webhook in the way."""
    certificate = certificates.for_service(manifests.WEBHOOK, names.NAMESPACE)
    settings = manifests.Settings(
        certificate=certificate.certificate, key=certificate.key, authority=certificate.authority
    )
    for made in manifests.everything(settings):
        if made["kind"] != "MutatingWebhookConfiguration":
            control_plane.cluster.apply(made)
    yield control_plane


@pytest.fixture
def node(installed: ControlPlane, tmp_path: Path) -> Iterator[str]:
    name = f"node-{os.urandom(4).hex()}"
    installed.fake_node(name)
    agent = agent_of(name, installed, tmp_path)
    agent.publish()
    yield name
    installed.cluster.delete(RESOURCE, "ResourceSlice", f"{name}-{names.DRIVER}")
    for pod in installed.cluster.all_of("v1", "Pod"):
        if pod["metadata"]["namespace"] == "default":
            installed.kill("v1", "Pod", pod["metadata"]["name"], "default")
    installed.cluster.delete("v1", "Node", name)
    for claim in claims(installed):
        installed.kill(RESOURCE, "ResourceClaim", claim, "default")
    until(lambda: not claims(installed), "claims are still there")


def claims(plane: ControlPlane) -> list[str]:
    return [
        one["metadata"]["name"]
        for one in plane.cluster.all_of(RESOURCE, "ResourceClaim")
        if one["metadata"]["namespace"] == "default"
    ]


def claiming(plane: ControlPlane, pod: str, node: str, device_class: str, **capacity: str) -> None:
    request = {"deviceClassName": device_class, "capacity": {"requests": capacity}}
    plane.cluster.apply(
        {
            "apiVersion": RESOURCE,
            "kind": "ResourceClaim",
            "metadata": {"name": pod, "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}},
        }
    )
    plane.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod, "namespace": "default"},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": node},
                "resourceClaims": [{"name": "gpu", "resourceClaimName": pod}],
                "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
            },
        }
    )


def bound(plane: ControlPlane, pod: str) -> bool:
    return bool(plane.pod(pod)["spec"].get("nodeName"))


def test_claims_share_a_gpu_until_it_is_full_and_the_next_says_why_it_waits(
    installed: ControlPlane, node: str
) -> None:
    claiming(installed, "serving", node, "production.cotenant.dev", memory="100Gi", share="50")
    claiming(installed, "training", node, "opportunistic.cotenant.dev", memory="40Gi", overflow="60Gi")
    until(lambda: bound(installed, "serving"), "serving is not bound")
    until(lambda: bound(installed, "training"), "training is not bound")
    claim = installed.cluster.get(RESOURCE, "ResourceClaim", "training", "default")
    assert claim is not None
    terms = terms_of(claim, node)
    assert (terms.tenant_class, terms.memory_limit) == ("opportunistic", 100 * GIB)
    assert terms.pods == ("training",)

    claiming(installed, "late", node, "standard.cotenant.dev", memory="10Gi")
    told = until(lambda: installed.events_of("late"), "no event says why it waits")
    assert "cannot allocate all claims" in told[0]
    assert not bound(installed, "late")
    installed.kill("v1", "Pod", "training", "default")
    installed.kill(RESOURCE, "ResourceClaim", "training", "default")
    until(lambda: bound(installed, "late"), "late does not run though there is space")


def test_what_is_offered_is_not_written_again(installed: ControlPlane, node: str, tmp_path: Path) -> None:
    def generation() -> tuple[int, str]:
        found = installed.cluster.get(RESOURCE, "ResourceSlice", f"{node}-cotenant.dev")
        assert found is not None
        return found["spec"]["pool"]["generation"], found["metadata"]["resourceVersion"]

    agent = agent_of(node, installed, tmp_path)
    before = generation()
    agent.publish()
    assert generation() == before
    agent.state.put({"gpu-0": "GPU is lost"})
    agent.publish()
    agent.publish()
    assert generation()[0] == before[0] + 1


def test_a_tainted_gpu_takes_no_claim_until_it_is_well_again(
    installed: ControlPlane, node: str, tmp_path: Path
) -> None:
    agent = agent_of(node, installed, tmp_path)
    agent.state.put({"gpu-0": "GPU is lost"})
    agent.publish()
    claiming(installed, "unlucky", node, "standard.cotenant.dev", memory="1Gi")
    until(lambda: installed.events_of("unlucky"), "no event says why it waits")
    agent.state.put({"gpu-0": ""})
    agent.publish()
    until(lambda: bound(installed, "unlucky"), "unlucky does not run though its GPU is well")


def test_two_gpus_of_one_claim_are_two(installed: ControlPlane, node: str, tmp_path: Path) -> None:
    agent_of(node, installed, tmp_path, gpus=2).publish()
    made = template(Wish("main", count=2, memory_bytes=GIB), "default", lambda: [])
    installed.cluster.create(made)
    installed.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pair", "namespace": "default"},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": node},
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": made["metadata"]["name"]}],
                "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
            },
        }
    )
    until(lambda: bound(installed, "pair"), "pair is not bound")
    [status] = installed.pod("pair")["status"]["resourceClaimStatuses"]
    claim = installed.cluster.get(RESOURCE, "ResourceClaim", status["resourceClaimName"], "default")
    assert claim is not None
    assert {given.device for given in terms_of(claim, node).devices} == {"gpu-0", "gpu-1"}


@pytest.fixture
def webhook(installed: ControlPlane) -> Iterator[ControlPlane]:
    with fake_nodes.webhook(installed, has_placer=False):
        yield installed


@pytest.mark.parametrize("name", sorted(path.stem for path in MANIFESTS.glob("*.yaml")))
def test_a_manifest_of_each_dialect_becomes_a_pod_that_is_bound(
    webhook: ControlPlane, node: str, name: str, tmp_path: Path
) -> None:
    pod: dict[str, Any] = yaml.safe_load((MANIFESTS / f"{name}.yaml").read_text())
    if project := pod["spec"].get("priorityClassName"):  # of KAI's own installation
        webhook.cluster.apply(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": project},
                "value": 50,
            }
        )
    if name == "hami":  # asks for two GPUs
        agent_of(node, webhook, tmp_path, gpus=2).publish()
    pod["metadata"]["name"] = name
    pod["metadata"]["namespace"] = "default"
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    until(lambda: created(webhook, pod), "the webhook does not act")
    until(lambda: bound(webhook, name), f"{name} is not bound: {webhook.events_of(name)}")


def created(plane: ControlPlane, pod: dict[str, Any]) -> bool:
    """The API server takes a moment until it calls a new webhook."""
    plane.cluster.create(pod)
    if plane.pod(pod["metadata"]["name"])["spec"].get("resourceClaims"):
        return True
    plane.kill("v1", "Pod", pod["metadata"]["name"], "default")
    return False


def test_a_pod_that_cannot_be_honoured_is_refused_with_the_reason(webhook: ControlPlane, node: str) -> None:
    pod: dict[str, Any] = yaml.safe_load((MANIFESTS / "kai.yaml").read_text())
    del pod["spec"]["priorityClassName"]
    pod["metadata"]["namespace"] = "default"
    until(lambda: created(webhook, pod), "the webhook does not act")
    pod["metadata"]["name"] = "refused"
    pod["metadata"]["annotations"]["gpu-fraction"] = "1.5"
    with pytest.raises(Unreachable, match="it has to be over 0, and 1 at most"):
        webhook.cluster.create(pod)


def test_an_agent_cannot_write_another_node_s_slice_or_another_s_event(
    installed: ControlPlane, node: str, tmp_path: Path
) -> None:
    installed.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "agent", "namespace": names.NAMESPACE},
            "spec": {
                "serviceAccountName": "cotenant-agent",
                "nodeName": node,
                "containers": [{"name": "agent", "image": "none"}],
            },
        }
    )
    token = installed.token_of("cotenant-agent", names.NAMESPACE, "agent")
    restricted = ApiServer(str(installed.kubeconfig_for(token, "agent")))
    own = agent_of(node, installed, tmp_path, gpus=2)
    own.cluster = restricted
    own.publish()
    installed.fake_node("elsewhere")
    other = agent_of("elsewhere", installed, tmp_path)
    other.cluster = restricted
    with pytest.raises(Unreachable, match="of its own node and driver only"):
        other.publish()
    with pytest.raises(Unreachable, match="cannot list"):
        restricted.all_of("v1", "Secret")
    check_events(restricted, installed, node)
    installed.kill("v1", "Pod", "agent", names.NAMESPACE)
    installed.cluster.delete("v1", "Node", "elsewhere")


def check_events(restricted: ApiServer, plane: ControlPlane, node: str) -> None:
    """It sees the pods of its node, and writes events of its own about them, and no other's."""
    [(_, found), *_] = itertools.islice(restricted.follow("v1", "Pod", fields=f"spec.nodeName={node}"), 1)
    [pod] = [one for one in found if one["metadata"]["name"] == "agent"]
    story = Story(restricted, node)
    for _ in range(2):
        story.put((About.of(pod), "Paused", "why", NORMAL), time.time())
    [mine] = [
        one
        for one in plane.cluster.all_of("v1", "Event")
        if (one.get("reason"), one["involvedObject"].get("name")) == ("Paused", "agent")
    ]
    assert mine["count"] == 2
    other = mine | {
        "reportingComponent": "kubelet",
        "metadata": {"name": "other", "namespace": names.NAMESPACE},
    }
    with pytest.raises(Unreachable, match="its own events only"):
        restricted.apply(other)
    plane.cluster.apply(other)
    with pytest.raises(Unreachable, match="its own events only"):
        restricted.apply(other | {"reportingComponent": names.DRIVER})


def test_uninstall_leaves_nothing(control_plane: ControlPlane) -> None:
    certificate = certificates.for_service(manifests.WEBHOOK, names.NAMESPACE)
    made = manifests.everything(
        manifests.Settings(
            certificate=certificate.certificate, key=certificate.key, authority=certificate.authority
        )
    )
    for one in made:
        control_plane.cluster.apply(one)
    list(removal.remove(control_plane.cluster, names.NAMESPACE))
    labels = ",".join(f"{key}={value}" for key, value in names.LABELS.items())

    def left() -> list[tuple[str, str]]:
        kinds = {(one["apiVersion"], one["kind"]) for one in made} - {("v1", "Namespace")}
        kinds |= set(removal.MADE_LATER)
        return [
            (kind, name)
            for version, kind in kinds
            for _, name in control_plane.cluster.names_of(version, kind, labels)
        ]

    until(lambda: not left(), "something is left")
