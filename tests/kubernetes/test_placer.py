"""The placer: gated pods get GPUs by a placement policy, wait with a reason, and never because of the placer."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cotenant.cluster.placement import registry
from cotenant.cluster.placement.interference import PairTable, Part
from cotenant.kubernetes import inventory, names
from cotenant.kubernetes.cluster import Unreachable
from cotenant.kubernetes.inventory import Device, Taint
from cotenant.kubernetes.placer import gate, nodes
from cotenant.kubernetes.placer.placer import AGAIN_SECONDS, PATIENCE_SECONDS, Placer
from cotenant.kubernetes.placer.release import release_all
from cotenant.kubernetes.placer.slowdowns import Known, known
from cotenant.kubernetes.removal import remove
from cotenant.kubernetes.webhook.server import Webhook
from tests.kubernetes.fake_cluster import FakeCluster

if TYPE_CHECKING:
    from tests.conftest import Run

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


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_pod_with_a_claim_waits_for_the_placer_and_gets_a_claim_on_one_gpu(scene: Scene) -> None:
    scene.node("one")
    scene.template("small", "standard", memory="10Gi")
    pod = scene.pod("job", "small")
    assert pod["spec"]["schedulingGates"] == [{"name": gate.GATE}]
    assert scene.claim_of("job") is None
    assert scene.placer.round() == 1
    claim = scene.claim_of("job")
    assert claim and scene.gpu_of("job") == "one/gpu-0"
    [request] = claim["spec"]["devices"]["requests"]
    assert request["exactly"]["selectors"] == [
        {"cel": {"expression": 'device.attributes["cotenant.dev"].uuid == "GPU-one-0"'}}
    ]
    assert request["exactly"]["capacity"] == {"requests": {"memory": "10Gi"}}
    [owner] = claim["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", "uid-job")
    assert scene.placer.round() == 0


def test_other_pods_pass_the_webhook_as_they_are(scene: Scene) -> None:
    scene.cluster.put(
        {
            "apiVersion": RESOURCE,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "foreign", "namespace": "team"},
            "spec": {
                "spec": {
                    "devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": "nic.example"}}]}
                }
            },
        }
    )
    pod = scene.pod("other", "foreign")
    assert "schedulingGates" not in pod["spec"] and gate.LABEL not in pod["metadata"]["labels"]


def test_pods_are_matched_together_so_that_no_promise_breaks(scene: Scene) -> None:
    scene.node("one")
    scene.node("two")
    scene.template("serving", "production", {"promise": "5%"}, memory="100Gi")
    scene.template("batch", "opportunistic", memory="40Gi")
    scene.pod("server", "serving", "decode")
    scene.placer.round()
    server = scene.gpu_of("server")
    # Whoever comes first would take the server's GPU by first fit; longk must not have it.
    scene.pod("bad", "batch", "longk")
    scene.pod("good", "batch", "gpt")
    scene.placer.round()
    placed = {name: scene.gpu_of(name) for name in ("bad", "good")}
    assert placed["bad"] not in (server, None)
    assert placed["good"] is not None


def test_a_pod_that_would_break_a_promise_everywhere_waits_and_says_so_once(scene: Scene) -> None:
    scene.node("one")
    scene.template("serving", "production", {"promise": "5%"}, memory="100Gi")
    scene.template("batch", "opportunistic", memory="40Gi")
    scene.pod("server", "serving", "decode")
    scene.placer.round()
    scene.pod("bad", "batch", "longk")
    scene.placer.round()
    scene.placer.round()
    assert scene.gpu_of("bad") is None
    assert scene.events_of("bad") == ["the placement policy muxflow finds no GPU for it now"]
    scene.node("two")
    scene.placer.round()
    assert scene.gpu_of("bad") == "two/gpu-0"


def test_claims_that_are_allocated_or_chosen_take_room(scene: Scene) -> None:
    scene.node("one")
    scene.template("large", "standard", memory="100Gi")
    scene.pod("first", "large")
    scene.pod("second", "large")
    scene.placer.round()
    assert (scene.gpu_of("first"), scene.gpu_of("second")) == ("one/gpu-0", None)
    scene.placer.round()
    assert scene.gpu_of("second") is None
    assert scene.events_of("second") == ["no GPU has 100Gi of memory left: the most is 41Gi"]


@pytest.mark.parametrize(
    ("capacity", "fits"),
    [
        ({"share": "60"}, False),
        ({"share": "40"}, True),
        ({"overflow": "65Gi"}, False),
        ({"overflow": "64Gi"}, True),
    ],
)
def test_share_and_overflow_are_counted_as_the_scheduler_counts_them(
    scene: Scene, capacity: dict[str, str], fits: bool
) -> None:
    scene.node("one")
    scene.template("first", "standard", memory="1Gi", share="60")
    scene.template("second", "opportunistic", None, memory="1Gi", **capacity)
    scene.pod("first", "first")
    scene.placer.round()
    scene.pod("second", "second")
    scene.placer.round()
    assert (scene.gpu_of("second") is not None) == fits


def test_a_tainted_gpu_and_a_node_that_refuses_the_pod_are_no_places(scene: Scene) -> None:
    scene.node("broken", Taint("cotenant.dev/fault", "NoExecute"))
    scene.node("cold", pool="cold")
    scene.node("warm", pool="warm")
    scene.template("small", "standard", memory="1Gi")
    scene.pod("job", "small", nodeSelector={"pool": "warm"})
    scene.placer.round()
    assert scene.gpu_of("job") == "warm/gpu-0"


def test_what_the_placer_cannot_choose_goes_to_the_scheduler_at_once(scene: Scene) -> None:
    scene.node("one", gpus=2)
    scene.template("pair", "standard", memory="1Gi")
    template = scene.cluster.objects[RESOURCE, "ResourceClaimTemplate", "team", "pair"]
    template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2
    scene.pod("two-gpus", "pair")
    scene.placer.round()
    assert scene.gpu_of("two-gpus") == ""


def test_a_pod_that_the_scheduler_cannot_bind_gets_its_claim_without_a_gpu(scene: Scene) -> None:
    scene.node("one")
    scene.template("small", "standard", memory="1Gi")
    scene.pod("job", "small")
    scene.placer.round()
    pod = scene.cluster.objects["v1", "Pod", "team", "job"]
    pod["status"] = {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "lastTransitionTime": "2027-01-15T08:00:00Z",
            }
        ]
    }
    scene.now = NOON + PATIENCE_SECONDS - 1
    assert scene.placer.round() == 0
    scene.now = NOON + PATIENCE_SECONDS + 1
    # A claim that the scheduler has allocated meanwhile is not deleted.
    claim = scene.claim_of("job")
    assert claim
    claim["status"] = {"allocation": {"devices": {}}}
    scene.cluster.put(claim)
    assert scene.placer.round() == 0
    assert scene.gpu_of("job") == "one/gpu-0"
    # Nor one of which the placer does not know the newest state.
    del claim["status"]
    seen = [claim | {"metadata": claim["metadata"] | {"resourceVersion": "1"}}]
    claim["metadata"]["resourceVersion"] = "2"
    scene.cluster.put(claim)
    look, scene.placer.look = (
        scene.placer.look,
        lambda version, kind: seen if kind == "ResourceClaim" else scene.cluster.all_of(version, kind),
    )
    assert scene.placer.round() == 0
    assert scene.gpu_of("job") == "one/gpu-0"
    scene.placer.look = look
    assert scene.placer.round() == 1
    assert scene.gpu_of("job") == ""
    assert scene.placer.round() == 0


def test_a_placer_that_is_killed_between_claim_and_release_is_followed_by_one_that_releases(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.node("one")
    scene.template("small", "standard", memory="1Gi")
    scene.pod("job", "small")

    def killed(*arguments: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(scene.cluster, "patch", killed)
        with pytest.raises(KeyboardInterrupt):
            scene.placer.round()
    assert scene.claim_of("job") and scene.gpu_of("job") is None
    scene.another_placer().round()
    assert scene.gpu_of("job") == "one/gpu-0"


def test_a_pod_that_takes_another_s_name_meanwhile_is_released_in_its_own_round(scene: Scene) -> None:
    scene.node("one")
    scene.template("small", "standard", memory="1Gi")
    pod = scene.pod("job", "small", schedulingGates=[{"name": "other/gate"}])
    seen = scene.cluster.all_of("v1", "Pod")
    pod["metadata"]["uid"] = "another"
    stale = Placer(
        scene.cluster,
        lambda version, kind: seen if kind == "Pod" else scene.cluster.all_of(version, kind),
        registry.find("first-fit")(),
        PAIRS,
    )
    assert stale.round() == 0 and scene.gpu_of("job") is None
    assert scene.placer.round() == 1
    assert pod["spec"]["schedulingGates"] == [{"name": "other/gate"}]  # which is not the placer's


def test_a_pod_that_is_being_deleted_takes_no_gpu_from_the_next(scene: Scene) -> None:
    scene.node("one")
    scene.template("large", "standard", memory="100Gi")
    scene.pod("gone", "large")["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    scene.pod("next", "large")
    assert scene.placer.round() == 1
    assert (scene.gpu_of("gone"), scene.gpu_of("next")) == (None, "one/gpu-0")
    assert scene.claim_of("gone") is None


def test_a_pod_whose_status_changed_meanwhile_is_released_at_once(scene: Scene) -> None:
    """The scheduler writes that it is gated, and the placer may not have seen that yet."""
    scene.node("one")
    scene.template("small", "standard", memory="1Gi")
    pod = scene.pod("job", "small")
    seen = scene.cluster.all_of("v1", "Pod")
    pod["metadata"]["resourceVersion"] = "later"
    pod["status"] = {"conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}
    scene.placer.look = lambda version, kind: seen if kind == "Pod" else scene.cluster.all_of(version, kind)
    assert scene.placer.round() == 1 and scene.gpu_of("job") == "one/gpu-0"


def test_a_pod_that_cannot_be_released_holds_up_no_other(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.node("one")
    scene.template("small", "standard", memory="1Gi")
    for number in range(20):
        scene.pod(f"job-{number}", "small")
    patch = scene.cluster.patch

    def refusing(version: str, kind: str, name: str, namespace: str, change: Object) -> bool:
        if name == "job-7":
            raise Unreachable("the API server refused: not this one")
        return patch(version, kind, name, namespace, change)

    with monkeypatch.context() as patched:
        patched.setattr(scene.cluster, "patch", refusing)
        assert scene.placer.round() == 19
    assert [number for number in range(20) if scene.gpu_of(f"job-{number}") is None] == [7]
    scene.now += AGAIN_SECONDS
    assert scene.placer.round() == 1 and scene.gpu_of("job-7") == "one/gpu-0"


OVER_QUOTA = "the API server refused: exceeded quota: gpus"


def refuse_claims_of(scene: Scene, *pods: str, without_events: bool = False) -> None:
    """As a ResourceQuota does."""
    create = scene.cluster.create

    def refusing(made: Object) -> bool:
        owners = [one["name"] for one in made["metadata"].get("ownerReferences", ())]
        if set(owners) & set(pods) or (without_events and made["kind"] == "Event"):
            raise Unreachable(OVER_QUOTA)
        return create(made)

    scene.cluster.create = refusing  # type: ignore[method-assign]


def allow_claims(scene: Scene) -> None:
    del scene.cluster.create


def unschedulable(scene: Scene, name: str) -> None:
    """For longer than the placer's patience."""
    since = {"reason": "Unschedulable", "lastTransitionTime": "2027-01-15T08:00:00Z"}
    condition = {"type": "PodScheduled", "status": "False", **since}
    scene.cluster.objects["v1", "Pod", "team", name]["status"] = {"conditions": [condition]}
    scene.now = NOON + PATIENCE_SECONDS + 1


