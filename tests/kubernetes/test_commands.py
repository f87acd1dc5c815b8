"""The commands of a cluster's parts: what each is made of, with stand-ins for what it would serve."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed")
pytest.importorskip("kubernetes", reason="the Kubernetes client is not installed")

from cotenant import segment
from cotenant.cli import main
from cotenant.commands import kubernetes as command
from cotenant.errors import Problem
from cotenant.kubernetes import certificates, cluster, removal
from cotenant.kubernetes.inventory import Device
from cotenant.kubernetes.node import agent as agents
from cotenant.kubernetes.node import device_plugin, gpus, host
from cotenant.kubernetes.placer import placer, release, sight
from cotenant.kubernetes.webhook import server
from tests.kubernetes.fake_cluster import FakeCluster

GIB = 1 << 30
GPU = Device("gpu-0", "GPU-0", "NVIDIA H200", 141 * GIB)
LOST = Device("gpu-1", "GPU-1", "NVIDIA H200", 141 * GIB)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster()
    made.configured = []  # type: ignore[attr-defined]

    def connect(kubeconfig: str | None) -> FakeCluster:
        made.configured.append(kubeconfig)  # type: ignore[attr-defined]
        return made

    monkeypatch.setattr(cluster, "ApiServer", connect)
    return made


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A node with two GPUs, of which one has no place for limits; what was asked of it."""
    asked: list[tuple[Any, ...]] = []

    def note(name: str, answer: Any) -> Any:
        def call(*given: Any) -> Any:
            asked.append((name, *given))
            return answer

        return call

    monkeypatch.setattr(gpus, "found", lambda environment: ([GPU, LOST], True))
    monkeypatch.setattr(gpus, "are_well", note("well", {"gpu-0": ""}))
    monkeypatch.setattr(host, "make_ready", note("ready", SimpleNamespace(softgpu=None)))
    monkeypatch.setattr(host, "enforceable", lambda shared, devices: devices[:1])
    monkeypatch.setattr(host, "tidy", note("tidy", None))
    return asked


