"""Class and limits of a claim hold inside its containers, whatever a program does to its environment."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.kubernetes.claims import Given, Terms
from cotenant.kubernetes.inventory import Device
from cotenant.kubernetes.node import container, host
from cotenant.kubernetes.node.pods import Finder, Pods
from cotenant.kubernetes.node.preparing import Claims
from cotenant.kubernetes.node.story import Story
from cotenant.kubernetes.node.tending import Tending
from cotenant.kubernetes.parameters import Parameters
from tests.conftest import REAL_GPU
from tests.kubernetes import containers
from tests.kubernetes.fake_cluster import FakeCluster, allocated_claim, running_pod

UID = "8f8c1b2e-3f3a-4c57-9c3c-1d6a4fb0a111"
OUT_OF_MEMORY = "2"
MIB = 1 << 20


class Node:
    """The files of a node with one claim, and its containers."""

    def __init__(self, folder: Path, program: Path, env: Mapping[str, str]) -> None:
        self.folder, self.program = folder, program
        self.segment = folder / "segment"
        self.devices = devices_in(env)
        self.host = host.make_ready(folder / "state", self.segment, self.devices, True, env)

    def claim(self, tenant_class: str, memory: int, overflow: int = 0, device: int = 0) -> Path:
        given = Given("gpu", "node", self.devices[device].name, memory=memory, overflow=overflow)
        terms = Terms(UID, "team", "claim", tenant_class, (given,), Parameters(), ("pod",))
        identity = self.folder / "identity"
        identity.write_text(container.identity(terms, softgpu=True))
        identity.chmod(0o644)
        specification = self.folder / "cdi.json"
        specification.write_text(
            container.specification(UID, [self.devices[device].uuid], identity, self.host)
        )
        return specification

    def start(self, specification: Path, *command: str) -> subprocess.Popen[str]:
        stage = Path(tempfile.mkdtemp(dir=self.folder))
        return subprocess.Popen(
            containers.command_in(specification, command, stage),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def answers(self, specification: Path, *command: str) -> list[str]:
        with self.start(specification, *command) as child:
            out, err = child.communicate("", timeout=60)
        assert child.returncode == 0, err
        return out.split()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "allocate"
    source = Path(__file__).with_name("allocate.c")
    subprocess.run(["cc", "-w", "-o", str(path), str(source), "-ldl"], check=True)
    return path


@pytest.fixture
def env(softgpu_env: dict[str, str]) -> dict[str, str]:
    if REAL_GPU:
        pytest.skip("of the software GPU")
    containers.required()
    return softgpu_env


@pytest.fixture
def node(tmp_path: Path, program: Path, env: dict[str, str]) -> Iterator[Node]:
    with folder_for_sockets():
        yield Node(tmp_path, program, env)


@contextlib.contextmanager
def folder_for_sockets() -> Iterator[None]:
    inside = Path("/tmp/cotenant-softgpu-0")
    is_new = not inside.exists()
    yield
    if is_new and inside.is_dir():
        inside.rmdir()


def devices_in(env: Mapping[str, str]) -> list[Device]:
    """As the agent finds them."""
    listing = """
import dataclasses, json, os
from cotenant.kubernetes.node import gpus
print(json.dumps([dataclasses.asdict(device) for device in gpus.found(os.environ)[0]]))
"""
    done = subprocess.run(
        [sys.executable, "-c", listing], env=env, capture_output=True, text=True, check=True
    )
    return [Device(**one) for one in json.loads(done.stdout)]


def once_taken(path: Path) -> segment.Tenant:
    """The tenant, once it has taken what it was asked for."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        [tenant] = segment.read(path).tenants
        if not tenant.asked:
            return tenant
        time.sleep(0.01)
    pytest.fail("the tenant took no request")


def test_an_emptied_environment_keeps_the_memory_limit(node: Node) -> None:
    specification = node.claim("standard", 64 * MIB)
    for wrapper in ((), ("env", "-i"), ("env", "-i", "sh", "-c", 'exec "$0" "$@"')):
        assert node.answers(specification, *wrapper, str(node.program), "32", "30", "8") == [
            "0",
            "0",
            OUT_OF_MEMORY,
        ], wrapper


