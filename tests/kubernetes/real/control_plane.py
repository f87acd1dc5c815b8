"""A real control plane on this machine: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, each a
process of its own on ports of 127.0.0.1, in one folder. tests/kubernetes/build.py makes the programs."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from cotenant.kubernetes import names
from cotenant.kubernetes.cluster import NOT_FOUND, ApiServer, Explained
from tests.kubernetes import build
from tests.kubernetes.real import network
from tests.ports import free_port

PROGRAMS = ["etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager"]
PATIENCE_SECONDS = 300.0  # on a busy machine everything comes late, and nothing is wrong
TOKEN = "administrator-of-the-tests"
ACCOUNTS = ("agent", "webhook", "placer")


def binaries(*names: str) -> Path:
    """The folder of the programs; the test is skipped where they are not."""
    if "COTENANT_TEST_KUBERNETES" not in os.environ:
        pytest.skip("of a real cluster: make test-kubernetes")
    folder = build.default_folder()
    if absent := build.missing(folder, list(names)):
        pytest.skip(f"{', '.join(absent)} of Kubernetes {build.KUBERNETES} not built: make test-kubernetes")
    return folder


def until(found: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """What is found in the end."""
    deadline = time.monotonic() + seconds
    while True:
        if result := found():
            return result
        if time.monotonic() > deadline:
            pytest.fail(f"after {seconds:.0f} s: {what}")
        time.sleep(0.2)


def appears(found: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> bool:
    deadline = time.monotonic() + seconds
    while not found():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


class ControlPlane:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = binaries(*PROGRAMS)
        self._running: list[subprocess.Popen[bytes]] = []
        self.port = free_port()
        self.address = f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        etcd, peers = free_port(), free_port()
        self.run(
            "etcd",
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
            "--unsafe-no-fsync",
        )
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = serialization.Encoding.PEM
        account_key = self.folder / "accounts.key"
        account_key.write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f'{TOKEN},administrator,administrator,"system:masters"\n')
        self.run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={self.folder}/certificates",
            f"--service-account-key-file={account_key}",
            f"--service-account-signing-key-file={account_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={network.SERVICES}",
            "--enable-aggregator-routing",  # to webhooks by their endpoints: there is no kube-proxy
            f"--audit-policy-file={self.audit_policy()}",
            f"--audit-log-path={self.audit_log}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=Node,RBAC",
            "--endpoint-reconciler-type=none",
            "--allow-privileged",
            "--kubelet-preferred-address-types=InternalIP",
        )
        self.kubeconfig = self.kubeconfig_for(TOKEN, "administrator")
        until(self.is_ready, "kube-apiserver is not ready")
        self.run(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={account_key}",
            f"--secure-port={free_port()}",
            f"--cert-dir={self.folder}/controller-manager",
            f"--root-ca-file={self.folder}/certificates/apiserver.crt",
            # Most nodes of these tests have no kubelet that says it is alive.
            "--node-monitor-grace-period=24h",
        )
        self.run(
            "kube-scheduler",
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            f"--secure-port={free_port()}",
            f"--cert-dir={self.folder}/scheduler",
        )
        self.cluster = ApiServer(str(self.kubeconfig))
        until(self.has_default_account, "the namespace default has no service account")

    @property
    def audit_log(self) -> Path:
        return self.folder / "audit.log"

    def audit_policy(self) -> Path:
        """What the accounts of an installation do is written down."""
        accounts = [f"system:serviceaccount:{names.NAMESPACE}:cotenant-{one}" for one in ACCOUNTS]
        rules = [
            {"level": "Metadata", "users": accounts, "omitStages": ["RequestReceived"]},
            {"level": "None"},
        ]
        path = self.folder / "audit.yaml"
        made = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}
        path.write_text(yaml.safe_dump(made))
        return path

    def run(self, program: str, *arguments: str) -> None:
        log = (self.folder / f"{program}.log").open("wb")
        self._running.append(
            subprocess.Popen(
                [str(build.place(self.programs, program)), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,
            )
        )

    def stop(self) -> None:
        for process in reversed(self._running):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._running):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kubeconfig_for(self, token: str, name: str) -> Path:
        path = self.folder / f"{name}.kubeconfig"
        made = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": self.address,
                        "certificate-authority": f"{self.folder}/certificates/apiserver.crt",
                    },
                }
            ],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(made))
        path.chmod(0o600)
        return path

    def is_ready(self) -> bool:
        import ssl
        import urllib.request

        for process in self._running:
            assert process.poll() is None, f"{process.args!r} ended: see {self.folder}"
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        asked = urllib.request.Request(f"{self.address}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
        try:
            with urllib.request.urlopen(asked, context=trusting, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def has_default_account(self) -> bool:
        return self.cluster.get("v1", "ServiceAccount", "default", "default") is not None

    def fake_node(self, name: str) -> None:
        """A node without a kubelet: pods are bound to it, and that is all."""
        self.cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            }
        )
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "500"}
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        nodes = self.cluster._kind("v1", "Node")
        nodes.status.patch(name=name, body={"status": status}, content_type="application/merge-patch+json")
        # The API server taints a new node until a controller finds it ready.
        nodes.patch(name=name, body={"spec": {"taints": None}}, content_type="application/merge-patch+json")

    def kill(self, version: str, kind: str, name: str, namespace: str) -> None:
        """Without a kubelet nobody confirms that a pod has ended."""
        options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        with Explained(NOT_FOUND):
            self.cluster._kind(version, kind).delete(name=name, namespace=namespace, body=options)

    def token_of(self, account: str, namespace: str, pod: str) -> str:
        """As kubelet gives it to a pod."""
        found = self.pod(pod, namespace)
        reference = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": found["metadata"]["uid"]}
        accounts = self.cluster._kind("v1", "ServiceAccount")
        made = accounts.token.create(
            name=account,
            namespace=namespace,
            body={
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"boundObjectRef": reference},
            },
        )
        return str(made.to_dict()["status"]["token"])

    def pod(self, name: str, namespace: str = "default") -> dict[str, Any]:
        found = self.cluster.get("v1", "Pod", name, namespace)
        assert found is not None, f"there is no pod {name}"
        return found

    def events_of(self, name: str) -> list[str]:
        return [
            event["message"]
            for event in self.cluster.all_of("v1", "Event")
            if event["involvedObject"].get("name") == name
        ]