def test_an_agent_offers_what_can_be_limited(
    there: FakeCluster,
    node: list[tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made: list[Any] = []

    class Agent:
        def __init__(self, *given: Any) -> None:
            made.append(given)

        def run(self, look: Any, tidy: Any, until: threading.Event) -> None:
            assert look() == {"gpu-0": ""} and not until.is_set()
            tidy()
            signal.raise_signal(signal.SIGTERM)
            assert until.is_set()

    monkeypatch.setattr(agents, "Agent", Agent)
    folders = {name: tmp_path / name for name in ("kubelet", "cdi", "state", "segment")}
    options = [word for name, path in folders.items() for word in (f"--{name}", str(path))]
    words = [
        "agent",
        "--node",
        "here",
        "--overflow",
        "2G",
        "--order",
        "pack",
        "--kubeconfig",
        "cfg",
        *options,
    ]
    assert main(["kubernetes", *words]) == 0
    ((name, on, _, devices, places, size, order, _, _),) = made
    assert (name, on, devices, size, order) == ("here", there, [GPU], 2 * GIB, "pack")
    assert (places.plugins, places.registry) == (
        tmp_path / "kubelet/plugins",
        tmp_path / "kubelet/plugins_registry",
    )
    assert "1 GPUs on here: gpu-0" in capsys.readouterr().err
    assert there.configured == ["cfg"]  # type: ignore[attr-defined]
    ready, well, tidied = node
    assert ready == ("ready", tmp_path / "state", tmp_path / "segment", [GPU, LOST], True, os.environ)
    assert well[:1] + well[2:] == ("well", [GPU]) and tidied == ("tidy", tmp_path / "segment")


def test_a_device_plugin_has_a_resource_for_each_class(
    node: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[Any] = []

    class Plugins:
        def __init__(self, folder: Path, plugins: list[Any]) -> None:
            made.append((folder, [(one.resource, list(one.devices)) for one in plugins]))

        def run(self, state: Any, look: Any, tidy: Any, until: threading.Event) -> None:
            look()
            tidy()
            made.append((state, until.is_set()))

    monkeypatch.setattr(device_plugin, "Plugins", Plugins)
    words = [
        "--split",
        "production=60,standard=40",
        "--kubelet",
        str(tmp_path),
        "--state",
        str(tmp_path / "state"),
    ]
    assert main(["kubernetes", "device-plugin", *words, "--segment", str(tmp_path / "segment")]) == 0
    assert made[0] == (
        tmp_path / "device-plugins",
        [("cotenant.dev/production", ["gpu-0"]), ("cotenant.dev/standard", ["gpu-0"])],
    )
    assert made[1][1] is False and [one[0] for one in node] == ["ready", "well", "tidy"]
    main(["kubernetes", "device-plugin", *words])
    assert node[3][2] == segment.SHARED  # unless another is named


def test_the_webhook_serves_with_its_certificates(
    there: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    served: list[Any] = []
    ended = threading.Event()

    def serve(webhook: Any, certificates: Path, port: int, ready: Any) -> None:
        served.append((webhook._cluster, webhook._has_placer, certificates, port))
        ready(SimpleNamespace(shutdown=ended.set))
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(server, "serve", serve)
    words = ["kubernetes", "webhook", "--certificates", str(tmp_path), "--port", "7443"]
    assert main([*words, "--placer"]) == 0
    assert ended.wait(30)
    assert main(words) == 0
    assert served == [(there, True, tmp_path, 7443), (there, False, tmp_path, 7443)]


def test_the_placer_places_by_its_policy_or_releases_all(
    there: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[Any] = []
    seen = SimpleNamespace(all_of="all", changed="changed")

    class Placer:
        def __init__(self, on: Any, all_of: Any, policy: Any, interference: Any) -> None:
            made.append((on, all_of, policy.name))

        def run(self, changed: Any, until: threading.Event) -> None:
            made.append((changed, until.is_set()))

    monkeypatch.setattr(placer, "Placer", Placer)
    monkeypatch.setattr(sight, "Sight", lambda on, until: seen)
    left = 0

    def release_all(on: FakeCluster) -> int:
        made.append(("released", on))
        return left

    monkeypatch.setattr(release, "release_all", release_all)
    assert main(["kubernetes", "placer", "--policy", "iadeep"]) == 0
    assert made == [(there, "all", "iadeep"), ("changed", False)]
    assert "placing pods by iadeep" in capsys.readouterr().err
    assert main(["kubernetes", "placer", "--release"]) == 0
    assert made[2:] == [("released", there)]
    left = 2
    capsys.readouterr()
    assert main(["kubernetes", "placer", "--release"]) == 1
    assert "2 pods still wait for the placer" in capsys.readouterr().err


def test_install_applies_all_in_order_and_uninstall_names_who_is_left(
    there: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cryptography", reason="cryptography is not installed")
    applied: list[str] = []
    monkeypatch.setattr(there, "apply", lambda made: applied.append(made["kind"]))
    assert main(["kubernetes", "install", "--namespace", "gpu-sharing"]) == 0
    assert applied[0] == "Namespace" and applied[-1] == "MutatingWebhookConfiguration"
    assert "Namespace gpu-sharing\n" in capsys.readouterr().err
    monkeypatch.setattr(removal, "remove", lambda on, namespace: iter([("Pod", namespace)]))
    monkeypatch.setattr(removal, "users", lambda on: [])
    assert main(["kubernetes", "uninstall", "--namespace", "gpu-sharing"]) == 0
    assert capsys.readouterr().err == "Pod gpu-sharing removed\n"
    names = [f"team/{number}" for number in range(command.MOST_NAMED + 1)]
    monkeypatch.setattr(removal, "users", lambda on: names)
    main(["kubernetes", "uninstall"])
    told = capsys.readouterr().err
    assert f"these pods still have claims: {', '.join(names[:-1])}, ..." in told and names[-1] not in told
    assert main(["kubernetes", "install", "--policy", "gaurd"]) == 2
    assert main(["kubernetes", "install", "--placer", "muxflo"]) == 2


def test_a_second_install_keeps_a_certificate_that_is_valid(there: FakeCluster) -> None:
    pytest.importorskip("cryptography", reason="cryptography is not installed")
    version = "admissionregistration.k8s.io/v1"

    def installed(namespace: str = "gpus") -> tuple[Any, ...]:
        assert main(["kubernetes", "install", "--namespace", namespace]) == 0
        secret = there.get("v1", "Secret", "cotenant-webhook", namespace)
        deployment = there.get("apps/v1", "Deployment", "cotenant-webhook", namespace)
        hook = there.get(version, "MutatingWebhookConfiguration", "cotenant-webhook")
        assert secret and deployment and hook
        return secret["data"], deployment["spec"], hook["webhooks"][0]["clientConfig"]["caBundle"]

    def parts() -> tuple[Any, Any]:
        hook = there.objects[version, "MutatingWebhookConfiguration", "", "cotenant-webhook"]
        return there.objects["v1", "Secret", "gpus", "cotenant-webhook"]["data"], hook["webhooks"][0][
            "clientConfig"
        ]

    first = installed()
    assert installed() == first
    for number in range(5):
        before = installed()
        data, client = parts()
        match number:
            case 0:
                data["tls.crt"] = ""
            case 1:
                data["tls.key"] = data["tls.crt"]
            case 2:
                del data["tls.key"]
            case 3:
                client["caBundle"] = data["tls.crt"]  # which has signed nothing
            case 4:
                del client["caBundle"]
        after = installed()
        assert all(one != other for one, other in zip(before, after, strict=True))
        assert installed() == after
    data, _ = parts()
    secret = there.objects["v1", "Secret", "gpus", "cotenant-webhook"]
    there.put(secret | {"metadata": secret["metadata"] | {"namespace": "moved"}})
    assert installed("moved")[0] != data  # a certificate is for the service of its namespace


@pytest.mark.parametrize(("days", "is_kept"), [(91, True), (89, False)])
def test_a_certificate_that_ends_soon_is_made_anew(
    there: FakeCluster, monkeypatch: pytest.MonkeyPatch, days: int, is_kept: bool
) -> None:
    pytest.importorskip("cryptography", reason="cryptography is not installed")
    monkeypatch.setattr(certificates, "YEARS", days / 365)
    found = []
    for _ in range(2):
        assert main(["kubernetes", "install"]) == 0
        found.append(there.objects["v1", "Secret", "cotenant-system", "cotenant-webhook"]["data"])
    assert (found[0] == found[1]) is is_kept


def test_overflow_is_a_size_or_a_share_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1_000_000}.__getitem__)
    assert command.overflow_bytes("0") == 0 and command.overflow_bytes("3G") == 3 * GIB
    assert command.overflow_bytes("25%") == 1_024_000_000
    with pytest.raises(Problem):
        command.overflow_bytes("much")
