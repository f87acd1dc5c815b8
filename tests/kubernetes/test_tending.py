"""What the agent does for tenants of its pods: their story in events, taints for broken promises, pauses before
evictions, names for the metrics."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.gpus import outsiders
from cotenant.kubernetes.inventory import Device
from cotenant.kubernetes.node import agent as agents
from cotenant.kubernetes.node import changes, container
from cotenant.kubernetes.node.agent import Agent, Places
from cotenant.kubernetes.node.pods import Finder, Pods
from cotenant.kubernetes.node.preparing import Claims
from cotenant.kubernetes.node.story import Story
from cotenant.kubernetes.node.tending import (
    KNOWN_SECONDS,
    OBSERVE_SECONDS,
    OUTSIDERS_SECONDS,
    TAINTED_SECONDS,
    Tending,
)
from cotenant.metrics import containers
from cotenant.segment import Where
from cotenant.tenants.verdicts import SURE
from tests.kubernetes.fake_cluster import FakeCluster, allocated_claim, running_pod
from tests.segments import UUID, UUID_TEXT, Written

Object = dict[str, Any]
DEVICES = [Device("gpu-0", UUID_TEXT, "small", 1 << 30), Device("gpu-1", "GPU-1", "small", 1 << 30)]
FIRST, SECOND = 5_000_001, 5_000_002  # no PIDs of this machine
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


class Scene:
    """A node whose tenants are written by hand: process N is in the container cN."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cluster, self.written = folder, FakeCluster(), Written()
        self.written.gpu(0, UUID)
        self.path = self.written.to(folder / "segment")
        host = container.Host(folder / "native", folder / "preload", self.path, folder / "gpu")
        self.claims = Claims(folder / "state", folder / "cdi", host, "node", DEVICES)
        self.now = 1000.0
        self.begin()

    def begin(self) -> None:
        """An agent; a second one finds what the first has left on disk."""
        self.pods, self.story = Pods(self.cluster, "node"), Story(self.cluster, "node")
        finder = Finder(lambda tenant: (f"c{tenant.pid}",))
        state = self.folder / "state"
        self.tending = Tending(self.path, state, self.claims, DEVICES, self.pods, self.story, finder)
        places = Places(self.folder / "plugins", self.folder / "registry")
        self.agent = Agent(
            "node",
            self.cluster,
            self.claims,
            DEVICES,
            places,
            1 << 30,
            tending=self.tending,
            story=self.story,
        )

    def pod(self, name: str, pid: int, tenant_class: str = "standard", **others: Any) -> Object:
        """With its claim, prepared, and a tenant."""
        number = sum(key[1] == "ResourceClaim" for key in self.cluster.objects)
        uid = f"00000000-0000-4000-8000-{number:012}"
        claim = allocated_claim(name, uid, tenant_class, pods=(name,), **others)
        self.cluster.put(claim)
        self.claims.prepare(self.cluster, "team", name, uid)
        slot = self.tenant(pid, TenantClass[tenant_class])
        slot.memory_limit = 1 << 30
        return self.cluster.put(running_pod(name, name, f"c{pid}"))

    def tenant(self, pid: int, tenant_class: TenantClass) -> segment.Slot:
        slot = self.written.tenant(len(self.written.slots), pid, b"job", tenant_class)
        slot.weight, slot.started = 1000, pid
        slot.gpus[0].figures.bursts = 1
        return slot

    def slot(self, pid: int) -> segment.Slot:
        return next(slot for slot in self.written.slots.values() if slot.pid == pid)

    def look(self, later: float = 1) -> None:
        self.now += later
        ended = threading.Event()
        ended.set()
        self.written.to(self.path)
        self.pods.hear(ended)
        self.tending.look(self.now)
        self.story.write(ended)

    def told(self, *reasons: str) -> list[tuple[str, str, str]]:
        return [one[:3] for one in self.cluster.events() if not reasons or one[1] in reasons]

    def asked(self, pid: int) -> tuple[str, ...]:
        return next(one.asked for one in segment.read(self.path).tenants if one.pid == pid)

    def taints(self) -> list[list[tuple[str, str]]]:
        self.agent.publish()
        found = self.cluster.get("resource.k8s.io/v1", "ResourceSlice", "node-cotenant.dev")
        assert found is not None
        devices = sorted(found["spec"]["devices"], key=lambda device: str(device["name"]))
        return [[(one["key"], one["effect"]) for one in device.get("taints", ())] for device in devices]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_pod_s_events_tell_who_came_what_was_refused_and_who_left(scene: Scene) -> None:
    scene.pod("train", FIRST)
    scene.look()
    slot = scene.slot(FIRST)
    slot.memory[0].refused = 2
    scene.look()
    scene.written.slots.clear()
    scene.look()
    head = f"container main, process {FIRST}"
    assert scene.told() == [
        ("train", "Joined", f"{head}: its first use of a GPU, as standard"),
        ("train", "AllocationRefused", f"{head} on GPU 0: the memory limit 1G: 2 allocations refused"),
        ("train", "Left", f"{head}: its process has ended"),
    ]