@pytest.mark.parametrize("may_be_told", [True, False])
def test_a_pod_over_its_quota_is_told_so_and_takes_no_gpu_from_others(
    scene: Scene, may_be_told: bool
) -> None:
    scene.node("one")
    scene.template("small", "standard", memory="1Gi")
    scene.template("large", "standard", memory="100Gi")
    scene.pod("stuck", "small")
    scene.placer.round()
    unschedulable(scene, "stuck")
    for name in ("refused", "next"):
        scene.pod(name, "large")
    refuse_claims_of(scene, "refused", without_events=not may_be_told)
    for _ in range(2):
        with contextlib.nullcontext() if may_be_told else contextlib.suppress(Unreachable):
            scene.placer.round()
        assert scene.gpu_of("stuck") == ""  # what else there is to do is done
    assert (scene.gpu_of("refused"), scene.gpu_of("next")) == (None, "one/gpu-0")
    assert scene.events_of("refused") == [OVER_QUOTA] * may_be_told
    allow_claims(scene)
    scene.node("two")
    scene.now += AGAIN_SECONDS
    scene.placer.round()
    assert scene.gpu_of("refused") == "two/gpu-0"


def test_a_large_pod_whose_gate_could_not_be_opened_does_not_wait_for_its_own_claim(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.node("one")
    scene.template("large", "standard", memory="100Gi")
    scene.pod("job", "large")

    def refused(*arguments: object) -> bool:
        raise Unreachable("the API server refused: not now")

    with monkeypatch.context() as patched:
        patched.setattr(scene.cluster, "patch", refused)
        scene.placer.round()
    assert scene.claim_of("job") and scene.gpu_of("job") is None
    assert scene.another_placer().round() == 1 and scene.gpu_of("job") == "one/gpu-0"


def test_a_claim_that_was_deleted_and_could_not_be_created_again_is_created_later(scene: Scene) -> None:
    scene.node("one")
    scene.template("small", "standard", memory="1Gi")
    scene.pod("job", "small")
    scene.placer.round()
    unschedulable(scene, "job")
    refuse_claims_of(scene, "job")
    assert scene.placer.round() == 0 and scene.claim_of("job") is None
    assert scene.events_of("job") == [OVER_QUOTA]
    allow_claims(scene)
    assert scene.another_placer().round() == 1 and scene.gpu_of("job") == ""


def test_one_pod_over_its_quota_keeps_no_other_from_being_released(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.template("small", "standard", memory="1Gi")
    for name in ("refused", "job"):
        scene.pod(name, "small")
    refuse_claims_of(scene, "refused")
    assert release_all(scene.cluster) == 1
    assert (scene.gpu_of("refused"), scene.gpu_of("job")) == (None, "")
    assert capsys.readouterr().err == f"team/refused still waits: {OVER_QUOTA}\n"
    removed = list(remove(scene.cluster, names.NAMESPACE))
    assert ("ResourceClaimTemplate", "small") not in removed  # it is the team's
    allow_claims(scene)
    assert release_all(scene.cluster) == 0 and scene.gpu_of("refused") == ""


def test_a_mirror_that_lags_does_not_make_a_gpu_overfull(scene: Scene) -> None:
    """The claim that the last round made is not among those that are seen yet."""
    scene.node("one")
    scene.template("large", "standard", memory="100Gi")
    lagging = Placer(
        scene.cluster,
        lambda version, kind: [] if kind == "ResourceClaim" else scene.cluster.all_of(version, kind),
        registry.find("first-fit")(),
        PAIRS,
        lambda: scene.now,
    )
    scene.pod("first", "large")
    lagging.round()
    scene.pod("second", "large")
    lagging.round()
    assert scene.gpu_of("first") == "one/gpu-0" and scene.gpu_of("second") is None


@pytest.mark.parametrize(
    "requests",
    [
        [{"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": "standard.cotenant.dev"}]}],
        [],
        [
            {
                "name": "gpu",
                "exactly": {
                    "deviceClassName": "standard.cotenant.dev",
                    "capacity": {"requests": {"memory": str((1 << 63) - 1)}},
                },
            }
        ],
    ],
    ids=["alternatives", "none", "more than there is"],
)
def test_a_stranger_s_claim_with_the_placer_s_annotation_stops_no_round(
    scene: Scene, requests: list[Object]
) -> None:
    scene.node("one")
    scene.node("two")
    scene.template("small", "standard", memory="1Gi")
    scene.pod("job", "small")
    for number in range(2):
        metadata = {
            "name": f"foreign-{number}",
            "namespace": "other",
            "annotations": {gate.GPU: "one/gpu-0"},
        }
        spec = {"devices": {"requests": requests}}
        scene.cluster.put(
            {"apiVersion": RESOURCE, "kind": "ResourceClaim", "metadata": metadata, "spec": spec}
        )
    assert scene.placer.round() == 1 and scene.gpu_of("job")


