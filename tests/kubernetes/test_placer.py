"""The placer: gated pods get GPUs by a placement policy, wait with a reason, and never because of the placer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cotenant.kubernetes import names
from cotenant.kubernetes.cluster import Unreachable
from cotenant.kubernetes.inventory import Taint
from cotenant.kubernetes.placer import gate
from cotenant.kubernetes.placer.placer import PATIENCE_SECONDS
from cotenant.kubernetes.placer.release import release_all
from cotenant.kubernetes.removal import remove
from tests.kubernetes.placer_scene import GIB, NOON, RESOURCE, Object, Scene

if TYPE_CHECKING:
    from tests.conftest import Run


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


def test_the_command_says_what_is_wrong(cotenant: Run) -> None:
    done = cotenant("kubernetes", "placer", "--policy", "muxflw")
    assert done.returncode == 2 and "did you mean 'muxflow'?" in done.stderr
    done = cotenant("kubernetes", "placer", "--policy", "gandiva")
    assert done.returncode == 2 and "pods cannot move" in done.stderr