def test_a_tenant_that_is_there_before_the_api_server_tells_of_its_container_is_told_later(
    scene: Scene,
) -> None:
    pod = scene.pod("train", FIRST)
    statuses = pod["status"].pop("containerStatuses")
    for _ in range(3):
        scene.look()
    assert scene.told() == []
    pod["status"]["containerStatuses"] = statuses
    scene.look()
    assert [reason for _, reason, _ in scene.told()] == ["Joined"]


def test_who_leaves_between_two_observations_is_told_to_have_left(scene: Scene) -> None:
    scene.pod("train", FIRST)
    scene.look()
    scene.written.slots.clear()
    scene.look(OBSERVE_SECONDS / 4)  # something was heard of a pod
    scene.look()
    assert [reason for _, reason, _ in scene.told()] == ["Joined", "Left"]


def test_tenants_that_are_in_no_pod_are_no_event(scene: Scene) -> None:
    scene.tenant(FIRST, TenantClass.standard)
    scene.look()
    scene.now += KNOWN_SECONDS
    scene.look()
    assert scene.told() == [] and scene.tending.untold == []


def test_the_next_agent_tells_nobody_twice_and_whom_it_missed(scene: Scene) -> None:
    scene.pod("stays", FIRST)
    scene.look()
    scene.begin()
    scene.pod("comes", SECOND)
    scene.look()
    assert [(pod, reason, count) for pod, reason, _, count in scene.cluster.events()] == [
        ("stays", "Joined", 1),
        ("comes", "Joined", 1),
    ]


def test_a_broken_promise_taints_its_device_until_it_is_kept_again(scene: Scene) -> None:
    scene.pod("train", FIRST, share="50")
    slot = scene.slot(FIRST)
    slot.floor = 500
    assert scene.taints() == [[], []]

    def second(share: float) -> None:
        slot.gpus[0].busy_ns += 10**9
        slot.gpus[0].used_ns += int(share * 10**9)
        scene.look()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segment, "now_ns", lambda: int(scene.now * 10**9))
        for _ in range(SURE + 2):
            second(0.01)
        broken = [("cotenant.dev/promise-broken", "NoSchedule")]
        assert scene.taints() == [broken, []]
        [(_, _, message)] = scene.told("PromiseBroken")
        assert "it got 1.0% of the GPU, 50% was promised" in message
        for _ in range(30):
            second(1.0)
        assert [reason for _, reason, _ in scene.told("PromiseKept")] == ["PromiseKept"]
        scene.now += TAINTED_SECONDS
        second(1.0)
    assert scene.taints() == [[], []]