def test_a_pod_whose_annotation_cannot_be_read_stops_no_round(scene: Scene) -> None:
    scene.node("one")
    scene.template("small", "standard", memory="1Gi")
    for name in ("wrong", "job"):
        scene.pod(name, "small")
    wrong = scene.cluster.objects["v1", "Pod", "team", "wrong"]
    wrong["metadata"]["annotations"][gate.TEMPLATES] = "[" * 100_000
    scene.placer.round()
    assert scene.gpu_of("job") == "one/gpu-0"


def kubeshare(name: str, **words: str) -> Object:
    said = {"gpu_request": "0.2", "gpu_limit": "1.0", "gpu_mem": str(GIB), **words}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {f"sharedgpu/{word}": value for word, value in said.items()}},
        "spec": {"containers": [{"name": "main"}]},
    }


def test_kubeshare_s_words_are_honoured_where_there_is_a_placer() -> None:
    scene = Scene("kubeshare")
    scene.node("one")
    scene.node("two")
    scene.node("three")
    for name, words in {
        "red-1": {"sched_affinity": "red"},
        "red-2": {"sched_affinity": "red"},
        "blue": {"sched_exclusion": "blue"},
        "green-1": {"sched_anti-affinity": "green"},
        "green-2": {"sched_anti-affinity": "green"},
    }.items():
        scene.admitted(kubeshare(name, **words))
        scene.placer.round()
    placed = {name: scene.gpu_of(name) for name in ("red-1", "red-2", "blue", "green-1", "green-2")}
    assert None not in placed.values(), placed
    assert placed["red-1"] == placed["red-2"]
    assert list(placed.values()).count(placed["blue"]) == 1
    assert placed["green-1"] != placed["green-2"]