def test_a_program_that_sets_its_own_limits_does_not_get_them(node: Node) -> None:
    specification = node.claim("standard", 64 * MIB)
    own = (
        "env",
        "COTENANT_MEMORY=1G",
        "COTENANT_SEGMENT=/nowhere",
        "COTENANT_RUN_ID=" + "1" * 32,
        "LD_PRELOAD=",
    )
    assert node.answers(specification, *own, str(node.program), "65") == [OUT_OF_MEMORY]


def test_memory_and_overflow_together_are_the_limit(node: Node) -> None:
    specification = node.claim("opportunistic", 16 * MIB, overflow=48 * MIB)
    assert node.answers(specification, str(node.program), "60", "8") == ["0", OUT_OF_MEMORY]


def test_the_processes_of_a_claim_share_its_limit(node: Node) -> None:
    specification = node.claim("standard", 64 * MIB)
    with node.start(specification, str(node.program), "40") as first:
        assert first.stdout and first.stdin
        assert first.stdout.readline() == "0\n"
        assert node.answers(specification, str(node.program), "40", "20") == [OUT_OF_MEMORY, "0"]
        first.stdin.close()


def test_the_slot_has_the_class_of_the_claim_and_nothing_raises_it(node: Node) -> None:
    specification = node.claim("opportunistic", 64 * MIB)
    raised = ("env", "COTENANT_CLASS=production")
    with node.start(specification, *raised, str(node.program), "8") as child:
        assert child.stdout and child.stdin
        assert child.stdout.readline() == "0\n"
        [tenant] = segment.read(node.segment).tenants
        assert tenant.tenant_class == TenantClass.opportunistic
        assert tenant.run_id == UID.replace("-", "")
        asked = {"tenant_class": TenantClass.production.value, "memory": 1 << 30, "weight": 3000}
        assert segment.ask(node.segment, tenant.pid, asked)
        after = once_taken(node.segment)
        assert after.weight == 3000
        assert after.tenant_class == TenantClass.opportunistic
        assert after.memory_limit == 64 * MIB
        assert segment.ask(node.segment, tenant.pid, {"memory": 16 * MIB})
        assert once_taken(node.segment).memory_limit == 16 * MIB
        child.stdin.close()


def test_a_container_can_write_its_slot_and_nothing_else_of_the_node(node: Node) -> None:
    specification = node.claim("standard", 64 * MIB)
    tries = (
        "for f in /etc/cotenant/identity /etc/ld.so.preload /opt/cotenant/shim/libcuda.so.1"
        " /dev/shm/cotenant.shared/header; do (echo >> $f) 2>/dev/null && echo $f; done;"
        " touch /dev/shm/cotenant.shared/slots/x && rm /dev/shm/cotenant.shared/slots/x && echo slots"
    )
    assert node.answers(specification, "sh", "-c", tries) == ["slots"]


def test_a_claim_of_the_second_gpu_gets_that_one(tmp_path: Path, program: Path, env: dict[str, str]) -> None:
    with folder_for_sockets():
        node = Node(tmp_path, program, env | {"COTENANT_SOFTGPU": "small,small"})
        specification = node.claim("standard", 64 * MIB, device=1)
        with node.start(specification, str(node.program), "8", "60") as child:
            assert child.stdout and child.stdin
            assert [child.stdout.readline() for _ in range(2)] == ["0\n", f"{OUT_OF_MEMORY}\n"]
            [tenant] = segment.read(node.segment).tenants
            assert [use.uuid for use in tenant.uses] == [node.devices[1].uuid]
            child.stdin.close()


def test_a_claim_of_a_mig_instance_gets_that_instance_and_its_limit(
    tmp_path: Path, program: Path, env: dict[str, str]
) -> None:
    with folder_for_sockets():
        node = Node(tmp_path, program, env | {"COTENANT_SOFTGPU": "h200:3g.71gb+1g.18gb"})
        assert [(device.profile, device.memory_bytes >> 20) for device in node.devices] == [
            ("3g.71gb", 67072),
            ("1g.18gb", 16384),
        ]
        specification = node.claim("standard", 64 * MIB, device=1)
        with node.start(specification, str(node.program), "8", "60") as child:
            assert child.stdout and child.stdin
            assert [child.stdout.readline() for _ in range(2)] == ["0\n", f"{OUT_OF_MEMORY}\n"]
            [tenant] = segment.read(node.segment).tenants
            assert [use.uuid.removeprefix("GPU-") for use in tenant.uses] == [
                node.devices[1].uuid.removeprefix("MIG-")
            ]
            child.stdin.close()


