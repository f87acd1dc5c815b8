"""Class and limits of a claim hold inside its containers, whatever a program does to its environment."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.kubernetes.claims import Given, Terms
from cotenant.kubernetes.inventory import Device
from cotenant.kubernetes.node import container, host
from cotenant.kubernetes.parameters import Parameters
from tests.conftest import REAL_GPU
from tests.kubernetes import containers

UID = "8f8c1b2e-3f3a-4c57-9c3c-1d6a4fb0a111"
OUT_OF_MEMORY = "2"
MIB = 1 << 20


class Node:
    """The files of a node with one claim, and its containers."""

    def __init__(self, folder: Path, program: Path, sockets: Path, uuid: str) -> None:
        self.folder, self.program, self.uuid = folder, program, uuid
        self.segment = folder / "segment"
        self.sockets = sockets
        device = Device("gpu", uuid, "small", 1 << 30)
        self.host = host.make_ready(
            folder / "state", self.segment, [device], True, {"COTENANT_SOFTGPU_DIR": str(sockets)}
        )

    def claim(self, tenant_class: str, memory: int, overflow: int = 0) -> Path:
        given = Given("gpu", "node", "gpu", memory=memory, overflow=overflow)
        terms = Terms(UID, "team", "claim", tenant_class, (given,), Parameters(), ("pod",))
        identity = self.folder / "identity"
        identity.write_text(container.identity(terms, softgpu=True))
        identity.chmod(0o644)
        specification = self.folder / "cdi.json"
        specification.write_text(container.specification(UID, [self.uuid], identity, self.host))
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
def node(tmp_path: Path, program: Path, softgpu_env: dict[str, str]) -> Iterator[Node]:
    if REAL_GPU:
        pytest.skip("of the software GPU")
    containers.required()
    uuid = uuid_of_small(softgpu_env)
    inside = Path("/tmp/cotenant-softgpu-0")
    is_new = not inside.exists()
    yield Node(tmp_path, program, Path(softgpu_env["COTENANT_SOFTGPU_DIR"]), uuid)
    if is_new and inside.is_dir():
        inside.rmdir()


def uuid_of_small(env: dict[str, str]) -> str:
    listing = "from cotenant.gpus import nvml; from pathlib import Path; import os\n"
    listing += (
        "print(nvml.installed(Path(os.environ['LD_LIBRARY_PATH'].split(':')[0]) / 'libcuda.so.1')[0].uuid)"
    )
    done = subprocess.run(
        [sys.executable, "-c", listing], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


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