def test_when_the_placer_goes_away_all_pods_go_to_the_scheduler(scene: Scene) -> None:
    scene.template("small", "standard", memory="1Gi")
    scene.pod("job", "small")
    scene.placer.round()
    assert scene.events_of("job") == ["no node offers a GPU"]
    release_all(scene.cluster)
    assert scene.gpu_of("job") == ""


def test_who_removes_an_installation_lets_go_of_the_pods_that_wait(scene: Scene) -> None:
    scene.template("small", "standard", memory="1Gi")
    scene.pod("job", "small")
    list(remove(scene.cluster, names.NAMESPACE))
    assert scene.gpu_of("job") == ""


def test_the_scheduler_is_told_the_node_and_a_placer_that_may_not_goes_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.node("one")
    scene.template("small", "standard", memory="1Gi")
    told = scene.pod("told", "small")
    scene.placer.round()
    assert told["status"]["nominatedNodeName"] == "one"

    def refused(*arguments: object) -> bool:
        raise Unreachable("the API server refused: it may not")

    monkeypatch.setattr(scene.cluster, "patch_status", refused)
    scene.pod("untold", "small")
    scene.placer.round()
    assert scene.gpu_of("untold") == "one/gpu-0"


def test_of_pairs_that_nobody_knows_production_keeps_its_speed() -> None:
    found = known(None, None)
    assert found.of_pair(Part("decode", True), Part("longk", False)) > 1.05  # shipped
    assert found.of_pair(Part("new", True), Part("longk", False)) == 1.0
    assert found.of_pair(Part("new", False), Part("longk", False)) == PairTable({}).unknown


