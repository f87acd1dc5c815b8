"""The installation as a whole: what `install` prints goes to kubectl unchanged, and agent, webhook and placer run as
pods, from an image with what the Containerfile installs, each by its own account and no other's.

The node's GPUs are software ones, by variables in the image, and its folders are a node's own: /var/lib, /run, /etc,
/dev/shm. The tests are steps of one story, in this order.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant import __version__
from cotenant.kubernetes import manifests, names, removal
from cotenant.kubernetes.cluster import Unreachable
from cotenant.kubernetes.placer import gate
from tests.kubernetes.real import images, network, registry
from tests.kubernetes.real.control_plane import ACCOUNTS, ControlPlane, until
from tests.kubernetes.real.node import SHELL, RealNode
from tests.kubernetes.real.pods import OUT_OF_MEMORY, RESOURCE, once, phase

MANIFESTS = Path(__file__).parents[1] / "manifests"
MIB, H200 = 1 << 20, 150754820096 >> 20 << 20
LIMITS = {
    "cotenant": 20 << 30,
    "gaiagpu": 30 * 256 * MIB,
    "hami": 3000 * MIB,
    "hami-percentage": H200 // 2 // MIB * MIB,
    "kai": H200 // 2 // MIB * MIB,
    "kai-memory": 2000 * MIB,
    "kubeshare": 3145728000,
}
SOFTGPU = {
    "LD_LIBRARY_PATH": str(images.PACKAGES / "cotenant" / "native" / "softgpu"),
    "COTENANT_SOFTGPU": "h200,h200",
    "COTENANT_SOFTGPU_DIR": "/dev/shm/software-gpu",
}


class WholeNode(RealNode):
    """Without any process of ours beside kubelet."""

    def mounts(self) -> list[str]:
        return [
            "mount --make-rshared /",  # as systemd does it
            *super().mounts(),
            "mount -t tmpfs none /dev/shm",
            "mount -t tmpfs none /run",
            "mkdir /run/cdi /var/lib/upper /var/lib/work",
            f"mount --bind {self.folder / 'cdi'} /run/cdi",
            "mount -t overlay -o lowerdir=/etc,upperdir=/var/lib/upper,workdir=/var/lib/work none /etc",
        ]

    def keep_gpu(self) -> None:
        """The first pod's process is the software GPU's."""

    def start_agent(self) -> None:
        """The DaemonSet does."""

    def is_ready(self) -> bool:
        return self.has_kubelet()

    def start_containerd(self) -> None:
        network.write_plugin(self.folder / "cni-bin", self.folder / "addresses")
        super().start_containerd()
        (self.folder / "cni" / "10-pods.conflist").write_text(
            '{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "pods"}]}'
        )
        (self.folder / "cni" / "10-loopback.conflist").unlink()

    def make_images(self, programs: dict[str, Path]) -> None:
        super().make_images(programs)
        # Another image than the tests' own: what kubelet has pulled is not there for pods that pull nothing.
        sleeping = {"Cmd": ["/bin/sleep", "1000000"], "Labels": {"of": "anybody"}}
        images.write(self.folder / "any.tar", ["any"], self.files_of_pods(programs), sleeping)
        files, config = images.like_the_containerfile_s(self.folder, SOFTGPU)
        archive = self.folder / "cotenant.tar"
        images.write(archive, [f"docker.io/library/cotenant:{__version__}"], files, config)
        self.take_image(archive)
        archive.unlink()


@pytest.fixture(scope="module")
def whole(control_plane: ControlPlane, programs_of_pods: dict[str, Path]) -> Iterator[WholeNode]:
    list(removal.remove(control_plane.cluster, names.NAMESPACE))
    until(
        lambda: control_plane.cluster.get("v1", "Namespace", names.NAMESPACE) is None,
        "an earlier installation is still there",
    )
    with (
        tempfile.TemporaryDirectory(prefix="cotenant-node-", ignore_cleanup_errors=True) as folder,
        network.to_api_server(control_plane.port),
        contextlib.ExitStack() as registries,
    ):
        node = WholeNode(control_plane, f"whole-{os.urandom(3).hex()}", Path(folder), {})
        try:
            node.start(programs_of_pods)
            address = registries.enter_context(registry.serving(node.folder / "any.tar"))
            hosts = node.folder / "registries" / "_default" / "hosts.toml"
            hosts.parent.mkdir()
            hosts.write_text(f'[host."{address}"]\ncapabilities = ["pull", "resolve"]\n')
            yield node
        finally:
            list(removal.remove(control_plane.cluster, names.NAMESPACE))
            node.stop()
            for pod in control_plane.cluster.all_of("v1", "Pod"):
                if pod["spec"].get("nodeName") == node.name:
                    where = pod["metadata"]
                    control_plane.kill("v1", "Pod", where["name"], where["namespace"])
            control_plane.cluster.delete("v1", "Node", node.name)


def ours(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "cotenant", "kubernetes", *words],
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def pods_of(node: WholeNode, component: str) -> list[dict[str, Any]]:
    return [
        one
        for one in node.plane.cluster.all_of("v1", "Pod")
        if one["metadata"]["namespace"] == names.NAMESPACE
        and one["metadata"]["labels"].get("app.kubernetes.io/component") == component
    ]


def are_ready(node: WholeNode, component: str, count: int) -> bool:
    found = [one for one in pods_of(node, component) if "deletionTimestamp" not in one["metadata"]]
    ready = [
        one
        for one in found
        if any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in one["status"].get("conditions") or ()
        )
    ]
    return len(ready) == len(found) == count


def until_ready(node: WholeNode, component: str, count: int) -> None:
    try:
        until(lambda: are_ready(node, component, count), component)
    except pytest.fail.Exception:
        said = [
            (one["status"].get("containerStatuses"), node.plane.events_of(one["metadata"]["name"]))
            for one in pods_of(node, component)
        ]
        logs = node.kubectl(
            *("logs", "--namespace", names.NAMESPACE, "--all-containers", "--tail=30"),
            *("-l", f"app.kubernetes.io/component={component}"),
        )
        pytest.fail(f"{component} does not run: {said} {logs.stdout} {logs.stderr}")


def short_form(name: str, *command: str, **annotations: str) -> dict[str, Any]:
    """A pod as a user writes it."""
    container = {"name": "main", "image": SHELL, "imagePullPolicy": "Never", "command": list(command)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {f"{names.DRIVER}/{word}": said for word, said in annotations.items()},
        },
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }


def test_what_install_prints_runs_as_pods(whole: WholeNode) -> None:
    printed = ours("install", "--dry-run", "--placer", "muxflow").stdout
    file = whole.folder / "printed.yaml"
    file.write_text(printed)
    done = whole.kubectl("apply", "-f", str(file))
    assert done.returncode == 0, done.stderr
    for component, count in (("agent", 1), ("webhook", 2), ("placer", 1)):
        until_ready(whole, component, count)
    found = until(
        lambda: whole.plane.cluster.get(RESOURCE, "ResourceSlice", f"{whole.name}-{names.DRIVER}"),
        "the agent offers no GPU",
    )
    assert found["metadata"]["ownerReferences"][0]["name"] == whole.name


def test_pods_that_cannot_run_say_why(whole: WholeNode) -> None:
    """One for which no GPU has room waits for the placer; one for which the node has no CPU goes to the scheduler, and
    gets its claim without a GPU after a while."""
    whole.plane.cluster.create(short_form("large", "env", memory="200Gi"))
    stuck = short_form("stuck", "env", memory="16Mi")
    stuck["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1000"}}
    whole.plane.cluster.create(stuck)
    for pod, words in {"large": "no GPU has 200Gi of memory left", "stuck": "Insufficient cpu"}.items():
        until(lambda: words in str(whole.plane.events_of(pod)), f"{pod}: no event says {words}")  # noqa: B023

    def chosen() -> str:
        name = whole.plane.pod("stuck")["spec"]["resourceClaims"][0]["resourceClaimName"]
        found = whole.plane.cluster.get(RESOURCE, "ResourceClaim", name, "default")
        return str(found["metadata"]["annotations"][gate.GPU]) if found else "there is no claim"

    until(lambda: chosen() == "", "the scheduler may not choose")
    for pod in ("large", "stuck"):
        whole.plane.cluster.delete("v1", "Pod", pod, "default")


def test_a_pod_with_annotations_comes_to_its_limit(whole: WholeNode) -> None:
    """By the webhook behind its service, the placer, the scheduler, and the agent. (The environment says which software
    GPUs there are, so it is not emptied here.)"""
    made = short_form("limited", "program", "32", "30", "8", **{"class": "standard", "memory": "64Mi"})
    whole.plane.cluster.create(made)
    once(whole, "limited", "Succeeded")
    assert whole.kubectl("logs", "limited").stdout.split() == ["0", "0", OUT_OF_MEMORY]


@pytest.mark.parametrize("name", sorted(path.stem for path in MANIFESTS.glob("*.yaml")))
def test_a_manifest_of_each_dialect_runs_unchanged(whole: WholeNode, name: str) -> None:
    """From its file, by kubectl; a registry has an image under the name that it says."""
    file = MANIFESTS / f"{name}.yaml"
    said: dict[str, Any] = yaml.safe_load(file.read_text())
    if project := said["spec"].get("priorityClassName"):  # of KAI's own installation
        whole.plane.cluster.apply(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": project},
                "value": 50,
            }
        )
    done = whole.kubectl("apply", "-f", str(file))
    assert done.returncode == 0, done.stderr
    pod = said["metadata"]["name"]
    once(whole, pod, "Running")
    [first, *_] = said["spec"]["containers"]
    done = whole.kubectl("exec", pod, "-c", first["name"], "--", "cat", "/etc/cotenant/identity")
    [limit] = [line for line in done.stdout.splitlines() if line.startswith("COTENANT_MEMORY=")]
    assert int(limit.partition("=")[2]) == LIMITS[name]
    whole.kubectl("delete", "-f", str(file), "--grace-period=0", "--force")
    until(lambda: whole.plane.cluster.get("v1", "Pod", pod, "default") is None, "it is still there")


def test_a_tenant_is_in_events_and_metrics_and_outlives_its_agent(whole: WholeNode) -> None:
    whole.plane.cluster.create(
        short_form(
            "steady", "sh", "-c", "sleep 1000000 | program 16", **{"class": "production", "memory": "64Mi"}
        )
    )
    before = once(whole, "steady", "Running")["status"]["containerStatuses"][0]
    until(
        lambda: "Joined" in whole.kubectl("describe", "pod", "steady").stdout, "no event tells of the tenant"
    )
    [claim] = [entry["resourceClaimName"] for entry in whole.plane.pod("steady")["spec"]["resourceClaims"]]
    told = whole.kubectl("describe", "resourceclaim", claim).stdout
    assert "Prepared" in told and whole.name in told, told
    [agent] = pods_of(whole, "agent")
    address = f"http://{agent['status']['podIP']}:{manifests.METRICS_PORT}/metrics"

    def is_measured() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
            return any(
                line.startswith("cotenant_tenant_memory_bytes{") and 'pod="steady"' in line for line in lines
            )
        return False

    until(is_measured, "the metrics do not name the pod")
    whole.plane.cluster.delete("v1", "Pod", agent["metadata"]["name"], names.NAMESPACE)
    until(
        lambda: agent["metadata"]["uid"] not in [one["metadata"]["uid"] for one in pods_of(whole, "agent")],
        "the agent's pod is still there",
    )
    until_ready(whole, "agent", 1)
    whole.plane.cluster.create(short_form("later", "program", "16", memory="6%"))
    once(whole, "later", "Succeeded")
    after = once(whole, "steady", "Running")["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)


def test_two_containers_have_claims_that_their_author_wrote(whole: WholeNode) -> None:
    request = {"deviceClassName": "standard.cotenant.dev", "capacity": {"requests": {"memory": "64Mi"}}}
    whole.plane.cluster.create(
        {
            "apiVersion": RESOURCE,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "by-hand", "namespace": "default"},
            "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}},
        }
    )
    pair = short_form("pair", "program", "60", "8")
    [main] = pair["spec"]["containers"]
    names_of_claims = ("one", "two")
    pair["spec"]["containers"] = [
        main | {"name": name, "resources": {"claims": [{"name": name}]}} for name in names_of_claims
    ]
    pair["spec"]["resourceClaims"] = [
        {"name": name, "resourceClaimTemplateName": "by-hand"} for name in names_of_claims
    ]
    whole.plane.cluster.create(pair)
    once(whole, "pair", "Succeeded")
    for name in names_of_claims:
        assert whole.kubectl("logs", "pair", "-c", name).stdout.split() == ["0", OUT_OF_MEMORY]


def test_while_the_webhook_is_down_only_pods_that_ask_for_gpus_are_refused(whole: WholeNode) -> None:
    deployment = ("deployment", "cotenant-webhook", "--namespace", names.NAMESPACE)
    whole.kubectl("scale", "--replicas=0", *deployment)
    until_ready(whole, "webhook", 0)
    plain = short_form("plain", "env")
    del plain["metadata"]["annotations"]
    assert whole.plane.cluster.create(plain)
    once(whole, "plain", "Succeeded")
    with pytest.raises(Unreachable, match="failed calling webhook"):
        whole.plane.cluster.create(short_form("asking", "env", memory="64Mi"))
    whole.kubectl("scale", "--replicas=2", *deployment)
    until_ready(whole, "webhook", 2)


def test_no_account_has_a_right_that_it_does_not_use(whole: WholeNode) -> None:
    used: dict[str, set[tuple[str, str]]] = {f"cotenant-{one}": set() for one in ACCOUNTS}
    for line in whole.plane.audit_log.read_text().splitlines():
        said = json.loads(line)
        account = said["user"]["username"].rpartition(":")[2]
        about = said.get("objectRef") or {}
        resource = "/".join(filter(None, (about.get("resource"), about.get("subresource"))))
        assert account in used
        used[account].add((resource, said["verb"]))
        # A server-side apply of what is not there needs the right to create it.
        if said["verb"] == "patch" and said.get("responseStatus", {}).get("code") == 201:
            used[account].add((resource, "create"))
    made = manifests.everything(manifests.Settings(placer="muxflow"))
    for role in (one for one in made if one["kind"] == "ClusterRole"):
        given = {
            (resource, verb)
            for rule in role["rules"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        assert given - used[role["metadata"]["name"]] == set(), role["metadata"]["name"]


def test_uninstall_leaves_the_running_pod_and_nothing_else(whole: WholeNode) -> None:
    said = ours("uninstall", "--kubeconfig", str(whole.plane.kubeconfig)).stderr
    assert "these pods still have claims: default/steady." in said
    labels = ",".join(f"{key}={value}" for key, value in names.LABELS.items())
    kinds = {
        (one["apiVersion"], one["kind"]) for one in manifests.everything(manifests.Settings(placer="muxflow"))
    } | set(removal.MADE_LATER)

    def left() -> list[tuple[str, str]]:
        return [
            (kind, name)
            for version, kind in sorted(kinds)
            for _, name in whole.plane.cluster.names_of(version, kind, labels)
        ]

    until(lambda: not left(), "something is left")
    assert pods_of(whole, "agent") == []
    assert phase(whole, "steady") == "Running"


def test_a_pod_that_was_left_ends_when_there_is_an_agent_again(whole: WholeNode) -> None:
    whole.plane.cluster.delete("v1", "Pod", "steady", "default")
    until(
        lambda: "terminated" in whole.plane.pod("steady")["status"]["containerStatuses"][0]["state"],
        "its container runs on",
    )
    # Kubelet says again and again that it has nobody to ask.
    log = whole.folder / "logs" / "kubelet.log"
    asking = re.compile(r"unprepare.*cotenant\.dev|cotenant\.dev.*not (found|registered)", re.IGNORECASE)
    said = len(asking.findall(log.read_text(errors="replace")))
    until(
        lambda: len(asking.findall(log.read_text(errors="replace"))) > said, "kubelet does not miss the agent"
    )
    assert "deletionTimestamp" in whole.plane.pod("steady")["metadata"]
    ours("install", "--kubeconfig", str(whole.plane.kubeconfig))
    until(lambda: whole.plane.cluster.get("v1", "Pod", "steady", "default") is None, "it does not end")
