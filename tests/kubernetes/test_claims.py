"""A claim's capacities, class and parameters become the terms of a tenant, or a refusal that says what to change."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant import classes
from cotenant.errors import Problem
from cotenant.gpus.nvml import Gpu
from cotenant.kubernetes import inventory, names, parameters, quantities
from cotenant.kubernetes.claims import terms_of
from cotenant.kubernetes.node.container import identity
from tests.kubernetes.fake_cluster import allocated_claim

GIB = 1 << 30


def lines(claim: dict[str, Any]) -> dict[str, str]:
    text = identity(terms_of(claim, "node"), softgpu=False)
    return dict(line.split("=", 1) for line in text.splitlines())


def test_a_production_claim_with_a_promise() -> None:
    claim = allocated_claim(memory="8Gi", parameters={"promise": "5%", "weight": 2})
    assert lines(claim) == {
        "COTENANT_CLASS": "production",
        "COTENANT_SEGMENT": "/dev/shm/cotenant.shared",
        "COTENANT_RUN_ID": "8f8c1b2e3f3a4c579c3c1d6a4fb0a111",
        "COTENANT_NAME": "team/pod",
        "COTENANT_MEMORY": str(8 * GIB),
        "COTENANT_WEIGHT": "2",
        "COTENANT_SLOWDOWN": "5%",
    }


def test_what_is_beyond_the_memory_overflows_to_the_host() -> None:
    said = lines(allocated_claim(tenant_class="opportunistic", memory="4Gi", overflow="16Gi", share="10"))
    assert said["COTENANT_MEMORY"] == str(20 * GIB)
    assert said["COTENANT_OVERSUBSCRIBE"] == "1"
    assert said["COTENANT_FLOOR"] == "10%"


@pytest.mark.parametrize(
    ("given_parameters", "message", "hint"),
    [
        ({"wieght": 2}, "unknown parameter 'wieght'", "did you mean 'weight'?"),
        ({"slowdown": "5%"}, "unknown parameter 'slowdown'", "did you mean 'promise'?"),
        ({"class": "production"}, "a claim's parameters cannot choose the class", "deviceClassName"),
        ({"promise": "5"}, "no slowdown: '5'", "did you mean 5%?"),
        ({"weight": True}, "weight has to be a number or a text, not True", "such as"),
        ({"floor": "5%"}, "floor is for standard and opportunistic claims", "leave it out"),
        ({"apiVersion": "cotenant.dev/v2"}, "unknown apiVersion 'cotenant.dev/v2'", "cotenant.dev/v1"),
    ],
)
def test_wrong_parameters_are_refused_with_the_remedy(
    given_parameters: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(Problem) as refused:
        terms_of(allocated_claim(parameters=given_parameters), "node")
    assert message in refused.value.message
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("memory", "overflow", "is_enough"), [("0", "0", False), ("1Mi", "0", True), ("0", "1Mi", True)]
)
def test_a_claim_without_memory_is_refused(memory: str, overflow: str, is_enough: bool) -> None:
    """Its limit would be 0, which is no limit."""
    claim = allocated_claim(memory=memory, overflow=overflow)
    if is_enough:
        assert terms_of(claim, "node").memory_limit == 1 << 20
        return
    with pytest.raises(Problem, match="asks for no memory"):
        terms_of(claim, "node")


def test_a_promise_is_for_production() -> None:
    with pytest.raises(Problem, match="promise is for production"):
        terms_of(allocated_claim(tenant_class="standard", parameters={"promise": "5%"}), "node")


def test_a_floor_is_within_the_reserved_share() -> None:
    claim = allocated_claim(tenant_class="standard", share="10", parameters={"floor": "20%"})
    with pytest.raises(Problem, match="reserves a share of 10%"):
        terms_of(claim, "node")
    for share, floor in ("20", "20%"), ("20", "19.5%"), ("0", "20%"):
        claim = allocated_claim(tenant_class="standard", share=share, parameters={"floor": floor})
        assert terms_of(claim, "node").floor == floor


def test_a_reserved_share_is_the_floor_of_a_class_that_can_have_one() -> None:
    floors = {
        (name, share): terms_of(allocated_claim(tenant_class=name, share=share), "node").floor
        for name in ("production", "standard")
        for share in ("0", "30", "100")
    }
    assert floors == {
        ("production", "0"): None,
        ("production", "30"): None,
        ("production", "100"): None,
        ("standard", "0"): None,
        ("standard", "30"): "30%",
        ("standard", "100"): "90%",
    }


def test_what_other_drivers_gave_and_were_told_does_not_count() -> None:
    claim = allocated_claim(parameters={"weight": 2})
    devices = claim["status"]["allocation"]["devices"]
    devices["results"].append(devices["results"][0] | {"driver": "gpu.nvidia.com", "device": "theirs"})
    theirs = deepcopy(devices["config"])
    for entry in theirs:
        entry["opaque"] = {"driver": "gpu.nvidia.com", "parameters": {"sharing": "timeSlicing"}}
    devices["config"] += [*theirs, {"source": "FromClaim", "requests": ["gpu"]}]
    claim["status"]["reservedFor"].append({"resource": "jobs", "name": "no-pod"})
    terms = terms_of(claim, "node")
    assert [given.device for given in terms.devices] == ["gpu-0"]
    assert (terms.parameters.weight, terms.pods) == ("2", ("pod",))


def test_the_class_comes_from_the_device_class_only() -> None:
    claim = allocated_claim(parameters={"kind": "TenantClass", "class": "production"})
    del claim["status"]["allocation"]["devices"]["config"][0]
    with pytest.raises(Problem, match="has no class"):
        terms_of(claim, "node")


def test_of_several_classes_the_lowest_holds() -> None:
    claim = allocated_claim(tenant_class="standard")
    config = claim["status"]["allocation"]["devices"]["config"]
    for name in ("production", "opportunistic"):
        config.append(deepcopy(config[0]))
        config[-1]["opaque"]["parameters"]["class"] = name
        assert terms_of(claim, "node").tenant_class == max("standard", name, key=classes.NAMES.index)


def test_parameters_are_those_of_the_claims_own_request() -> None:
    claim = allocated_claim(parameters={"weight": 2})
    config = claim["status"]["allocation"]["devices"]["config"]
    other = deepcopy(config[1])
    other["requests"], other["opaque"]["parameters"]["weight"] = ["another"], 7
    config.append(other)
    assert terms_of(claim, "node").parameters.weight == "2"
    other["requests"] = ["another", "gpu"]
    assert terms_of(claim, "node").parameters.weight == "7"


def test_later_parameters_go_before_and_leave_the_rest() -> None:
    claim = allocated_claim(parameters={"promise": "5%", "weight": 2})
    config = claim["status"]["allocation"]["devices"]["config"]
    for later in ({"weight": 3}, {"promise": "8%"}):
        config.append({"source": "FromClaim", "opaque": {"driver": "cotenant.dev", "parameters": later}})
    found = terms_of(claim, "node").parameters
    assert (found.promise, found.weight, found.floor) == ("8%", "3", None)
    below = parameters.Parameters(floor="10%")
    assert parameters.Parameters(weight="2").over(below) == parameters.Parameters(weight="2", floor="10%")


@pytest.mark.parametrize(
    ("place", "change", "said"),
    [
        (0, {"kind": "Parameters"}, "kind of parameters"),
        (0, {"class": "best"}, "unknown class 'best'"),
        (1, {"kind": "TenantClass"}, "kind of parameters"),
        (1, {"weight": [2]}, "weight has to be a number or a text"),
    ],
)
def test_parameters_of_another_kind_are_refused(place: int, change: dict[str, Any], said: str) -> None:
    claim = allocated_claim(parameters={"weight": 2})
    claim["status"]["allocation"]["devices"]["config"][place]["opaque"]["parameters"].update(change)
    with pytest.raises(Problem) as refused:
        terms_of(claim, "node")
    assert said in refused.value.message


def test_gpus_of_one_claim_have_the_same_capacities() -> None:
    claim = allocated_claim()
    results = claim["status"]["allocation"]["devices"]["results"]
    results.append(results[0] | {"device": "gpu-1", "consumedCapacity": {"memory": "2Gi"}})
    with pytest.raises(Problem, match="different capacities"):
        terms_of(claim, "node")


def test_another_node_s_devices_do_not_count() -> None:
    with pytest.raises(Problem, match="on elsewhere"):
        terms_of(allocated_claim(), "elsewhere")


def test_written_parameters_are_read_again() -> None:
    said = parameters.Parameters(weight="2", floor="10%")
    assert parameters.parse(said.written()) == said


@given(st.integers(min_value=0, max_value=1 << 60))
def test_bytes_written_as_a_quantity_are_the_same_bytes(size: int) -> None:
    assert quantities.whole(quantities.of_bytes(size)) == size


@pytest.mark.parametrize(
    ("text", "value"),
    [("8Gi", 8 * GIB), ("1500m", 2), ("1e3", 1000), ("2k", 2000), (".5Gi", GIB // 2), ("20", 20), ("1n", 1)],
)
def test_quantities_as_kubernetes_writes_them(text: str, value: int) -> None:
    assert quantities.whole(text) == value


def test_what_is_no_quantity_is_refused() -> None:
    with pytest.raises(Problem, match="no quantity: '8 gigs'"):
        quantities.whole("8 gigs")


def test_a_claim_that_says_nothing_has_all_of_the_memory_and_no_overflow() -> None:
    gpus = [Gpu(0, "GPU-aa-1", "0000:65:00.0", "NVIDIA H200", 8 * GIB)]
    (made,) = inventory.slice_of("node", inventory.devices_of(gpus, {}), 2 * GIB)["spec"]["devices"]
    capacities = made["capacity"]
    defaults = {name: one["requestPolicy"]["default"] for name, one in capacities.items()}
    assert defaults == {"memory": "8Gi", "overflow": "0", "share": "0", "tenants": "1"}
    assert (capacities["memory"]["value"], capacities["overflow"]["value"]) == ("8Gi", "2Gi")
    ranges = {name: one["requestPolicy"]["validRange"] for name, one in capacities.items()}
    assert ranges["tenants"] == {"min": "1", "step": "1", "max": "1"}  # a claim is one tenant
    assert ranges["memory"] == ranges["overflow"] == {"min": "0", "step": "1Mi"}


def test_a_slice_ends_with_its_node_and_says_why_a_device_is_tainted() -> None:
    gpus = [
        Gpu(number, f"GPU-aa-{number}", f"0000:6{number}:0A.0", "NVIDIA H200", 8 * GIB) for number in (0, 1)
    ]
    devices = [*inventory.devices_of(gpus, {})]
    devices[1] = replace(devices[1], pci_id="")
    taints = {
        "gpu-aa-1": [
            inventory.Taint("cotenant.dev/broken", "NoSchedule", "promise"),
            inventory.Taint("x", "NoExecute"),
        ]
    }
    owner = {"name": "node", "uid": "u"}
    made = inventory.slice_of("node", devices, (1 << 20) - 1, taints, 3, owner)
    assert made["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "controller": True, "name": "node", "uid": "u"}
    ]
    assert made["spec"]["pool"]["generation"] == 3
    first, second = made["spec"]["devices"]
    assert first["attributes"]["pciBusID"] == {"string": "0000:60:0a.0"}
    assert ("pciBusID" in second["attributes"], "taints" in first) == (False, False)
    assert second["taints"] == [
        {"key": "cotenant.dev/broken", "effect": "NoSchedule", "value": "promise"},
        {"key": "x", "effect": "NoExecute"},
    ]
    assert names.OVERFLOW not in first["capacity"]  # less than a step


def test_a_percent_of_time_weighs_as_much_as_a_percent_of_memory() -> None:
    gpus = [Gpu(number, f"GPU-{number}", "", "NVIDIA H200", 10 * GIB) for number in range(3)]
    devices = inventory.devices_of(gpus, {})
    taken = {
        "gpu-0": inventory.Taken(share=30, claims=1),
        "gpu-1": inventory.Taken(memory=2 * GIB, claims=1),
        "gpu-2": inventory.Taken(share=10, memory=GIB, claims=2),
    }
    for order, expected in ("spread", [1, 2, 0]), ("pack", [0, 2, 1]), ("fixed", [0, 1, 2]):
        found = inventory.ordered(devices, taken, order)
        assert [int(device.index) for device in found] == expected, order


def test_a_slice_has_a_device_for_each_gpu_and_mig_instance() -> None:
    parts = ("MIG-cc-3", "MIG-dd-4")
    names = ("NVIDIA H200 MIG 1g.18gb", "NVIDIA H200 MIG 3g.71gb")
    gpus = [
        Gpu(0, "GPU-bb-2", "0000:66:00.0", "NVIDIA H200", 141 * GIB, True, parts, names),
        Gpu(1, "GPU-AA-1", "0000:65:00.0", "NVIDIA H200", 141 * GIB + 5),
    ]
    devices = inventory.devices_of(gpus, {"MIG-cc-3": 16 * GIB, "MIG-dd-4": 65 * GIB})
    assert [device.index for device in devices] == ["0:0", "0:1", "1"]
    made = inventory.slice_of("node", devices, 64 * GIB * 3)["spec"]["devices"]
    assert [device["name"] for device in made] == ["mig-cc-3", "mig-dd-4", "gpu-aa-1"]
    assert all(device["allowMultipleAllocations"] for device in made)
    assert (
        made[1]["capacity"]["memory"]["value"] == "65Gi" and made[2]["capacity"]["memory"]["value"] == "141Gi"
    )
    assert made[1]["capacity"]["overflow"]["value"] == "64Gi"
    said = {name: value["string"] for name, value in made[1]["attributes"].items()}
    assert (said["type"], said["profile"], said["parentUUID"]) == ("mig", "3g.71gb", "GPU-bb-2")
    assert "parentUUID" not in made[2]["attributes"]
