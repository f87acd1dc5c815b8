"""Agents and kubelets of two nodes are killed at random while pods come and go: those that are there run on, and
nothing is left behind. COTENANT_TEST_CHURN_SECONDS says for how long; in 120 s a hundred pods come and go."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from cotenant import segment
from tests.kubernetes.real.node import RealNode
from tests.kubernetes.real.pods import HOLD, RESOURCE, once, remove, remove_all, start, until_nothing_is_left

SECONDS = float(os.environ.get("COTENANT_TEST_CHURN_SECONDS", "20"))
PODS = int(SECONDS * 100 / 120)
AT_ONCE = 12
FREE_BYTES = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
free, whole, context = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
assert driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
assert driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(whole)) == 0
print(free.value)
"""


@pytest.fixture
def nodes(node: RealNode, other_node: RealNode) -> Iterator[list[RealNode]]:
    yield [node, other_node]
    for one in (node, other_node):
        remove_all(one)


def free_bytes(node: RealNode) -> int:
    """Of the node's GPU, as a program outside of Cotenant sees it."""
    done = subprocess.run(
        node.beside_pods(sys.executable, "-c", FREE_BYTES),
        env=node.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


class Churn:
    def __init__(self, nodes: list[RealNode], seed: int) -> None:
        self.nodes = nodes
        self.chance = random.Random(seed)
        self.running: dict[str, RealNode] = {}
        self.started = 0
        self.deeds: list[str] = []  # for who has to find out what went wrong

    def act(self) -> None:
        node = self.chance.choice(self.nodes)
        deed = self.chance.choice(["start"] * 5 + ["remove"] * 3 + ["agent", "kubelet"])
        name = ""
        if deed == "start" and len(self.running) < AT_ONCE:
            self.started += 1
            name = f"churn-{self.started}"
            start(node, name, HOLD, memory="16Mi")
            self.running[name] = node
        elif deed == "remove" and self.running:
            name = self.chance.choice(sorted(self.running))
            node = self.running.pop(name)
            node.plane.cluster.delete("v1", "Pod", name, "default")
            node.plane.cluster.delete(RESOURCE, "ResourceClaim", name, "default")
        elif deed == "agent":
            node.kill(node.agent)
            node.start_agent()
        elif deed == "kubelet":
            node.kill(node.kubelet)
            node.start_kubelet()
        else:
            return
        self.deeds.append(f"{time.strftime('%H:%M:%S')} {deed} {name or node.name}")


def test_agents_and_kubelets_are_killed_while_pods_come_and_go(nodes: list[RealNode]) -> None:
    for one in nodes:
        until_nothing_is_left(one)
    before = [free_bytes(one) for one in nodes]
    steady = {f"steady-{number}": one for number, one in enumerate(nodes)}
    for name, one in steady.items():
        start(one, name, HOLD)
    was = {name: once(one, name, "Running")["status"]["containerStatuses"][0] for name, one in steady.items()}
    churn = Churn(nodes, seed=1)
    ending = time.monotonic() + SECONDS
    while time.monotonic() < ending or churn.started < PODS:
        churn.act()
        time.sleep(churn.chance.uniform(0, 2 * SECONDS / max(1, PODS) / 3))
    deeds = "\n".join(churn.deeds)
    for name, one in churn.running.items():
        [container] = once(one, name, "Running")["status"]["containerStatuses"]
        assert container["restartCount"] == 0, deeds
    for name, one in steady.items():
        [container] = once(one, name, "Running")["status"]["containerStatuses"]
        assert (container["containerID"], container["restartCount"]) == (was[name]["containerID"], 0), deeds
    remove(nodes[0], *steady, *churn.running)
    for one in nodes:
        until_nothing_is_left(one)
        assert segment.read(one.segment).tenants == ()
    claims = [one["metadata"]["name"] for one in nodes[0].plane.cluster.all_of(RESOURCE, "ResourceClaim")]
    assert [name for name in claims if name.startswith(("churn", "steady"))] == [], deeds
    assert [free_bytes(one) for one in nodes] == before, deeds