def test_a_promise_that_nobody_claimed_taints_nothing(scene: Scene) -> None:
    scene.pod("liar", FIRST)
    slot = scene.slot(FIRST)
    slot.floor = 500
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segment, "now_ns", lambda: int(scene.now * 10**9))
        for _ in range(SURE + 2):
            slot.gpus[0].busy_ns += 10**9
            scene.look()
    assert scene.told("PromiseBroken") and scene.taints() == [[], []]


def test_a_fault_is_told_to_the_pods_that_have_the_device(scene: Scene) -> None:
    scene.pod("train", FIRST)
    scene.pod("elsewhere", SECOND, device="gpu-1")
    scene.look()
    scene.agent.note({"gpu-0": "GPU is lost", "gpu-1": ""})
    scene.look()
    assert scene.told("DeviceFault") == [
        ("train", "DeviceFault", "gpu-0: GPU is lost; pods that do not tolerate it are evicted")
    ]
    assert scene.taints() == [[("cotenant.dev/fault", "NoExecute")], []]
    scene.agent.note({"gpu-0": "", "gpu-1": ""})
    assert scene.taints() == [[], []]


def test_faults_that_come_one_after_the_other_are_each_told_once(scene: Scene) -> None:
    scene.pod("train", FIRST)
    scene.pod("elsewhere", SECOND, device="gpu-1")
    scene.look()
    scene.agent.note({"gpu-0": "GPU is lost", "gpu-1": ""})
    scene.agent.note({"gpu-0": "GPU is lost", "gpu-1": "it is too hot"})
    scene.look()
    scene.agent.note({"gpu-0": "GPU is lost", "gpu-1": "it is lost"})
    scene.look()
    told = [
        (name, message.partition(";")[0], count)
        for name, reason, message, count in scene.cluster.events()
        if reason == "DeviceFault"
    ]
    assert told == [
        ("train", "gpu-0: GPU is lost", 1),
        ("elsewhere", "gpu-1: it is too hot", 1),
        ("elsewhere", "gpu-1: it is lost", 1),
    ]


def movable(slot: segment.Slot) -> segment.Slot:
    slot.residence.where = Where.resident
    return slot


def test_an_opportunistic_pod_is_paused_before_it_is_evicted(scene: Scene) -> None:
    pods = [
        scene.pod("train", FIRST, "opportunistic"),
        scene.pod("serve", SECOND, "production"),
    ]
    slot, _ = movable(scene.slot(FIRST)), movable(scene.slot(SECOND))
    scene.look()
    assert scene.asked(FIRST) == ()
    for pod in pods:
        pod["status"]["conditions"] = [PREEMPTED]
    scene.look()
    assert (scene.asked(FIRST), scene.asked(SECOND)) == (("pause",), ())
    slot.residence.where, slot.residence.paused, slot.residence.evictions = Where.evicted, 1, 1
    slot.host_bytes = 512 << 20
    scene.look()
    head = f"container main, process {FIRST}"
    why = "the pod is to be evicted (PreemptionByScheduler): 512M went to the host"
    assert scene.told("Paused") == [("train", "Paused", f"{head}: {why}")]
    # The one who wanted its place has found another.
    pods[0]["status"]["conditions"] = [PREEMPTED | {"status": "False"}]
    scene.look()
    assert scene.asked(FIRST) == ("pause",) and scene.tending.paused == {}


@pytest.mark.parametrize("is_there", [True, False], ids=["readable", "unreadable"])
def test_the_next_agent_resumes_what_was_paused_for_an_eviction_that_is_called_off(
    scene: Scene, is_there: bool
) -> None:
    pod = scene.pod("train", FIRST, "opportunistic")
    slot = movable(scene.slot(FIRST))
    pod["status"]["conditions"] = [PREEMPTED]
    scene.look()
    slot.residence.where, slot.residence.paused, slot.residence.evictions = Where.evicted, 1, 1
    scene.look()
    assert resumes(scene) == []
    kept = scene.folder / "state" / "paused.json"
    if not is_there:
        kept.write_text("{")
    scene.begin()
    asked = resumes(scene)
    scene.look()
    pod["status"]["conditions"] = []
    for _ in range(2):
        scene.look()
    assert asked == [{"pause": 0}] * is_there
    assert [count for _, reason, _, count in scene.cluster.events() if reason == "Paused"] == [1]
    assert scene.tending.paused == {} and (not is_there or kept.read_text() == "[]")


