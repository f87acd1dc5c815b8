"""The node agent as kubelet sees it, over its real sockets: registration, prepare, unprepare, health; and whatever
kills it on the way, claims stay true and nothing is left behind."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from cotenant import segment
from cotenant.errors import Problem
from cotenant.kubernetes import cluster
from cotenant.kubernetes.inventory import Device, Taken, ordered
from cotenant.kubernetes.node import agent as agents
from cotenant.kubernetes.node import container, gpus, host, protocol
from cotenant.kubernetes.node.agent import Agent, Places
from cotenant.kubernetes.node.preparing import Claims
from cotenant.kubernetes.node.services import caller
from tests.kubernetes.fake_cluster import FakeCluster, allocated_claim, running_pod

UID = "8f8c1b2e-3f3a-4c57-9c3c-1d6a4fb0a111"
DEVICES = [Device("gpu-0", "GPU-0", "small", 1 << 30), Device("gpu-1", "GPU-1", "small", 1 << 30)]


class Node:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = FakeCluster()
        self.cluster.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node", "uid": "n1"}})
        # A socket's path may have 107 characters only.
        self.sockets = Path(tempfile.mkdtemp(prefix="cotenant-test-"))
        self.places = Places(self.sockets / "plugins", self.sockets / "registry")
        host = container.Host(folder / "native", folder / "preload", folder / "segment", folder / "gpu")
        self.host = host

    def claims(self) -> Claims:
        return Claims(self.folder / "state", self.folder / "cdi", self.host, "node", DEVICES)

    def agent(self) -> Agent:
        return Agent("node", self.cluster, self.claims(), DEVICES, self.places, 1 << 30)

    def files(self) -> set[str]:
        """Everything that is kept for claims."""
        places = (self.folder / "state" / "claims", self.folder / "cdi")
        return {
            str(path.relative_to(self.folder))
            for place in places
            for path in place.rglob("*")
            if path.is_file() or path.parent == place
        }


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def serving(node: Node) -> Iterator[Agent]:
    agent = node.agent()
    agent.claims.restore()
    agent.serve()
    yield agent
    agent.stop()


def call(socket: Path, service: protocol.Service, method: str, request: Any) -> Any:
    with grpc.insecure_channel(f"unix://{socket}") as channel:
        return caller(channel, service, method)(request, timeout=20)


def claim(name: str = "claim", uid: str = UID) -> Any:
    return protocol.dra.Claim(namespace="team", name=name, uid=uid)


def prepare(agent: Agent, *claims: Any) -> Any:
    request = protocol.dra.NodePrepareResourcesRequest(claims=claims)
    return call(agent.places.socket, protocol.DRA_SERVICE, "NodePrepareResources", request).claims


def unprepare(agent: Agent, *claims: Any) -> Any:
    request = protocol.dra.NodeUnprepareResourcesRequest(claims=claims)
    return call(agent.places.socket, protocol.DRA_SERVICE, "NodeUnprepareResources", request).claims


def test_kubelet_finds_the_driver_by_its_registration_socket(serving: Agent) -> None:
    [socket] = serving.places.registry.iterdir()
    info = call(socket, protocol.REGISTRATION_SERVICE, "GetInfo", protocol.registration.InfoRequest())
    assert (info.type, info.name) == ("DRAPlugin", "cotenant.dev")
    assert Path(info.endpoint).is_socket()
    assert "v1.DRAPlugin" in info.supported_versions


def test_a_prepared_claim_has_a_cdi_device_that_its_file_declares(node: Node, serving: Agent) -> None:
    node.cluster.put(allocated_claim(tenant_class="standard", memory="64Mi"))
    answer = prepare(serving, claim())[UID]
    assert answer.error == ""
    [device] = answer.devices
    assert (list(device.request_names), device.pool_name, device.device_name) == (["gpu"], "node", "gpu-0")
    assert device.share_id == "5a5a0000-0000-4000-8000-000000000000"
    [file] = (node.folder / "cdi").iterdir()
    said = json.loads(file.read_text())
    assert list(device.cdi_device_ids) == [f"{said['kind']}={said['devices'][0]['name']}"]
    mounts = {mount["containerPath"]: mount for mount in said["containerEdits"]["mounts"]}
    identity = Path(mounts["/etc/cotenant/identity"]["hostPath"]).read_text()
    assert "COTENANT_CLASS=standard\n" in identity and f"COTENANT_MEMORY={64 << 20}\n" in identity
    writable = [path for path, mount in mounts.items() if "ro" not in mount["options"]]
    assert writable == ["/dev/shm/cotenant.shared/slots", "/tmp/cotenant-softgpu-0"]


def test_of_alternatives_kubelet_is_told_the_request_that_they_are_of(node: Node, serving: Agent) -> None:
    made = allocated_claim()
    made["status"]["allocation"]["devices"]["results"][0]["request"] = "gpu/size-1"
    node.cluster.put(made)
    [device] = prepare(serving, claim())[UID].devices
    assert list(device.request_names) == ["gpu"]


def test_what_claims_have_taken_of_a_device_adds_up(node: Node) -> None:
    claims = node.claims()
    for number in (1, 2):
        uid = f"{number}1111111-2222-4333-8444-555555555555"
        node.cluster.put(
            allocated_claim(f"c{number}", uid, memory=f"{number}Mi", share=f"{10 * number}", pods=())
        )
        claims.prepare(node.cluster, "team", f"c{number}", uid)
    assert claims.taken() == {"gpu-0": Taken(30, 3 << 20, 2)}


def test_preparing_twice_is_preparing_once_and_needs_no_api_server(node: Node, serving: Agent) -> None:
    node.cluster.put(allocated_claim())
    first = prepare(serving, claim())[UID]
    before = node.files()
    node.cluster.is_away = True
    assert prepare(serving, claim())[UID] == first
    assert node.files() == before


def test_unpreparing_leaves_nothing_and_may_be_asked_again(node: Node, serving: Agent) -> None:
    node.cluster.put(allocated_claim())
    prepare(serving, claim())
    for _ in range(2):
        assert unprepare(serving, claim())[UID].error == ""
    assert node.files() == set()


def test_a_claim_that_cannot_be_prepared_says_why_and_the_others_are(node: Node, serving: Agent) -> None:
    other = "11111111-2222-4333-8444-555555555555"
    node.cluster.put(allocated_claim())
    node.cluster.put(allocated_claim("wrong", other, parameters={"wieght": 1}))
    answers = prepare(serving, claim(), claim("wrong", other))
    assert answers[UID].error == ""
    assert answers[other].error == "unknown parameter 'wieght'; hint: did you mean 'weight'?"
    assert not any(other in name for name in node.files())


def test_a_claim_that_was_made_anew_under_its_name_is_another_one(node: Node, serving: Agent) -> None:
    node.cluster.put(allocated_claim(uid="99999999-2222-4333-8444-555555555555"))
    assert "there is no claim team/claim with the UID" in prepare(serving, claim())[UID].error


def test_a_uid_that_is_a_path_is_refused(node: Node, serving: Agent) -> None:
    assert "no UID of a claim" in unprepare(serving, claim(uid="../../etc"))["../../etc"].error


def test_a_container_with_two_claims_is_refused(node: Node, serving: Agent) -> None:
    second = "11111111-2222-4333-8444-555555555555"
    node.cluster.put(allocated_claim())
    node.cluster.put(allocated_claim("second", second))
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": "team"},
        "spec": {
            "resourceClaims": [
                {"name": "a", "resourceClaimName": "claim"},
                {"name": "b", "resourceClaimName": "second"},
            ],
            "containers": [
                {"name": "one", "resources": {"claims": [{"name": "a"}]}},
                {"name": "two", "resources": {"claims": [{"name": "b"}]}},
            ],
        },
    }
    node.cluster.put(pod)
    prepare(serving, claim())
    assert prepare(serving, claim("second", second))[second].error == ""
    unprepare(serving, claim("second", second))
    pod["spec"]["containers"][0]["resources"]["claims"].append({"name": "b"})
    error = prepare(serving, claim("second", second))[second].error
    assert error.startswith("container one of pod pod uses two claims of Cotenant")


class Killed(BaseException):
    """As SIGKILL: nothing cleans up after it."""


CHANGES = ("open", "rename", "unlink", "mkdir", "rmdir", "fsync")


def dying_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """From now on the process is killed before its nth change of a file (even numbers: after it). Returns whether it
    has been."""
    seen = 0

    def around(real: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **named: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == step:
                raise Killed
            result = real(*arguments, **named)
            seen += 1
            if seen == step:
                raise Killed
            return result

        return act

    for name in CHANGES:
        monkeypatch.setattr(os, name, around(getattr(os, name)))
    return lambda: seen >= step


@pytest.mark.parametrize("what", ["prepare", "unprepare"])
def test_an_agent_killed_at_any_step_leaves_claims_true(what: str, tmp_path: Path) -> None:
    whole: set[str] | None = None
    for step in range(1, 500):
        node = Node(tmp_path / str(step))
        node.folder.mkdir()
        node.cluster.put(allocated_claim())
        claims = node.claims()
        claims.restore()
        if what == "unprepare":
            claims.prepare(node.cluster, "team", "claim", UID)
        with pytest.MonkeyPatch.context() as patched:
            was_killed = dying_at(step, patched)
            try:
                if what == "prepare":
                    claims.prepare(node.cluster, "team", "claim", UID)
                else:
                    claims.unprepare(UID)
            except Killed:
                pass
            killed = was_killed()
        # The next agent.
        later = node.claims()
        later.restore()
        is_prepared = [terms.uid for terms in later.all()] == [UID]
        cdi = node.folder / "cdi" / container.file_name(UID)
        assert cdi.exists() == is_prepared, f"killed at step {step}"
        # Kubelet asks again, as it got no answer.
        if what == "prepare":
            [device] = later.prepare(node.cluster, "team", "claim", UID)
            assert device.device == "gpu-0"
            files = node.files()
            whole = whole or files
            assert files == whole, f"killed at step {step}"
        later.unprepare(UID)
        assert node.files() == set(), f"killed at step {step}"
        if not killed:
            break
    assert not killed and step > 8


def test_a_restarted_node_has_the_cdi_files_of_its_claims_again(node: Node) -> None:
    node.cluster.put(allocated_claim())
    claims = node.claims()
    claims.prepare(node.cluster, "team", "claim", UID)
    before = node.files()
    [file] = (node.folder / "cdi").iterdir()
    text = file.read_text()
    file.unlink()  # /var/run is empty after a restart
    (node.folder / "cdi" / "nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    (node.folder / "cdi" / container.file_name("dead")).write_text("{}")
    node.claims().restore()
    assert file.read_text() == text
    assert node.files() - before == {"cdi/nvidia.yaml"}


def spoilt(text: str, **changed: Any) -> str:
    said = json.loads(text) | changed
    return json.dumps({key: value for key, value in said.items() if value is not None})


@pytest.mark.parametrize(
    "spoil",
    [lambda text: "", lambda text: "[]", lambda text: "\x00", lambda text: spoilt(text, devices=None)],
    ids=["empty", "of another kind", "zeroed", "without devices"],
)
def test_a_claim_that_cannot_be_read_is_said_once_and_prepared_anew(
    node: Node, spoil: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    other = "11111111-2222-4333-8444-555555555555"
    node.cluster.put(allocated_claim())
    node.cluster.put(allocated_claim("other", other))
    before = node.claims()
    before.prepare(node.cluster, "team", "claim", UID)
    before.prepare(node.cluster, "team", "other", other)
    terms = node.folder / "state" / "claims" / UID / "terms.json"
    text, files = terms.read_text(), node.files()
    terms.write_text(spoil(text))
    (node.folder / "cdi" / container.file_name(other)).unlink()
    claims = node.claims()
    claims.restore()
    assert node.files() == files  # the CDI file too, by which its containers may be started again
    assert [one.uid for one in claims.all()] == [other] == [one.uid for one in claims.all()]
    assert capsys.readouterr().err.count(f"{terms} cannot be read") == 1
    [prepared] = claims.prepare(node.cluster, "team", "claim", UID)
    assert prepared.device == "gpu-0" and terms.read_text() == text and node.files() == files
    assert {one.uid for one in claims.all()} == {UID, other}
    terms.write_text(spoil(text))
    claims.unprepare(UID)
    assert not terms.parent.exists()


def test_a_claim_that_a_later_version_has_prepared_is_known_without_what_is_new_in_it(node: Node) -> None:
    node.cluster.put(allocated_claim())
    node.claims().prepare(node.cluster, "team", "claim", UID)
    path = node.folder / "state" / "claims" / UID / "terms.json"
    before = node.claims().all()
    said = json.loads(path.read_text())
    said["later"] = said["devices"][0]["later"] = said["parameters"]["later"] = 1
    path.write_text(json.dumps(said))
    assert node.claims().all() == before != []


def test_files_of_others_among_the_claims_are_left_alone(node: Node) -> None:
    claims = node.folder / "state" / "claims"
    (claims / "lost+found").mkdir(parents=True)
    (claims / "notes").write_text("mine")
    (claims / "notes.txt").write_text("mine")
    before = node.files()
    node.claims().restore()
    assert node.claims().all() == [] and node.files() == before


def test_what_was_left_half_made_is_removed_and_in_nobodys_way(node: Node) -> None:
    node.cluster.put(allocated_claim())
    claims, cdi = node.folder / "state" / "claims", node.folder / "cdi"
    # As a full disk leaves it: no agent has restarted since.
    (claims / f".new-{UID}" / "terms.json").mkdir(parents=True)
    node.claims().prepare(node.cluster, "team", "claim", UID)
    before = node.files()
    for left in (claims / f".new-{UID}", claims / f".old-{UID}", claims / ".old-dead"):
        left.mkdir()
        (left / "identity").write_text("half")
    (cdi / f".new-{container.file_name(UID)}").write_text("{")
    (cdi / f".new-{container.file_name('dead')}").write_text("{")
    assert node.files() > before
    node.claims().restore()
    assert node.files() == before


def test_a_claim_of_another_namespace_is_no_second_claim_of_a_container(node: Node) -> None:
    """Pods and claims may have the same names there; and a container may use claims of other drivers."""
    theirs = allocated_claim("network", "11111111-2222-4333-8444-555555555555")
    theirs["metadata"]["namespace"] = "theirs"
    node.cluster.put(theirs)
    node.claims().prepare(node.cluster, "theirs", "network", theirs["metadata"]["uid"])
    node.cluster.put(allocated_claim())
    pod = running_pod()
    pod["spec"]["resourceClaims"].append({"name": "nic", "resourceClaimName": "network"})
    pod["spec"]["containers"][0]["resources"]["claims"].append({"name": "nic"})
    node.cluster.put(pod)
    [prepared] = node.claims().prepare(node.cluster, "team", "claim", UID)
    assert prepared.device == "gpu-0"


def test_sockets_that_a_restarted_kubelet_removed_come_again(serving: Agent) -> None:
    info = protocol.registration.InfoRequest()
    serving.places.registration.unlink()
    serving.serve()
    assert call(serving.places.registration, protocol.REGISTRATION_SERVICE, "GetInfo", info).name
    serving.places.socket.unlink()
    serving.serve()
    assert prepare(serving, claim())[UID].error.startswith("there is no claim")


def test_the_health_stream_says_what_is_wrong_and_when_it_is_well_again(serving: Agent) -> None:
    with grpc.insecure_channel(f"unix://{serving.places.socket}") as channel:
        watch = caller(channel, protocol.HEALTH_SERVICE, "NodeWatchResources")
        stream = watch(protocol.health.NodeWatchResourcesRequest(), timeout=30)
        seen = []
        for problems in ({"gpu-1": "GPU is lost"}, {"gpu-1": ""}, None):
            devices = {one.device.device_name: one for one in next(stream).devices}
            seen.append((devices["gpu-1"].health, devices["gpu-1"].message))
            assert devices["gpu-0"].health == protocol.HEALTH_STATUS["HEALTHY"]
            if problems is not None:
                serving.state.put({"gpu-0": ""} | problems)
        stream.cancel()
    assert seen == [(1, ""), (2, "GPU is lost"), (1, "")]


def test_a_fault_taints_its_device_until_it_is_well_again(node: Node) -> None:
    agent = node.agent()

    def offered() -> dict[str, Any]:
        agent.publish()
        found = node.cluster.get("resource.k8s.io/v1", "ResourceSlice", "node-cotenant.dev")
        assert found is not None
        spec: dict[str, Any] = found["spec"]
        return spec

    first = offered()
    assert first["nodeName"] == "node" and not any("taints" in device for device in first["devices"])
    agent.state.put({"gpu-0": "", "gpu-1": "GPU is lost"})
    second = offered()
    assert second["devices"][1]["taints"] == [{"key": "cotenant.dev/fault", "effect": "NoExecute"}]
    assert "taints" not in second["devices"][0]
    agent.state.put({"gpu-0": "", "gpu-1": ""})
    third = offered()
    assert third["devices"] == first["devices"]
    assert [one["pool"]["generation"] for one in (first, second, third)] == [1, 2, 3]


def test_what_is_published_already_is_not_written_again(node: Node) -> None:
    for _ in range(3):
        node.agent().publish()
    assert node.cluster.applied == 1


def test_the_agent_serves_while_the_api_server_is_away(
    node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(agents, "LOOK_SECONDS", 0.01)
    node.cluster.is_away = True
    agent, ended = node.agent(), threading.Event()

    def look() -> dict[str, str]:
        assert agent.places.socket.is_socket()
        if node.cluster.refused >= 3:
            node.cluster.is_away = False
        if node.cluster.applied:
            ended.set()
        return {"gpu-0": "", "gpu-1": ""}

    agent.run(look, lambda: None, ended)
    assert node.cluster.applied == 1
    assert capsys.readouterr().err.count("no API server") == 1
    assert not agent.places.socket.exists()


def test_an_api_server_that_does_not_answer_holds_up_nothing_that_needs_no_answer(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "LOOK_SECONDS", 0.01)
    node.cluster.put(allocated_claim())
    agent, ended = node.agent(), threading.Event()
    agent.claims.prepare(node.cluster, "team", "claim", UID)
    other = "11111111-2222-4333-8444-555555555555"
    node.cluster.put(allocated_claim("other", other))
    node.cluster.is_answering.clear()
    answers: list[Any] = []
    preparing = threading.Thread(target=lambda: answers.append(prepare(agent, claim("other", other))))
    looks = 0

    def look() -> dict[str, str]:
        nonlocal looks
        looks += 1
        if looks == 1:
            preparing.start()
        if looks == 5:
            ended.set()
            assert prepare(agent, claim())[UID].error == ""
            assert unprepare(agent, claim())[UID].error == ""
            assert not answers
            node.cluster.is_answering.set()
            preparing.join()
        return {"gpu-0": "", "gpu-1": ""}

    try:
        agent.run(look, lambda: None, ended)
    finally:
        node.cluster.is_answering.set()
    assert answers[0][other].error == ""
    assert {terms.name for terms in agent.claims.all()} == {"other"}


def test_a_connection_to_the_api_server_that_says_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        config = tmp_path / "kubeconfig"
        config.write_text(
            json.dumps(
                {
                    "clusters": [{"name": "c", "cluster": {"server": address}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "users": [{"name": "u", "user": {}}],
                    "current-context": "c",
                }
            )
        )
        with pytest.raises(cluster.Unreachable, match="no API server"):
            cluster.ApiServer(str(config))


def test_a_driver_that_is_gone_is_a_fault_of_every_gpu(tmp_path: Path) -> None:
    found = gpus.are_well({"COTENANT_DRIVER": str(tmp_path / "libcuda.so.1")}, DEVICES)
    assert set(found) == {"gpu-0", "gpu-1"} and all(found.values())


def test_without_nvidia_s_cdi_file_the_remedy_is_named(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text(
        "kind: nvidia.com/gpu\ndevices:\n- name: '0'\n- name: 1:2\n- name: GPU-x\n"
    )
    known = container.nvidia_devices([tmp_path, tmp_path / "none"])

    def named(uuid: str, index: str) -> str:
        return container.nvidia_id(Device("name", uuid, "small", 1 << 30, index=index), known)

    assert named("GPU-x", "5") == "nvidia.com/gpu=GPU-x"
    assert named("GPU-y", "0") == "nvidia.com/gpu=0"
    assert named("MIG-z", "1:2") == "nvidia.com/gpu=1:2"
    with pytest.raises(Problem) as refused:
        named("GPU-y", "1")
    assert "nvidia-ctk cdi generate" in refused.value.hint


def test_the_order_of_devices_steers_the_stock_scheduler() -> None:
    devices = [Device(f"gpu-{i}", f"GPU-{i}", "H200", 100 << 30) for i in range(3)]
    taken = {"gpu-0": Taken(share=50, claims=1), "gpu-2": Taken(memory=10 << 30, claims=1)}

    def names_in(order: str) -> list[str]:
        return [device.name for device in ordered(devices, taken, order)]

    assert names_in("spread") == ["gpu-1", "gpu-2", "gpu-0"]
    assert names_in("pack") == ["gpu-0", "gpu-2", "gpu-1"]
    assert names_in("fixed") == ["gpu-0", "gpu-1", "gpu-2"]
    assert [device.name for device in ordered(devices, {}, "pack")] == ["gpu-0", "gpu-1", "gpu-2"]


def test_a_gpu_that_comes_later_has_limits_and_one_without_a_place_for_them_is_not_offered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "segment"
    gpus = [Device(f"gpu-{i}", f"GPU-{i:08}-0000-4000-8000-000000000000", "H200", 1 << 30) for i in range(20)]
    host.make_segment(place, gpus[:2])
    assert host.enforceable(place, gpus[:3]) == gpus[:2]
    host.make_segment(place, gpus[1:3])  # the next agent: one is gone, one is new
    assert host.enforceable(place, gpus[:3]) == gpus[:3]
    host.make_segment(place, gpus)
    assert host.enforceable(place, gpus) == gpus[: segment.GPUS]
    said = capsys.readouterr().err
    assert f"{gpus[16].name} is not offered: {place} has place for 16 GPUs" in said


def test_a_file_in_the_place_of_the_node_s_segment_is_said(tmp_path: Path) -> None:
    """A daemon that was started without the agent has made it, for its own user."""
    place = tmp_path / "segment"
    place.touch()
    with pytest.raises(Problem, match="is a segment for one user"):
        host.make_segment(place, [])
    assert place.is_file()
