"""What the placer decides by: quantities, nodes that take a pod, GPUs that are offered, and what a pod wants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cotenant.classes import TenantClass
from cotenant.cluster.placement.interference import PairTable, Part
from cotenant.errors import Problem
from cotenant.kubernetes import quantities
from cotenant.kubernetes.placer import nodes, offers, slowdowns
from cotenant.kubernetes.placer.wanted import Wanted, wanted

GIB = 1 << 30
Object = dict[str, Any]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (20, 20), ("20", 20), (" 7 ", 7), ("8Gi", 8 * GIB), ("1Ki", 1024), ("2Mi", 2 << 20), ("1Ti", 1 << 40),
        ("1Pi", 1 << 50), ("3k", 3000), ("500M", 500_000_000), ("1.5G", 1_500_000_000), ("1500m", 2),
        ("2000m", 2), ("1u", 1), ("1n", 1), ("1e3", 1000), ("5E-1", 1), ("+1", 1), (".5k", 500), ("0", 0),
    ],
)  # fmt: skip
def test_a_quantity_is_a_whole_number_rounded_up(text: str | int, number: int) -> None:
    assert quantities.whole(text) == number


@pytest.mark.parametrize(
    "text", ["", "Gi", "1 Gi", "1gi", "1KB", "1e1000", "x", "٣", "1" * 5000, "0." + "1" * 5000]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(Problem, match="no quantity"):
        quantities.whole(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [(8 * GIB, "8Gi"), (1536 << 20, "1536Mi"), (1025, "1025"), (1024, "1Ki"), (0, "0"), (1 << 50, "1Pi")],
)
def test_bytes_are_written_in_the_largest_unit_that_says_them_exactly(size: int, text: str) -> None:
    assert quantities.of_bytes(size) == text


@pytest.mark.parametrize(
    ("operator", "values", "label", "is_met"),
    [
        ("In", ["a", "b"], "b", True), ("In", ["a"], "b", False), ("In", ["a"], None, False),
        ("NotIn", ["a"], "b", True), ("NotIn", ["a"], "a", False), ("NotIn", ["a"], None, True),
        ("Exists", [], "", True), ("Exists", [], None, False),
        ("DoesNotExist", [], None, True), ("DoesNotExist", [], "", False),
        ("Gt", ["4"], "5", True), ("Gt", ["4"], "4", False), ("Gt", ["4"], None, False), ("Gt", [], "5", False),
        ("Lt", ["4"], "3", True), ("Lt", ["4"], "4", False), ("Lt", ["x"], "3", False), ("Near", ["a"], "a", False),
    ],
)  # fmt: skip
def test_a_requirement_of_a_label(operator: str, values: list[str], label: str | None, is_met: bool) -> None:
    labels = {} if label is None else {"key": label}
    assert nodes.meets({"key": "key", "operator": operator, "values": values}, labels) is is_met


@pytest.mark.parametrize(
    ("toleration", "does"),
    [
        ({"key": "k", "operator": "Exists"}, True), ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "w"}, False), ({"key": "k"}, False), ({"operator": "Exists"}, True), ({}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
    ],
)  # fmt: skip
def test_a_toleration_of_a_taint(toleration: Object, does: bool) -> None:
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    assert nodes.tolerates(toleration, taint) is does


def required(*terms: Object) -> Object:
    only = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": only}}


@pytest.mark.parametrize(
    ("spec", "does"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "a", "disk": "ssd"}}, False),
        (required({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}), True),
        (required({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {}), True),
        (required({}), False),
        (required(), False),
        (
            required(
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
            ),
            True,
        ),
        (
            required(
                {
                    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
                    "matchExpressions": [{"key": "disk", "operator": "Exists"}],
                }
            ),
            False,
        ),
    ],
)
def test_a_node_takes_a_pod_that_its_labels_suit(spec: Object, does: bool) -> None:
    node = {"metadata": {"name": "n", "labels": {"zone": "a"}}, "spec": {}}
    assert nodes.takes(node, {"spec": spec}) is does


def test_a_node_that_is_cordoned_or_tainted_takes_whoever_tolerates_it() -> None:
    def takes(spec: Object, *tolerations: Object) -> bool:
        node = {"metadata": {"name": "n"}, "spec": spec}
        return nodes.takes(node, {"spec": {"tolerations": list(tolerations)}})

    cordoned = {"unschedulable": True}
    assert not takes(cordoned)
    assert takes(cordoned, {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"})
    assert takes({"taints": [{"key": "k", "effect": "PreferNoSchedule"}]})
    two = {"taints": [{"key": "k", "effect": "NoSchedule"}, {"key": "l", "effect": "NoExecute"}]}
    assert not takes(two, {"key": "k", "operator": "Exists"})
    assert takes(two, {"operator": "Exists"})


def a_slice(
    pool: str, generation: int, *devices: Object, driver: str = "cotenant.dev", node: str = ""
) -> Object:
    spec = {"driver": driver, "pool": {"name": pool, "generation": generation}, "nodeName": node or pool}
    return {"spec": spec | {"devices": list(devices)}}


def device(name: str, uuid: str, memory: str = "10Gi", **more: Any) -> Object:
    capacity = {"memory": {"value": memory}, "tenants": {"value": "4"}}
    return {"name": name, "attributes": {"uuid": {"string": uuid}}, "capacity": capacity, **more}


def a_claim(name: str, tenant_class: str = "standard", **more: Any) -> Object:
    request = {"deviceClassName": f"{tenant_class}.cotenant.dev"}
    devices = {"requests": [{"name": "gpu", "exactly": request}]}
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
        "spec": {"devices": devices},
    } | more


def result(pool: str, device: str, driver: str = "cotenant.dev", **consumed: str) -> Object:
    amounts = {f"cotenant.dev/{name}": amount for name, amount in consumed.items()}
    return {"driver": driver, "pool": pool, "device": device, "request": "gpu", "consumedCapacity": amounts}


def allocated(name: str, *results: Object) -> Object:
    return a_claim(name, status={"allocation": {"devices": {"results": list(results)}}})


def test_gpus_are_those_of_each_pools_newest_slices_in_order() -> None:
    of_no_node = a_slice("nobody", 1, device("gpu-0", "GPU-d"))
    del of_no_node["spec"]["nodeName"]
    found = offers.offered(
        [
            a_slice("two", 1, device("gpu-0", "GPU-c")),
            a_slice("one", 3, device("gpu-1", "GPU-b", taints=[{"key": "k"}]), device("gpu-0", "GPU-a")),
            a_slice("one", 2, device("gpu-9", "GPU-old")),
            a_slice("nic", 1, device("nic-0", "x"), driver="nic.example"),
            of_no_node,
        ],
        [],
    )  # fmt: skip
    assert [(gpu.node, gpu.device, gpu.uuid, gpu.is_open) for gpu in found] == [
        ("one", "gpu-1", "GPU-b", False),
        ("one", "gpu-0", "GPU-a", True),
        ("two", "gpu-0", "GPU-c", True),
    ]
    assert found[0].whole == found[0].free == {"memory": 10 * GIB, "tenants": 4}


def test_what_claims_have_consumed_is_no_longer_free() -> None:
    slices = [a_slice("one", 1, device("gpu-0", "GPU-a"), device("gpu-1", "GPU-b"))]
    claims = [
        allocated("a", result("one", "gpu-0", memory="3Gi", tenants="1")),
        allocated("b", result("one", "gpu-0", memory="4Gi", share="20")),
        allocated("c", result("elsewhere", "gpu-0", memory="1Gi")),
        allocated("d", result("one", "gpu-1", driver="nic.example", memory="9Gi")),
        a_claim("unallocated"),
    ]
    first, second = offers.offered(slices, claims)
    assert first.free == {"memory": 3 * GIB, "tenants": 3, "share": -20}
    assert [job.id for job in first.jobs] == ["uid-a", "uid-b"]
    assert second.free == second.whole and not second.jobs


@pytest.mark.parametrize("name", ["production", "standard", "opportunistic"])
def test_a_claims_class_is_its_device_classs(name: str) -> None:
    assert offers.class_of(a_claim("x", name)) is TenantClass[name]


def test_an_administrators_own_device_class_says_the_class_in_the_allocation() -> None:
    claim = allocated("x", result("one", "gpu-0"))
    claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "gold.example"
    assert offers.class_of(claim) is TenantClass.standard


def promise(text: str, driver: str = "cotenant.dev") -> Object:
    kind = {"apiVersion": "cotenant.dev/v1", "kind": "TenantParameters"}
    return {"opaque": {"driver": driver, "parameters": kind | {"promise": text}}}


def test_a_promise_is_the_first_of_ours_that_can_be_read() -> None:
    foreign, wrong = promise("7%", "nic.example"), promise("much")
    assert offers.promise_in([foreign, wrong, {}, promise("5%"), promise("9%")]) == 0.05
    assert offers.promise_in([foreign]) is None


def template(**changed: Any) -> Object:
    request: Object = {
        "deviceClassName": "production.cotenant.dev",
        "capacity": {"requests": {"memory": "10Gi"}},
    }
    request |= changed
    return {"spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}}}


POD: Object = {
    "metadata": {
        "name": "job", "namespace": "team", "uid": "uid-job", "labels": {"cotenant.dev/workload": "decode"},
    },
    "spec": {},
}  # fmt: skip


def test_a_pod_wants_what_its_claim_requests() -> None:
    one = template(capacity={"requests": {"memory": "10Gi", "share": "25"}})
    found = wanted(POD, [one], None)
    assert isinstance(found, Wanted) and found.name == "team/job"
    assert found.amounts == {"memory": 10 * GIB, "share": 25, "tenants": 1}
    job = found.job
    assert (job.id, job.kind, job.tenant_class) == ("uid-job", "decode", TenantClass.production)
    assert (job.share, job.memory_bytes, job.slowdown) == (0.25, 10 * GIB, None)


def test_a_claim_without_an_amount_wants_a_whole_gpu_where_all_are_alike() -> None:
    one = template()
    del one["spec"]["spec"]["devices"]["requests"][0]["exactly"]["capacity"]
    found = wanted(POD, [one], 80 * GIB)
    assert found and found.job.memory_bytes == 80 * GIB
    assert wanted(POD, [one], None) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"count": 2},
        {"allocationMode": "All"},
        {"selectors": []},
        {"deviceClassName": "gpu.example"},
        {"capacity": {"requests": {"memory": "1Gi", "foreign": "1"}}},
    ],
)
def test_what_is_more_than_amounts_of_one_gpu_is_the_schedulers(changed: Object) -> None:
    assert wanted(POD, [template(**changed)], 80 * GIB) is None
    assert wanted(POD, [template(count=1, allocationMode="ExactCount")], None) is not None


def test_several_claims_requests_or_constraints_are_the_schedulers() -> None:
    assert wanted(POD, [template(), template()], None) is None
    for key, value in (("constraints", [{"matchAttribute": "x"}]), ("requests", [])):
        one = template()
        one["spec"]["spec"]["devices"][key] = value
        assert wanted(POD, [one], None) is None


def test_of_an_unknown_pair_production_keeps_its_speed_and_others_take_turns() -> None:
    known = slowdowns.Known({(Part("a", True), Part("b", False)): 1.25}, 2.0)
    assert known.of_pair(Part("a", True), Part("b", False)) == 1.25
    assert known.of_pair(Part("a", True), Part("x", False)) == 1.0
    assert known.of_pair(Part("x", False), Part("a", True)) == 2.0


def test_of_pairs_that_nobody_knows_production_keeps_its_speed() -> None:
    found = slowdowns.known(None, None)
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
    found = slowdowns.known(tmp_path, None)
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