class Tended:
    """A claim of a pod on such a node, and the agent's part that looks after it; the API server is not a real one."""

    def __init__(self, node: Node, tenant_class: str) -> None:
        self.node, self.cluster = node, FakeCluster()
        folder = node.folder / "agent"
        claims = Claims(folder, node.folder / "cdi", node.host, "node", node.devices)
        device = node.devices[0].name
        self.cluster.put(allocated_claim(uid=UID, tenant_class=tenant_class, device=device, memory="64Mi"))
        claims.prepare(self.cluster, "team", "claim", UID)
        self.specification = node.folder / "cdi" / container.file_name(UID)
        self.pod = self.cluster.put(running_pod())
        self.pods, self.story = Pods(self.cluster, "node"), Story(self.cluster, "node")
        finder = Finder(lambda tenant: ("c" * 64,))
        self.tending = Tending(node.segment, folder, claims, node.devices, self.pods, self.story, finder)
        self.ended = threading.Event()
        self.ended.set()

    def tenants(self) -> tuple[segment.Tenant, ...]:
        return segment.read(self.node.segment).tenants

    def until(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not what() and time.monotonic() < deadline:
            self.pods.hear(self.ended)
            self.tending.look(time.monotonic())
            self.story.write(self.ended)
            time.sleep(0.01)
        assert what(), (self.tenants(), self.cluster.events())

    def told(self) -> list[tuple[str, str]]:
        return [(reason, message) for _, reason, message, _ in self.cluster.events()]


def test_an_annotation_changes_a_process_that_runs_and_one_that_comes_later(node: Node) -> None:
    tended = Tended(node, "standard")

    def all_are(tenant_class: TenantClass, limit: int, count: int) -> Callable[[], bool]:
        return lambda: (
            [(one.tenant_class, one.memory_limit) for one in tended.tenants()]
            == [(tenant_class, limit)] * count
        )

    with (
        node.start(tended.specification, str(node.program), "8") as first,
        node.start(tended.specification, str(node.program), "8") as later,
    ):
        assert first.stdout and first.stdin and later.stdout and later.stdin
        assert (first.stdout.readline(), later.stdout.readline()) == ("0\n", "0\n")
        tended.pod["metadata"]["annotations"] = {
            "cotenant.dev/class": "opportunistic",
            "cotenant.dev/memory": "32Mi",
        }
        tended.until(all_are(TenantClass.opportunistic, 32 * MIB, 2))
        changed = ("Changed", "container main: class opportunistic, memory up to 32Mi, as annotated")
        tended.until(lambda: changed in tended.told())
        with node.start(tended.specification, str(node.program), "8") as third:
            assert third.stdout and third.stdin
            assert third.stdout.readline() == "0\n"
            tended.until(all_are(TenantClass.opportunistic, 32 * MIB, 3))
            third.stdin.close()
        tended.pod["metadata"]["annotations"] = {}
        tended.until(all_are(TenantClass.standard, 64 * MIB, 2))
        first.stdin.close()
        later.stdin.close()


def test_a_pod_about_to_be_evicted_has_its_memory_on_the_host(node: Node) -> None:
    tended = Tended(node, "opportunistic")
    with node.start(tended.specification, str(node.program), "16") as child:
        assert child.stdout and child.stdin
        assert child.stdout.readline() == "0\n"
        target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        tended.until(lambda: len(tended.told()) == 1)
        tended.pod["status"]["conditions"] = [target]
        tended.until(lambda: tended.tenants()[0].host_bytes == 16 * MIB)
        tended.until(lambda: any(reason == "Paused" for reason, _ in tended.told()))
        assert "(PreemptionByScheduler): 16M went to the host" in tended.told()[-1][1]
        # Whoever wanted its place has gone: it runs on.
        tended.pod["status"]["conditions"] = []
        tended.until(lambda: tended.tenants()[0].host_bytes == 0 and not tended.tenants()[0].paused)
        child.stdin.close()
