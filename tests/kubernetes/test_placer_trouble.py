"""What the API server refuses the placer, and what others write meanwhile, delays the pod concerned and no other."""

from __future__ import annotations

import contextlib

import pytest

from cotenant.cluster.placement import registry
from cotenant.kubernetes import names
from cotenant.kubernetes.cluster import Unreachable
from cotenant.kubernetes.placer import gate
from cotenant.kubernetes.placer.placer import AGAIN_SECONDS, PATIENCE_SECONDS, Placer
from cotenant.kubernetes.placer.release import release_all
from cotenant.kubernetes.removal import remove
from tests.kubernetes.placer_scene import NOON, PAIRS, RESOURCE, Object, Scene


@pytest.fixture
def scene() -> Scene:
    return Scene()


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
