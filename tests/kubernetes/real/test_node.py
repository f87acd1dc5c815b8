"""A real kubelet and containerd with our agent: limits hold inside pods."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from cotenant import segment
from cotenant.classes import TenantClass
from tests.kubernetes.real.control_plane import until
from tests.kubernetes.real.node import SSH_SERVER, RealNode
from tests.kubernetes.real.pods import (
    HOLD,
    OUT_OF_MEMORY,
    RESOURCE,
    claim,
    once,
    remove,
    spec,
    start,
    until_nothing_is_left,
)
from tests.ports import free_port

pytestmark = pytest.mark.usefixtures("emptied")


def test_a_pod_over_its_memory_is_refused_also_with_an_empty_environment(node: RealNode) -> None:
    start(node, "limited", ["env", "-i", "/bin/program", "32", "30", "8"])
    once(node, "limited", "Succeeded")
    told = node.kubectl("logs", "limited")
    assert told.stdout.split() == ["0", "0", OUT_OF_MEMORY], told.stderr
    remove(node, "limited")


def test_what_kubectl_exec_starts_has_the_pod_s_limit(node: RealNode) -> None:
    start(node, "shell", HOLD)
    once(node, "shell", "Running")
    done = node.kubectl("exec", "shell", "--", "env", "-i", "/bin/program", "60", "20")
    assert done.stdout.split() == [OUT_OF_MEMORY, "0"], done.stderr
    remove(node, "shell")


def test_a_cleared_environment_and_a_nested_container_keep_the_limit(node: RealNode) -> None:
    start(node, "nest", HOLD, container={"securityContext": {"privileged": True}})
    once(node, "nest", "Running")
    nested = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--fork", "--mount-proc"]
    for before in ([], nested, [*nested, "env", "-i"]):
        done = node.kubectl("exec", "nest", "--", *before, "/bin/program", "clear", "60", "20")
        assert done.stdout.split() == [OUT_OF_MEMORY, "0"], (before, done.stderr)
    remove(node, "nest")


def test_an_ssh_server_in_the_container_keeps_the_limit(node: RealNode, tmp_path: Path) -> None:
    """Which forgets the environment that it was started with."""
    if not shutil.which(SSH_SERVER) or not shutil.which("dbclient"):
        pytest.skip("there is no dropbear: install dropbear-bin")

    def key(name: str) -> str:
        made = ["dropbearkey", "-t", "ed25519", "-f", str(tmp_path / name)]
        said = subprocess.run(made, check=True, capture_output=True, text=True).stdout
        return next(line for line in said.splitlines() if line.startswith("ssh-"))

    key("host")
    (tmp_path / ".ssh").mkdir(mode=0o700)
    (tmp_path / ".ssh" / "authorized_keys").write_text(key("client") + "\n")
    port = free_port()
    server = [SSH_SERVER, "-F", "-E", "-s", "-r", "/shared/host", "-P", "/tmp/pid", "-p", f"127.0.0.1:{port}"]
    start(node, "ssh", server, folder=tmp_path)
    once(node, "ssh", "Running")
    client = ["dbclient", "-y", "-y", "-i", str(tmp_path / "client"), "-p", str(port), "root@127.0.0.1"]

    def printed() -> list[str]:
        said = subprocess.run(
            [*client, "env; program 60 20"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return said.stdout.split()

    lines = until(printed, "the server does not answer")
    assert lines[-2:] == ["0", OUT_OF_MEMORY]
    assert any(line.startswith("SSH_CONNECTION=") for line in lines)
    assert not any("COTENANT" in line for line in lines)


def test_each_container_of_a_pod_has_the_class_of_its_own_claim(node: RealNode) -> None:
    """Init containers too; and one that is restarted has it again."""
    of = {"serving": ("production", "64Mi"), "batch": ("opportunistic", "32Mi")}
    for name, (tenant_class, memory) in of.items():
        claim(node, name, tenant_class, memory=memory)
    made = spec(node, HOLD, True, {"claims": [{"name": "serving"}]})
    [main] = made["containers"]
    made["containers"].append(main | {"name": "other", "resources": {"claims": [{"name": "batch"}]}})
    made["initContainers"] = [main | {"name": "warm-up", "command": ["program", "60", "8"]}]
    made["resourceClaims"] = [{"name": name, "resourceClaimName": name} for name in of]
    made["restartPolicy"] = "Always"
    metadata = {"name": "mixed", "namespace": "default"}
    node.plane.cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made})
    once(node, "mixed", "Running")
    assert node.kubectl("logs", "mixed", "-c", "warm-up").stdout.split() == ["0", OUT_OF_MEMORY]

    def tenants() -> dict[int, segment.Tenant]:
        return {one.tenant_class: one for one in segment.read(node.segment).tenants if one.uses}

    both = {TenantClass.production: 64 << 20, TenantClass.opportunistic: 32 << 20}

    def opportunistic(after: int = 0) -> int:
        """The process of that class, if both are there and it is another one than before."""
        seen = tenants()
        if {number: one.memory_limit for number, one in seen.items()} != both:
            return 0
        pid = seen[TenantClass.opportunistic].pid
        return pid if pid != after else 0

    killed = until(opportunistic, "the containers are not the tenants")
    shell = (
        Path(f"/proc/{killed}/stat").read_text().rpartition(")")[2].split()[1]
    )  # the container's first process
    os.kill(int(shell), signal.SIGKILL)
    until(lambda: opportunistic(after=killed), "the restarted container is no tenant")
    counts = {
        one["name"]: one["restartCount"] for one in node.plane.pod("mixed")["status"]["containerStatuses"]
    }
    assert counts["main"] == 0
    remove(node, "mixed")
    for name in of:
        node.plane.cluster.delete(RESOURCE, "ResourceClaim", name, "default")
    until_nothing_is_left(node)


def test_after_a_reboot_of_the_node_pods_have_their_claims_again(node: RealNode) -> None:
    start(node, "survivor", HOLD, "production", pod={"restartPolicy": "Always"})
    before = once(node, "survivor", "Running")["status"]["containerStatuses"][0]
    node.reboot()

    def is_back() -> bool:
        [now] = node.plane.pod("survivor")["status"]["containerStatuses"]
        return now["containerID"] != before["containerID"] and "running" in now["state"]

    until(is_back, "the pod does not run again")

    def tenants() -> list[tuple[str, int]]:
        with suppress(OSError, segment.BadSegment):
            return [(one.job, one.tenant_class) for one in segment.read(node.segment).tenants]
        return []

    wanted = [("default/survivor", TenantClass.production)]
    until(lambda: tenants() == wanted, "the pod is no tenant")
    done = node.kubectl("exec", "survivor", "--", "/bin/program", "60", "20")
    assert done.stdout.split() == [OUT_OF_MEMORY, "0"], done.stderr
    remove(node, "survivor")
    until_nothing_is_left(node)


def test_tenants_of_two_pods_meet_in_the_node_s_segment_with_their_classes(node: RealNode) -> None:
    start(node, "serving", HOLD, "production")
    start(node, "training", HOLD, "opportunistic", overflow="64Mi")
    once(node, "serving", "Running")
    once(node, "training", "Running")

    def classes() -> dict[str, int]:
        return {one.job: one.tenant_class for one in segment.read(node.segment).tenants}

    wanted = {"default/serving": TenantClass.production, "default/training": TenantClass.opportunistic}
    # A pod that is gone for the API server may take a moment until it is on the node.
    until(lambda: classes() == wanted, "the pods are not the tenants")
    remove(node, "serving", "training")
    until_nothing_is_left(node)


def test_a_claim_with_a_wrong_parameter_says_so_in_the_pod_s_events(node: RealNode) -> None:
    start(node, "wrong", HOLD, parameters={"wieght": 2})
    until(
        lambda: any("did you mean 'weight'?" in event for event in node.plane.events_of("wrong")),
        "no event says what is wrong",
    )
    remove(node, "wrong")


def test_without_claims_extended_resources_have_the_same_limits(node: RealNode) -> None:
    plugin = node.ours("device-plugin", "--split", "standard=50")

    def units() -> str | None:
        found = node.plane.cluster.get("v1", "Node", node.name)
        return ((found or {}).get("status", {}).get("allocatable") or {}).get("cotenant.dev/standard")

    try:
        until(lambda: units() == "50", "kubelet does not know the resource")
        limits = {"cotenant.dev/standard": "10"}
        made = spec(node, ["env", "-i", "/bin/program", "60", "60"], True, {"limits": limits})
        metadata = {"name": "units", "namespace": "default"}
        node.plane.cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made})
        once(node, "units", "Succeeded")
        assert node.kubectl("logs", "units").stdout.split() == ["0", OUT_OF_MEMORY]
    finally:
        node.kill(plugin)