def test_recorded_jobs_are_predicted(tmp_path: Path) -> None:
    profile = """
[[job]]
name = "job"
class = "opportunistic"
[[job.ops]]
us = {us}
sms = "70%"
"""
    (tmp_path / "mine.toml").write_text(profile.format(us=50))
    (tmp_path / "long.toml").write_text(profile.format(us=5000))
    found = known(tmp_path, None)
    mine = found.of_pair(Part("mine", True), Part("long", False))
    assert mine >= 1.0 and (Part("mine", True), Part("long", False)) in found._predicted


@pytest.mark.parametrize(
    ("spec", "is_taken"),
    [
        ({}, False),
        ({"tolerations": [{"key": "gpu", "operator": "Exists"}]}, True),
        ({"tolerations": [{"operator": "Exists"}]}, True),
        ({"tolerations": [{"key": "gpu", "value": "other"}]}, False),
        ({"tolerations": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}, True),
    ],
)
def test_taints_of_nodes_keep_pods_away_unless_they_tolerate_them(spec: Object, is_taken: bool) -> None:
    node = {
        "metadata": {"name": "one"},
        "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
    }
    assert nodes.takes(node, {"spec": spec}) == is_taken


@pytest.mark.parametrize(
    ("requirement", "is_met"),
    [
        ({"key": "zone", "operator": "In", "values": ["a", "b"]}, True),
        ({"key": "zone", "operator": "NotIn", "values": ["a"]}, False),
        ({"key": "size", "operator": "Gt", "values": ["7"]}, True),
        ({"key": "size", "operator": "Lt", "values": ["7"]}, False),
        ({"key": "none", "operator": "Exists"}, False),
        ({"key": "none", "operator": "DoesNotExist"}, True),
        ({"key": "zone", "operator": "Newer"}, False),
    ],
)
def test_required_affinity_holds(requirement: Object, is_met: bool) -> None:
    node = {"metadata": {"name": "one", "labels": {"zone": "a", "size": "8"}}, "spec": {}}
    required = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    assert nodes.takes(node, {"spec": {"affinity": affinity}}) == is_met


def test_the_command_says_what_is_wrong(cotenant: Run) -> None:
    done = cotenant("kubernetes", "placer", "--policy", "muxflw")
    assert done.returncode == 2 and "did you mean 'muxflow'?" in done.stderr
    done = cotenant("kubernetes", "placer", "--policy", "gandiva")
    assert done.returncode == 2 and "pods cannot move" in done.stderr