def resumes(scene: Scene) -> list[Mapping[str, int]]:
    """What the agent asks of tenants from now on."""
    asked: list[Mapping[str, int]] = []
    ask = scene.tending.ask

    def noting(one: Any, requests: Mapping[str, int]) -> bool:
        asked.append(requests)
        return ask(one, requests)

    scene.tending.ask = noting  # type: ignore[method-assign]
    return asked


def test_who_could_not_be_resumed_is_asked_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = scene.pod("train", FIRST, "opportunistic")
    slot = movable(scene.slot(FIRST))
    pod["status"]["conditions"] = [PREEMPTED]
    scene.look()
    slot.residence.where, slot.residence.paused = Where.evicted, 1
    pod["status"]["conditions"] = []
    with monkeypatch.context() as patched:
        patched.setattr(scene.tending, "ask", lambda *given: False)
        scene.look()
    asked = resumes(scene)
    scene.look()
    assert asked == [{"pause": 0}]


def test_what_was_paused_by_hand_before_an_eviction_stays_paused_after_it(scene: Scene) -> None:
    pod = scene.pod("train", FIRST, "opportunistic")
    slot = movable(scene.slot(FIRST))
    slot.residence.where, slot.residence.paused = Where.evicted, 1
    for status in ("True", "False"):  # it is announced, and called off
        pod["status"]["conditions"] = [PREEMPTED | {"status": status}]
        scene.look()
        assert scene.asked(FIRST) == ()


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [({"cotenant.dev/on-eviction": "run"}, "EvictionByEvictionAPI"), ({}, "DeletionByDeviceTaintManager")],
)
def test_a_pod_that_saves_its_work_or_whose_gpu_is_lost_is_not_paused(
    scene: Scene, annotations: dict[str, str], reason: str
) -> None:
    pod = scene.pod("train", FIRST, "opportunistic")
    movable(scene.slot(FIRST))
    pod["metadata"]["annotations"] = annotations
    pod["status"]["conditions"] = [PREEMPTED | {"reason": reason}]
    scene.look()
    assert scene.asked(FIRST) == ()


def test_one_whose_memory_cannot_move_is_told_so_once(scene: Scene) -> None:
    pod = scene.pod("train", FIRST, "opportunistic")
    scene.slot(FIRST).gpus[0].memory_bytes = 1 << 30
    pod["status"]["conditions"] = [PREEMPTED]
    for _ in range(3):
        scene.look()
    assert scene.asked(FIRST) == ()
    assert [(reason, count) for _, reason, _, count in scene.cluster.events() if reason == "NotPaused"] == [
        ("NotPaused", 1)
    ]


def test_a_change_that_cannot_be_honoured_is_an_event_with_the_reason_once(scene: Scene) -> None:
    pod = scene.pod("train", FIRST, "standard")
    pod["metadata"]["annotations"] = {"cotenant.dev/class": "production"}
    for _ in range(3):
        scene.look()
    [(_, reason, message, count)] = [one for one in scene.cluster.events() if one[1] != "Joined"]
    assert (reason, count) == ("ChangeRefused", 1)
    assert "a change goes no higher" in message
    assert scene.asked(FIRST) == ()


