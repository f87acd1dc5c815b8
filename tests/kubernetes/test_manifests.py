"""What `install` creates, what the Helm chart creates, and what `uninstall` takes away are the same."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import ssl
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cotenant import segment
from cotenant.kubernetes import certificates, chart, manifests, names, removal
from cotenant.kubernetes.node import preparing
from cotenant.launch import driver
from cotenant.launch.architecture import HERE
from tests.kubernetes.fake_cluster import FakeCluster, allocated_claim

if TYPE_CHECKING:
    from tests.conftest import Run

CHART = Path(__file__).parents[2] / "deploy" / "kubernetes" / "chart"


def printed(cotenant: Run, *options: str) -> list[dict[str, Any]]:
    done = cotenant("kubernetes", "install", "--dry-run", *options)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def without_certificate(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for one in objects:
        if one["kind"] == "Secret":
            one["data"] = sorted(one["data"])
        if one["kind"] == "MutatingWebhookConfiguration":
            del one["webhooks"][0]["clientConfig"]["caBundle"]
        if one["metadata"]["name"] == manifests.WEBHOOK and one["kind"] == "Deployment":
            one["spec"]["template"]["metadata"]["annotations"] = ["checksum/certificate"]
    return objects


def test_install_prints_every_object_with_the_labels_by_which_it_is_found(cotenant: Run) -> None:
    objects = printed(cotenant, "--image", "registry.example/c:1", "--namespace", "gpus")
    kinds = {one["kind"] for one in objects}
    assert {"Namespace", "DeviceClass", "PriorityClass", "DaemonSet", "Deployment", "Secret"} <= kinds
    assert all(one["metadata"]["labels"].items() >= names.LABELS.items() for one in objects)
    assert all(one["metadata"].get("namespace", "gpus") == "gpus" for one in objects)
    images = {match for one in objects for match in re.findall(r"'image': '([^']+)'", str(one))}
    assert images == {"registry.example/c:1"}


def test_each_class_has_a_device_class_that_says_it() -> None:
    said = {
        one["metadata"]["name"]: one["spec"]["config"][0]["opaque"]["parameters"]["class"]
        for one in manifests.device_classes()
    }
    assert said == {
        "production.cotenant.dev": "production",
        "standard.cotenant.dev": "standard",
        "opportunistic.cotenant.dev": "opportunistic",
    }


def test_priorities_are_in_the_order_of_the_classes() -> None:
    values = [one["value"] for one in manifests.priority_classes()]
    assert values == sorted(values, reverse=True) and len(set(values)) == 3


def test_only_the_agent_is_privileged_and_no_right_is_a_wildcard() -> None:
    objects = manifests.everything(manifests.Settings(placer="muxflow"))
    privileged = {one["metadata"]["name"] for one in objects if "'privileged': True" in str(one)}
    assert privileged == {"cotenant-agent"}
    rules = [rule for one in objects if one["kind"] == "ClusterRole" for rule in one["rules"]]
    assert rules and all("*" not in words for rule in rules for words in rule.values())
    assert not any("secrets" in rule["resources"] for rule in rules)
    [webhook] = [
        one for one in objects if one["kind"] == "ClusterRole" and "webhook" in one["metadata"]["name"]
    ]
    assert [rule["resources"] for rule in webhook["rules"]] == [
        ["resourceclaimtemplates"],
        ["resourceslices"],
    ]


def test_the_agent_looks_for_the_driver_where_its_node_is_mounted() -> None:
    [made] = manifests.agent(manifests.Settings())
    spec = made["spec"]["template"]["spec"]
    [node] = [one["name"] for one in spec["volumes"] if one["hostPath"]["path"] == "/"]
    for container in spec["containers"]:
        mounted = [one for one in container["volumeMounts"] if one["name"] == node]
        assert bool(mounted) == bool(container["securityContext"].get("privileged")), container["name"]
        for one in mounted:
            assert one["readOnly"]
            assert one["mountPath"] + HERE.library_folder in driver.FOLDERS


def test_the_agent_has_the_folders_of_its_node_in_which_it_looks() -> None:
    [made] = manifests.agent(manifests.Settings())
    agent, daemon, _ = made["spec"]["template"]["spec"]["containers"]
    mounted = {one["mountPath"] for one in agent["volumeMounts"]}
    assert {str(folder) for folder in preparing.CDI_FOLDERS} <= mounted
    assert str(segment.SHARED) == manifests.SEGMENT
    assert manifests.SEGMENT in daemon["args"]


@pytest.mark.parametrize("which", ["daemon", "metrics"])
def test_daemon_and_metrics_wait_for_the_agent_s_segment(tmp_path: Path, which: str) -> None:
    """The daemon would make one of its own, for one user, in its place; the metrics would end."""
    [made] = manifests.agent(manifests.Settings())
    [daemon] = [one for one in made["spec"]["template"]["spec"]["containers"] if one["name"] == which]
    place = tmp_path / "segment"
    program = tmp_path / "bin" / "cotenant"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n[ -d {place} ] && echo "$@"\n')
    program.chmod(0o755)
    words = [one.replace(manifests.SEGMENT, str(place)) for one in (*daemon["command"], *daemon["args"])]
    path = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    with subprocess.Popen(words, env=path, stdout=subprocess.PIPE, text=True) as waiting:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(0.2)
        place.mkdir()
        said, _ = waiting.communicate(timeout=60)
    assert said.split()[:3] == [which, "--segment", str(place)]


def test_no_text_is_a_number_to_other_readers_of_yaml() -> None:
    """To Kubernetes' and Helm's, `1e9` without quotes is a number; Python's writes and reads it as text."""
    number = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)(e[-+]?\d+)?|0[xob][\da-f]+", re.IGNORECASE)

    def texts(value: Any) -> list[str]:
        if isinstance(value, dict):
            return [text for one in value.values() for text in texts(one)]
        if isinstance(value, list):
            return [text for one in value for text in texts(one)]
        return [value] if isinstance(value, str) else []

    numbers = {text for text in texts(manifests.everything(manifests.Settings(placer="muxflow")))}
    numbers = {text for text in numbers if number.fullmatch(text)}
    assert {text for text in numbers if yaml.safe_dump([text]) == f"- {text}\n"} == set()


