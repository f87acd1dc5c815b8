"""Manifests in each project's spelling become claims unchanged; what cannot be honoured is refused with a reason."""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.kubernetes import certificates, inventory
from cotenant.kubernetes.inventory import Device
from cotenant.kubernetes.webhook import matching, server
from cotenant.kubernetes.webhook.dialects import annotations_of, gaiagpu, labels_of, limits_of, own
from cotenant.kubernetes.webhook.gating import hold
from cotenant.kubernetes.webhook.mutation import give_priority, mutate
from cotenant.kubernetes.webhook.server import Webhook
from cotenant.kubernetes.webhook.wish import Refused, Understood, Wish, template
from tests.kubernetes.fake_cluster import FakeCluster

GIB = 1 << 30
MANIFESTS = Path(__file__).with_name("manifests")


def pod_of(name: str) -> dict[str, Any]:
    pod: dict[str, Any] = yaml.safe_load((MANIFESTS / f"{name}.yaml").read_text())
    return pod


def one_size() -> Sequence[int]:
    return [141 * GIB]


def claimed(
    name: str, sizes: Callable[[], Sequence[int]] = one_size
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod, and the one template of its claims."""
    mutation = mutate(pod_of(name), "team", sizes)
    assert mutation is not None
    [template] = mutation.templates
    spec: dict[str, Any] = template["spec"]["spec"]["devices"]
    names = [entry["resourceClaimTemplateName"] for entry in mutation.pod["spec"]["resourceClaims"]]
    assert names == [template["metadata"]["name"]]
    return mutation.pod, spec


def users(pod: dict[str, Any]) -> list[str]:
    containers = (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"])
    return [one["name"] for one in containers if one.get("resources", {}).get("claims")]


def test_cotenant_s_own_annotations() -> None:
    pod, devices = claimed("cotenant")
    assert devices["requests"] == [
        {
            "name": "gpu",
            "exactly": {
                "deviceClassName": "production.cotenant.dev",
                "capacity": {"requests": {"memory": "20Gi"}},
            },
        }
    ]
    assert devices["config"][0]["opaque"]["parameters"]["promise"] == "5%"
    assert pod["spec"]["priorityClassName"] == "cotenant-production"
    assert users(pod) == ["server"]


def test_the_short_form_is_for_init_containers_too() -> None:
    pod = pod_of("cotenant")
    pod["spec"]["initContainers"] = [{"name": "warm-up", "image": "registry.example/server"}]
    mutation = mutate(pod, "team", one_size)
    assert mutation and users(mutation.pod) == ["warm-up", "server"]


@pytest.mark.parametrize("name", sorted(path.stem for path in MANIFESTS.glob("*.yaml")))
def test_the_webhook_is_asked_about_the_pods_of_every_dialect(name: str) -> None:
    """And about no pod that says nothing of GPUs: it must not wait for a webhook that is down."""
    pod = pod_of(name)
    said = [*annotations_of(pod), *labels_of(pod), *(word for _, words in limits_of(pod) for word in words)]
    assert any(re.match(matching.WORDS, word) for word in said)
    assert not any(
        re.match(matching.WORDS, word) for word in ("cpu", "nvidia.com/gpu", "example.com/gpu-memory")
    )


def test_hami() -> None:
    pod, devices = claimed("hami")
    [request] = devices["requests"]
    exactly = request["exactly"]
    assert exactly["deviceClassName"] == "production.cotenant.dev"
    assert (exactly["allocationMode"], exactly["count"]) == ("ExactCount", 2)
    assert exactly["capacity"]["requests"] == {"memory": "3000Mi", "share": "30"}
    [selector] = exactly["selectors"]
    assert 'contains("h200") || ' in selector["cel"]["expression"]
    assert devices["constraints"][0]["distinctAttribute"] == "cotenant.dev/uuid"
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "2"}
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert users(pod) == ["ubuntu-container"]


def test_a_percentage_is_of_the_gpu_that_it_runs_on() -> None:
    _, devices = claimed("hami-percentage")
    assert devices["requests"][0]["exactly"]["capacity"]["requests"] == {"memory": "72192Mi"}
    _, devices = claimed("hami-percentage", lambda: [80 * GIB, 141 * GIB, 80 * GIB])
    first, second = devices["requests"][0]["firstAvailable"]
    assert first["capacity"]["requests"] == {"memory": "72192Mi"}
    assert 'quantity("141Gi")' in first["selectors"][0]["cel"]["expression"]
    assert second["capacity"]["requests"] == {"memory": "40Gi"}
    with pytest.raises(Refused, match="no node offers a GPU yet"):
        claimed("hami-percentage", lambda: [])


def test_kai() -> None:
    mutation = mutate(pod_of("kai"), "team", one_size)
    assert mutation is not None
    exactly = mutation.templates[0]["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    assert exactly["deviceClassName"] == "opportunistic.cotenant.dev"
    assert exactly["capacity"]["requests"] == {"share": "50", "memory": "72192Mi"}
    assert mutation.pod["spec"]["priorityClassName"] == "train"
    assert "queue 'default-queue'" in mutation.warnings[0]
    _, devices = claimed("kai-memory")
    assert devices["requests"][0]["exactly"]["capacity"]["requests"] == {"memory": "2000Mi"}


def test_kubeshare() -> None:
    pod, devices = claimed("kubeshare")
    assert devices["requests"][0]["exactly"]["capacity"]["requests"] == {"share": "40", "memory": "3000Mi"}
    [term] = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


def test_gaiagpu() -> None:
    pod, devices = claimed("gaiagpu")
    assert devices["requests"][0]["exactly"]["capacity"]["requests"] == {"share": "50", "memory": "7680Mi"}
    assert not any(pod["spec"]["containers"][0]["resources"][kind] for kind in ("limits", "requests"))


@pytest.mark.parametrize(
    ("name", "annotations", "reason"),
    [
        ("cotenant", {"cotenant.dev/clas": "production"}, "did you mean 'cotenant.dev/class'?"),
        ("cotenant", {"cotenant.dev/class": "prodution"}, "did you mean 'production'?"),
        ("cotenant", {"cotenant.dev/class": "standard"}, "promise is for production"),
        ("cotenant", {"cotenant.dev/memory": "20"}, "did you forget the unit?"),
        ("cotenant", {"cotenant.dev/on-eviction": "stop"}, "on-eviction is pause or run"),
        ("hami", {"hami.io/gpu-scheduler-policy": "spread"}, "the stock scheduler places claims"),
        ("hami", {"nvidia.com/vgpu-mode": "mig"}, "makes no MIG instances"),
        ("hami", {"nvidia.com/use-gputype": 'x") || ("'}, "names no GPUs"),
        ("hami", {"gpu-fraction": "0.5"}, "in the words of HAMi and KAI"),
        ("kai", {"gpu-memory": "2000"}, "leave one out"),
        ("kai", {"gpu-fraction": "1.5"}, "over 0, and 1 at most"),
        ("kai", {"gpu-fraction": "1/2"}, "it has to be a number such as 0.5"),
        ("kai", {"gpu-fraction-container-name": "none"}, "the pod has ubuntu"),
        ("hami", {"nvidia.com/nouse-gpuuuid": " , "}, "names no GPUs"),
        ("kubeshare", {"sharedgpu/gpu_requests": "1"}, "did you mean 'sharedgpu/gpu_request'?"),
        ("kubeshare", {"sharedgpu/sched_affinity": "red"}, "let both pods use one ResourceClaim"),
        ("kubeshare", {"sharedgpu/sched_exclusion": "red"}, "claim a whole GPU"),
        ("gaiagpu", {"tencent.com/vcuda-core-limit": "80"}, "does not cap it"),
    ],
)
def test_what_cannot_be_honoured_is_refused(name: str, annotations: dict[str, str], reason: str) -> None:
    pod = pod_of(name)
    pod["metadata"].setdefault("annotations", {}).update(annotations)
    with pytest.raises(Refused) as refused:
        mutate(pod, "team", one_size)
    assert reason in str(refused.value)


@pytest.mark.parametrize("text", ["1e9999", "1e-9999", "0." + "1" * 1000])
@pytest.mark.parametrize(
    ("name", "kind", "word"),
    [("kai", "annotations", "gpu-fraction"), ("kubeshare", "labels", "sharedgpu/gpu_request")],
)
def test_a_number_that_could_take_hours_to_compute_is_not_read(
    name: str, kind: str, word: str, text: str
) -> None:
    """These are quick; 1e999999999 is not."""
    pod = pod_of(name)
    pod["metadata"][kind][word] = text
    with pytest.raises(Refused) as refused:
        mutate(pod, "team", one_size)
    assert str(refused.value) == f"{word} is '{text}': it has to be a number such as 0.5"


@pytest.mark.parametrize(
    ("name", "resources", "reason"),
    [
        ("hami", {"nvidia.com/gpumem-percentage": 50}, "leave one out"),
        ("hami", {"nvidia.com/priority": 2}, "from 0 to 1"),
        ("hami", {"nvidia.com/gpucore": 30}, "did you mean 'nvidia.com/gpucores'?"),
        ("hami", {"nvidia.com/gpumem": "much"}, "no quantity: 'much'"),
        ("gaiagpu", {"tencent.com/vcuda-core": 150}, "in hundreds"),
        ("gaiagpu", {"tencent.com/vcuda-core": 0}, "it has to be 1 or more"),
        ("gaiagpu", {"tencent.com/vcuda-cores": 50}, "did you mean 'tencent.com/vcuda-core'?"),
        ("gaiagpu", {"tencent.com/elsewhere": 50}, "'tencent.com/elsewhere' is not known to Cotenant"),
    ],
)
def test_resources_that_make_no_sense_are_refused(name: str, resources: dict[str, Any], reason: str) -> None:
    pod = pod_of(name)
    pod["spec"]["containers"][0]["resources"]["limits"].update(resources)
    with pytest.raises(Refused) as refused:
        mutate(pod, "team", one_size)
    assert reason in str(refused.value)


def test_a_kubeshare_pod_says_which_part_it_wants_and_without_memory_has_that_part_of_it() -> None:
    pod = pod_of("kubeshare")
    del pod["metadata"]["labels"]["sharedgpu/gpu_mem"]
    mutation = mutate(pod, "team", one_size)
    assert mutation is not None
    exactly = mutation.templates[0]["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    assert exactly["capacity"]["requests"] == {"share": "40", "memory": f"{int(141 * 1024 * 0.4)}Mi"}
    del pod["metadata"]["labels"]["sharedgpu/gpu_request"]
    with pytest.raises(Refused, match="has no sharedgpu/gpu_request"):
        mutate(pod, "team", one_size)


def test_the_placer_does_what_the_stock_scheduler_cannot() -> None:
    pod = pod_of("kubeshare")
    pod["metadata"]["labels"]["sharedgpu/sched_affinity"] = "red"
    pod["spec"]["schedulerName"] = "the-teams-own"
    mutation = mutate(pod, "team", one_size, has_placer=True)
    assert mutation and mutation.words == {"affinity": "red", "anti_affinity": "green"}
    assert "affinity" not in mutation.pod["spec"] and mutation.pod["metadata"] == pod["metadata"]
    assert mutation.pod["spec"]["schedulerName"] == "the-teams-own"  # only the project's own is gone
    without = mutate(pod_of("kubeshare"), "team", one_size)
    assert without and (without.words, without.pod["spec"]["schedulerName"]) == ({}, "default-scheduler")
    plain = mutate(pod_of("cotenant"), "team", one_size)
    assert plain and "affinity" not in plain.pod["spec"]


def test_each_container_has_a_claim_of_its_own_beside_those_of_other_drivers() -> None:
    pod = gaia(core=100)
    asked = {"tencent.com/vcuda-core": 200}
    pod["spec"]["initContainers"] = [{"name": "first", "resources": {"requests": asked}}]
    pod["spec"]["containers"].append({"name": "sidecar"})
    pod["spec"]["resourceClaims"] = [{"name": "network", "resourceClaimName": "theirs"}]
    mutation = mutate(pod, "team", one_size)
    assert mutation is not None
    spec = mutation.pod["spec"]
    assert [entry["name"] for entry in spec["resourceClaims"]] == [
        "network",
        "cotenant-first",
        "cotenant-main",
    ]
    containers = (*spec["initContainers"], *spec["containers"])
    used = {one["name"]: one.get("resources", {}).get("claims") for one in containers}
    assert used == {
        "first": [{"name": "cotenant-first"}],
        "main": [{"name": "cotenant-main"}],
        "sidecar": None,
    }
    counts = [
        one["spec"]["spec"]["devices"]["requests"][0]["exactly"].get("count") for one in mutation.templates
    ]
    assert counts[0] == 2 and counts[1] in (None, 1)
    assert spec["initContainers"][0]["resources"]["requests"] == {}


def test_gpus_are_chosen_and_left_out_by_name_and_uuid() -> None:
    pod = pod_of("hami")
    for word, value in ("use-gputype", "H200, a-b_c.1"), ("nouse-gpuuuid", "GPU-1,,GPU-2"):
        pod["metadata"]["annotations"][f"nvidia.com/{word}"] = value
    mutation = mutate(pod, "team", one_size)
    assert mutation is not None
    exactly = mutation.templates[0]["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    said = " ".join(one["cel"]["expression"] for one in exactly["selectors"])
    assert '.contains("h200") || ' in said and '.contains("a-b_c.1")' in said
    assert re.search(
        r'!\([^()]*\.uuid\.lowerAscii\(\) == "gpu-1" \|\| [^()]*\.lowerAscii\(\) == "gpu-2"\)', said
    )


def test_a_limit_below_the_whole_gpu_s_time_is_refused() -> None:
    pod = pod_of("kubeshare")
    pod["metadata"]["labels"]["sharedgpu/gpu_limit"] = "0.5"
    with pytest.raises(Refused, match="does not cap it"):
        mutate(pod, "team", one_size)


def test_a_pod_has_the_priority_of_its_highest_claim() -> None:
    for names in (("opportunistic", "production"), ("production", "opportunistic")):
        spec: dict[str, Any] = {"priority": 0, "preemptionPolicy": "Never"}
        give_priority(spec, Understood([Wish(tenant_class=name) for name in names]))
        assert spec == {"priorityClassName": "cotenant-production"}


def test_an_opportunistic_pod_that_may_save_its_work_is_told_that_it_is_paused() -> None:
    def warnings(on_eviction: str = "", **spec: Any) -> list[str]:
        pod = pod_of("cotenant")
        pod["metadata"]["annotations"] = {"cotenant.dev/class": spec.pop("of", "opportunistic")}
        if on_eviction:
            pod["metadata"]["annotations"]["cotenant.dev/on-eviction"] = on_eviction
        pod["spec"] |= spec
        mutation = mutate(pod, "team", one_size)
        assert mutation
        return mutation.warnings

    [said] = warnings(terminationGracePeriodSeconds=300)
    assert "cotenant.dev/on-eviction: run" in said
    saving = {"name": "train", "lifecycle": {"preStop": {"exec": {"command": ["save"]}}}}
    assert warnings(containers=[{"name": "first"}, saving]) == [said]
    assert warnings() == warnings(terminationGracePeriodSeconds=30) == []
    assert warnings("pause", terminationGracePeriodSeconds=300) == []
    assert warnings(of="standard", terminationGracePeriodSeconds=300) == []


def test_pods_of_others_are_left_alone() -> None:
    plain = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web"}]}}
    nvidia = {"containers": [{"name": "job", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}
    assert mutate(plain, "team", one_size) is None
    assert mutate({"metadata": {"name": "job"}, "spec": nvidia}, "team", one_size) is None


def test_pods_that_want_the_same_share_a_template() -> None:
    one, other = mutate(pod_of("hami"), "team", one_size), mutate(pod_of("hami"), "team", one_size)
    assert one and other and one.templates == other.templates


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[FakeCluster, Callable[[dict[str, Any]], dict[str, Any]]]]:
    """The webhook behind its certificate, as the API server calls it."""
    cluster = FakeCluster()
    device = Device("gpu", "GPU-1", "H200", 141 * GIB)
    cluster.put(inventory.slice_of("node", [device], 0))
    made = certificates.for_service("localhost", "team")
    (tmp_path / "tls.crt").write_bytes(base64.b64decode(made.certificate))
    (tmp_path / "tls.key").write_bytes(base64.b64decode(made.key))
    running: list[ThreadingHTTPServer] = []
    is_ready = threading.Event()

    def ready(one: ThreadingHTTPServer) -> None:
        running.append(one)
        is_ready.set()

    thread = threading.Thread(target=server.serve, args=(Webhook(cluster), tmp_path, 0, ready))
    thread.start()
    assert is_ready.wait(20)
    trusting = ssl.create_default_context(cadata=base64.b64decode(made.authority).decode())
    trusting.check_hostname = False  # it is reached by another name here

    def post(review: dict[str, Any]) -> dict[str, Any]:
        address = ("localhost", running[0].server_port)
        connection = http.client.HTTPSConnection(*address, context=trusting, timeout=20)
        connection.request("POST", "/mutate?timeout=5s", json.dumps(review))
        answer = json.loads(connection.getresponse().read())
        connection.close()
        response: dict[str, Any] = answer["response"]
        assert (answer["kind"], response["uid"]) == ("AdmissionReview", "r1")
        return response

    yield cluster, post
    running[0].shutdown()
    thread.join()


def review(pod: dict[str, Any], **fields: Any) -> dict[str, Any]:
    request = {"uid": "r1", "namespace": "team", "object": pod} | fields
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def test_the_api_server_gets_a_patch_and_the_template_exists(
    served: tuple[FakeCluster, Callable[[dict[str, Any]], dict[str, Any]]],
) -> None:
    cluster, post = served
    response = post(review(pod_of("kai")))
    assert response["allowed"] and response["warnings"] and response["patchType"] == "JSONPatch"
    changes = {one["path"]: one["value"] for one in json.loads(base64.b64decode(response["patch"]))}
    [claim] = changes["/spec"]["resourceClaims"]
    assert cluster.get(
        "resource.k8s.io/v1", "ResourceClaimTemplate", claim["resourceClaimTemplateName"], "team"
    )


def test_a_dry_run_creates_nothing_and_a_refusal_says_why(
    served: tuple[FakeCluster, Callable[[dict[str, Any]], dict[str, Any]]],
) -> None:
    cluster, post = served
    assert post(review(pod_of("kai"), dryRun=True))["patch"]
    assert not cluster.all_of("resource.k8s.io/v1", "ResourceClaimTemplate")
    wrong = pod_of("kai")
    wrong["metadata"]["annotations"]["gpu-fraction"] = "half"
    response = post(review(wrong))
    assert not response["allowed"]
    assert response["status"]["message"].startswith("Cotenant: gpu-fraction is 'half'")
    assert post(review({"metadata": {}, "spec": {"containers": []}})) == {"uid": "r1", "allowed": True}
    silent = post(review(pod_of("cotenant")))
    assert "warnings" not in silent  # and nothing is replaced that has not changed
    assert [one["path"] for one in json.loads(base64.b64decode(silent["patch"]))] == ["/spec"]


def test_with_a_placer_pods_with_claims_of_their_own_are_gated_too() -> None:
    cluster = FakeCluster()
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "team"},
        "spec": {
            "spec": {"devices": {"requests": [{"exactly": {"deviceClassName": "standard.cotenant.dev"}}]}}
        },
    }
    cluster.create(template)
    for driver, size in ("cotenant.dev", "40Gi"), ("gpu.nvidia.com", "80Gi"):
        cluster.create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": driver},
                "spec": {"driver": driver, "devices": [{"capacity": {"memory": {"value": size}}}]},
            }
        )
    assert Webhook(cluster).gpu_bytes() == [40 * GIB]
    claims = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    pod = {"metadata": {"name": "p"}, "spec": {"resourceClaims": claims, "containers": []}}
    for has_placer in (False, True):
        response = Webhook(cluster, has_placer).review(review(pod))["response"]
        assert response["allowed"] and ("patch" in response) is has_placer
    plain = {"metadata": {"name": "p"}, "spec": {"containers": []}}
    assert "patch" not in Webhook(cluster, has_placer=True).review(review(plain))["response"]


def gaia(**limits: Any) -> dict[str, Any]:
    said = {f"tencent.com/vcuda-{name}": value for name, value in limits.items()}
    containers = [{"name": "main", "resources": {"limits": said}}]
    return {"metadata": {"name": "job", "annotations": {}}, "spec": {"containers": containers}}


def test_gaiagpu_beyond_a_hundred_counts_whole_gpus() -> None:
    for core, count in ((100, 1), (300, 3)):
        found = gaiagpu.understand(gaia(core=core))
        assert found and found.wishes == [Wish("main", count=count, share=100)]
    found = gaiagpu.understand(gaia(core=99, memory=2))
    assert found and found.wishes == [Wish("main", memory_bytes=512 << 20, share=99)]
    with pytest.raises(Refused, match="a part of a GPU needs it"):
        gaiagpu.understand(gaia(core=50))


@pytest.mark.parametrize(
    ("memory", "meant"),
    [(None, (None, Fraction(1))), ("20Gi", (20 * GIB, Fraction(1))), (" 30% ", (None, Fraction(3, 10))),
     ("1Mi", (1 << 20, Fraction(1)))],
)  # fmt: skip
def test_memory_in_the_short_form(memory: str | None, meant: tuple[int | None, Fraction]) -> None:
    assert own.memory_of(memory) == meant


def test_annotations_of_ours_that_ask_for_nothing_make_no_claim() -> None:
    pod = {"metadata": {"annotations": {"cotenant.dev/on-eviction": "run"}}, "spec": {"containers": []}}
    assert own.understand(pod) is None


def test_a_part_of_gpus_of_many_sizes_cannot_be_said() -> None:
    sizes = [(8 + number) * GIB for number in range(9)]
    half = Wish("main", memory_part=Fraction(1, 2))
    made = template(half, "team", lambda: sizes[:8])
    first, *_, last = made["spec"]["spec"]["devices"]["requests"][0]["firstAvailable"]
    assert (first["name"], last["name"]) == ("size-0", "size-7")
    assert (first["capacity"]["requests"], last["capacity"]["requests"]) == (
        {"memory": "7680Mi"},
        {"memory": "4Gi"},
    )
    with pytest.raises(Refused, match="GPUs have 9 sizes"):
        template(half, "team", lambda: sizes)
    assert template(half, "team", lambda: [1])["spec"]["spec"]["devices"]["requests"][0]["exactly"][
        "capacity"
    ] == {"requests": {"memory": "1Mi"}}


def test_a_pod_that_has_our_claim_already_is_refused() -> None:
    pod = pod_of("cotenant")
    pod["spec"]["resourceClaims"] = [{"name": "cotenant-main", "resourceClaimTemplateName": "x"}]
    with pytest.raises(Refused, match="has a claim 'cotenant-main'"):
        mutate(pod, "team", one_size)


@pytest.mark.parametrize(
    ("spec", "is_held"), [({"nodeName": "n"}, False), ({}, True), ({"resourceClaims": []}, False)]
)
def test_a_pod_that_is_placed_or_has_no_claim_is_not_gated(spec: dict[str, Any], is_held: bool) -> None:
    request = {"exactly": {"deviceClassName": "standard.cotenant.dev"}}
    ours = {"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    pod = {"metadata": {"name": "p"}, "spec": {"resourceClaims": claims, "containers": []} | spec}
    assert hold(pod, [ours], {}, lambda name: None) is is_held
    assert bool(pod["spec"].get("schedulingGates")) is is_held


@pytest.mark.parametrize(
    ("requests", "is_held"),
    [
        ([{"exactly": {"deviceClassName": "gpu.nvidia.com"}}], False),
        (
            [
                {"exactly": {"deviceClassName": "gpu.nvidia.com"}},
                {"exactly": {"deviceClassName": "standard.cotenant.dev"}},
            ],
            True,
        ),
        ([{"firstAvailable": [{"deviceClassName": "production.cotenant.dev"}]}], True),
    ],
)
def test_a_pod_is_gated_for_claims_of_ours_alone(requests: list[dict[str, Any]], is_held: bool) -> None:
    found = {"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": requests}}}}
    claims = [
        {"name": "own", "resourceClaimName": "made-by-hand"},
        {"name": "gone", "resourceClaimTemplateName": "not-there"},
        {"name": "gpu", "resourceClaimTemplateName": "t"},
    ]
    pod: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"resourceClaims": claims, "containers": []}}
    assert hold(pod, [], {}, {"t": found}.get) is is_held
    entries = pod["spec"]["resourceClaims"]
    assert [("resourceClaimTemplateName" in one) for one in entries] == [False, True, not is_held]
    assert entries[0] == {"name": "own", "resourceClaimName": "made-by-hand"}


def test_requests_that_are_none_are_refused_over_http(tmp_path: Path) -> None:
    serving = ThreadingHTTPServer(("127.0.0.1", 0), server.handler(Webhook(FakeCluster())))
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    try:
        for method, path, body, status in (
            ("GET", "/healthz", b"", 200),
            ("GET", "/other", b"", 404),
            ("POST", "/mutate", b"", 400),
            ("POST", "/other", b"{}", 404),
            ("POST", "/mutate", b"[]", 400),
            ("POST", "/mutate", b'{"apiVersion": "v1"}', 400),
        ):
            connection = http.client.HTTPConnection(*serving.server_address[:2], timeout=30)  # type: ignore[arg-type]
            connection.request(method, path, body)
            assert connection.getresponse().status == status, (method, path, body)
            connection.close()
    finally:
        serving.shutdown()
        serving.server_close()