def test_annotations_as_nobody_foresaw_them_keep_no_other_pod_from_its_own(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, pid in (("strange", FIRST), ("train", SECOND)):
        pod = scene.pod(name, pid, "standard")
        pod["metadata"]["annotations"] = {"cotenant.dev/memory": "512Mi" if pid == SECOND else "strange"}
    wanted = changes.wanted

    def unforeseen(annotations: Mapping[str, str], *others: Any) -> Any:
        if "strange" in annotations.values():
            raise OverflowError("too strange")
        return wanted(annotations, *others)

    monkeypatch.setattr(changes, "wanted", unforeseen)
    for _ in range(2):
        scene.look()
    assert scene.told("ChangeRefused") == [
        ("strange", "ChangeRefused", "the annotations: OverflowError: too strange")
    ]
    assert "memory" in scene.asked(SECOND)


def test_a_change_is_asked_until_the_tenant_has_it_and_then_told(scene: Scene) -> None:
    pod = scene.pod("train", FIRST, "standard")
    scene.look()
    pod["metadata"]["annotations"] = {"cotenant.dev/class": "opportunistic"}
    for _ in range(2):  # the first was spoilt
        scene.look()
        assert set(scene.asked(FIRST)) >= {"tenant_class", "memory"}
    assert scene.told("Changed") == []
    scene.slot(FIRST).tenant_class = TenantClass.opportunistic
    for _ in range(2):
        scene.look()
    assert scene.told("Changed", "ClassChanged") == [
        ("train", "Changed", "container main: class opportunistic, as annotated")
    ]
    # What its own user lowers later stays so.
    scene.slot(FIRST).memory_limit = 1 << 29
    scene.look()
    assert scene.asked(FIRST) == ()


def test_a_second_change_is_told_by_itself_and_when_all_of_it_is_taken(scene: Scene) -> None:
    pod, slot = scene.pod("train", FIRST, "standard"), scene.slot(FIRST)
    pod["metadata"]["annotations"] = {"cotenant.dev/class": "opportunistic"}
    scene.look()
    slot.tenant_class, slot.asked_memory = TenantClass.opportunistic, 1 + (1 << 30)  # not taken yet
    scene.look()
    assert scene.told("Changed") == []
    slot.asked_memory = 0
    scene.look()
    pod["metadata"]["annotations"]["cotenant.dev/memory"] = "512Mi"
    scene.look()
    slot.memory_limit = 512 << 20
    scene.look()
    assert [message for _, _, message in scene.told("Changed")] == [
        "container main: class opportunistic, as annotated",
        "container main: memory up to 512Mi, as annotated",
    ]


def test_a_lane_follows_its_process_and_who_has_ended_is_forgotten(scene: Scene) -> None:
    pod = scene.pod("train", FIRST, "opportunistic")
    movable(scene.slot(FIRST))
    scene.slot(FIRST).lane = 1
    pod["metadata"]["annotations"] = {"cotenant.dev/memory": "512Mi"}
    scene.look()
    assert scene.asked(FIRST) == () and not scene.tending.asked
    scene.slot(FIRST).lane = 0
    pod["status"]["conditions"] = [PREEMPTED]
    scene.look()
    tending = scene.tending
    assert tending.asked and tending.paused and tending.homes
    scene.written.slots.clear()
    scene.look()
    assert not (tending.asked or tending.paused or tending.homes or tending.untold)


def test_an_annotation_that_went_while_no_agent_ran_is_taken_back(scene: Scene) -> None:
    pod = scene.pod("train", FIRST, "standard")
    pod["metadata"]["annotations"] = {"cotenant.dev/class": "opportunistic"}
    scene.look()
    scene.slot(FIRST).tenant_class = TenantClass.opportunistic
    scene.look()
    pod["metadata"]["annotations"] = {}
    scene.begin()
    scene.claims = scene.tending.claims = Claims(
        scene.folder / "state", scene.folder / "cdi", scene.claims._host, "node", DEVICES
    )
    scene.look()
    assert "tenant_class" in scene.asked(FIRST)


def test_one_that_does_not_answer_is_told_and_asked_again(scene: Scene) -> None:
    pod = scene.pod("train", FIRST, "standard")
    pod["metadata"]["annotations"] = {"cotenant.dev/class": "opportunistic"}
    for _ in range(20):
        scene.look()
    [(_, _, message)] = scene.told("ChangePending")
    assert f"process {FIRST} does not answer" in message
    assert scene.asked(FIRST)


def test_a_refused_claim_has_an_event_with_the_reason(scene: Scene) -> None:
    from cotenant.kubernetes.node import protocol

    uid = "11111111-2222-4333-8444-555555555555"
    scene.cluster.put(allocated_claim("wrong", uid, parameters={"wieght": 1}))
    claim = protocol.dra.Claim(namespace="team", name="wrong", uid=uid)
    scene.agent.prepare(protocol.dra.NodePrepareResourcesRequest(claims=[claim]), None)
    scene.look()
    assert scene.told() == [("wrong", "Refused", "unknown parameter 'wieght'; hint: did you mean 'weight'?")]


def test_a_process_of_a_pod_that_uses_the_gpu_past_us_is_told_once(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.pod("train", FIRST)
    proc = tmp_path / "proc"
    for pid, mapped in (
        (FIRST, "x"),
        (SECOND, "/usr/lib/libcuda.so.1"),
        (7, "/opt/cotenant/shim/libcuda.so.1"),
    ):
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "cgroup").write_text(f"0::/{'ab' * 32}\n")
        (proc / str(pid) / "maps").write_text(f"7f00-7f01 r-xp 0 00:00 1   {mapped}\n")
    scene.cluster.put(running_pod("train", "train", "ab" * 32))
    monkeypatch.setattr(containers, "PROC", proc)
    monkeypatch.setattr(outsiders, "PROC", proc)
    scene.tending.on_gpus = lambda: dict.fromkeys(((UUID_TEXT, one) for one in (FIRST, SECOND, 7, 8)), 2**30)
    for _ in range(2):
        scene.now += OUTSIDERS_SECONDS
        scene.look()
    [(_, reason, message, count)] = scene.cluster.events()
    assert (reason, count) == ("Escaped", 1)
    assert message.startswith(f"container main, process {SECOND}: it has 1G of GPU memory and has not loaded")


def test_the_names_of_containers_are_there_for_the_metrics(scene: Scene) -> None:
    scene.pod("train", FIRST)
    scene.look()
    assert containers.read_names(scene.path) == {
        f"c{FIRST}": {"namespace": "team", "pod": "train", "container": "main"}
    }


def test_the_pods_stay_known_while_the_api_server_is_away(scene: Scene, capsys: Any) -> None:
    scene.pod("train", FIRST)
    scene.look()
    scene.cluster.is_away = True
    ended = threading.Event()
    threading.Timer(0.1, ended.set).start()
    scene.pods.follow(ended)
    assert list(scene.pods.places()) == [f"c{FIRST}"]
    assert capsys.readouterr().err.count("no API server") == 1


def test_a_pod_as_nobody_foresaw_it_does_not_end_the_agent(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    scene.pod("train", FIRST)
    scene.look()
    scene.pods.take("ADDED", [{"metadata": {"uid": "strange"}, "status": {"containerStatuses": [{}, 7]}}])
    monkeypatch.setattr(agents, "SHORTEST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(agents, "TEND_SECONDS", 0.0)
    monkeypatch.setattr(agents, "LOOK_SECONDS", 0.0)
    looks, ended = 0, threading.Event()

    def look() -> dict[str, str]:
        nonlocal looks
        looks += 1
        if looks == 3:
            ended.set()
        return {}

    scene.cluster.is_away = True  # what it says of pods later
    scene.agent.run(look, lambda: None, ended)
    assert looks == 3
    assert capsys.readouterr().err.count("looking after the tenants failed") == 1


def test_a_restarted_container_is_known_by_both_its_ids() -> None:
    pods = Pods(FakeCluster(), "node")
    pod = running_pod(container_id="new")
    pod["status"]["containerStatuses"][0]["lastState"] = {"terminated": {"containerID": "containerd://old"}}
    pods.take("ADDED", [pod])
    assert set(pods.places()) == {"old", "new"}
    pods.take("DELETED", [pod])
    assert pods.places() == {}