def test_the_chart_in_the_tree_is_the_one_that_the_code_writes() -> None:
    there = {
        str(path.relative_to(CHART)): path.read_text() for path in sorted(CHART.rglob("*")) if path.is_file()
    }
    assert there == chart.files(), "run: make chart"


def test_the_chart_is_written_as_it_is(tmp_path: Path) -> None:
    chart.write(tmp_path)
    assert {name: (tmp_path / name).read_text() for name in chart.files()} == chart.files()


@pytest.mark.parametrize("placer", ["", "muxflow"])
def test_the_chart_renders_to_what_install_prints(cotenant: Run, placer: str) -> None:
    values = {
        ".Release.Namespace": "gpus",
        ".Values.image": chart.VALUES["image"],
        ".Values.policy": chart.VALUES["policy"],
        ".Values.placer": placer,
    }
    rendered = []
    without = "" if placer else r"^\{\{- if \.Values\.placer \}\}\n.*?^\{\{- end \}\}\n"
    for name, written in chart.files().items():
        if not name.startswith("templates/") or not name.endswith(".yaml"):
            continue
        content = re.sub(without, "", written, flags=re.M | re.S) if without else written
        body = "".join(line for line in content.splitlines(keepends=True) if not line.startswith("{{-"))
        within = r"\{\{ if \.Values\.placer \}\}(.*?)\{\{ end \}\}"
        body = re.sub(within, r"\1" if placer else "", body)
        body = re.sub(r"\{\{ ([.\w]+) \}\}", lambda found: values[found[1]], body)
        made = yaml.safe_load_all(re.sub(r"\{\{ \$\w+ \}\}", "", body))
        rendered += [one for one in made if one]
    options = ["--placer", placer] if placer else []
    installed = [
        one for one in printed(cotenant, "--namespace", "gpus", *options) if one["kind"] != "Namespace"
    ]

    def key(one: dict[str, Any]) -> tuple[str, str]:
        return one["kind"], one["metadata"]["name"]

    assert sorted(without_certificate(rendered), key=key) == sorted(without_certificate(installed), key=key)


def test_the_certificate_is_the_service_s_and_its_authority_s(tmp_path: Path) -> None:
    made = certificates.for_service("cotenant-webhook", "gpus")
    for name, text in (("crt", made.certificate), ("key", made.key)):
        (tmp_path / name).write_bytes(base64.b64decode(text))
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    client = ssl.create_default_context(cadata=base64.b64decode(made.authority).decode())
    assert handshake(server, client, "cotenant-webhook.gpus.svc") is None
    assert "not valid for 'elsewhere.gpus.svc'" in str(handshake(server, client, "elsewhere.gpus.svc"))


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> Exception | None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(5):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return error
    return None


def test_a_new_certificate_replaces_the_webhook_s_pods(cotenant: Run) -> None:
    """Applied over an earlier one: kubectl replaces pods where the template differs, and the webhook reads its
    certificate once."""
    templates, certificate = [], ""
    for _ in range(2):
        found = {
            one["kind"]: one for one in printed(cotenant) if one["metadata"]["name"] == manifests.WEBHOOK
        }
        certificate = found["Secret"]["data"]["tls.crt"]
        templates.append(found["Deployment"]["spec"]["template"]["metadata"]["annotations"])
    assert templates[0] != templates[1]
    digest = hashlib.sha256(certificate.encode()).hexdigest()  # as the chart's sha256sum
    assert templates[1] == {"checksum/certificate": f"sha256:{digest}"}


def test_uninstall_leaves_nothing_of_ours_and_everything_of_others() -> None:
    cluster = FakeCluster()
    settings = manifests.Settings(namespace="gpus", placer="muxflow")
    for one in manifests.everything(settings):
        cluster.put(one)
    for kind in ("ResourceSlice", "ResourceClaimTemplate"):
        cluster.put(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": "ours", "namespace": "team", "labels": dict(names.LABELS)},
            }
        )
    other = cluster.put(
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.nvidia.com"}}
    )
    removed = list(removal.remove(cluster, "gpus"))
    assert list(cluster.objects.values()) == [other]
    cluster.put(allocated_claim(pods=("server", "trainer")))
    assert removal.users(cluster) == ["team/server", "team/trainer"]
    assert removed[0] == ("MutatingWebhookConfiguration", "cotenant-webhook")
