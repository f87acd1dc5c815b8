"""What `install` prints and what the chart renders, taken by kubectl, Helm and the API server as they are.
`python tests/kubernetes/build.py helm` makes Helm, where this machine has none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cotenant.kubernetes import manifests, names, removal
from tests.kubernetes import build
from tests.kubernetes.real.control_plane import ControlPlane, binaries, until

CHART = Path(__file__).parents[3] / "deploy" / "kubernetes" / "chart"
NAMESPACE = "by-helm"
LABEL = "app.kubernetes.io/name=cotenant"
VALUES = [[], ["--set", "placer=muxflow", "--set", "policy=strict", "--set", "image=registry.example/c:1"]]


class Helm:
    def __init__(self, program: Path, plane: ControlPlane, home: Path) -> None:
        self.program, self.plane, self.home = program, plane, home

    def __call__(self, *words: str) -> str:
        places = {f"HELM_{kind}_HOME": str(self.home / kind) for kind in ("CACHE", "CONFIG", "DATA")}
        return output_of([str(self.program), *words], places | {"KUBECONFIG": str(self.plane.kubeconfig)})


def output_of(command: list[str], environment: dict[str, str], given: str = "") -> str:
    done = subprocess.run(
        command, env=os.environ | environment, input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def helm(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Helm]:
    folder = binaries("kubectl")
    found = shutil.which("helm")
    if not found and build.missing(folder, ["helm"]):
        pytest.skip("there is no helm: python tests/kubernetes/build.py helm")
    # Helm does not take over what another test has installed.
    list(removal.remove(control_plane.cluster, names.NAMESPACE))
    try:
        yield Helm(Path(found) if found else build.place(folder, "helm"), control_plane, tmp_path)
    finally:
        list(removal.remove(control_plane.cluster, NAMESPACE))


def left(plane: ControlPlane) -> list[tuple[str, str]]:
    kinds = {
        (one["apiVersion"], one["kind"]) for one in manifests.everything(manifests.Settings(placer="muxflow"))
    }
    return [
        (kind, name)
        for version, kind in sorted(kinds - {("v1", "Namespace")})
        for _, name in plane.cluster.names_of(version, kind, LABEL)
    ]


def check_taken(plane: ControlPlane, printed: str) -> None:
    kubectl = str(build.place(build.default_folder(), "kubectl"))
    command = [kubectl, f"--kubeconfig={plane.kubeconfig}", "apply", "--dry-run=server", "-f", "-"]
    taken = output_of(command, {}, printed).splitlines()
    wanted = [one for one in yaml.safe_load_all(printed) if one]
    assert len(taken) == len(wanted) and all(line.endswith("(server dry run)") for line in taken), taken


@pytest.mark.parametrize("options", [[], ["--placer", "muxflow"]], ids=["plain", "placer"])
def test_the_api_server_takes_all_that_install_prints(
    control_plane: ControlPlane, options: list[str]
) -> None:
    binaries("kubectl")
    command = [
        sys.executable,
        "-m",
        "cotenant",
        "kubernetes",
        "install",
        "--dry-run",
        "--namespace",
        "default",
    ]
    check_taken(control_plane, output_of([*command, *options], {}))


def test_lint_finds_nothing(helm: Helm) -> None:
    said = helm("lint", "--strict", "--kube-version", build.KUBERNETES, str(CHART))
    assert "0 chart(s) failed" in said and "WARNING" not in said and "ERROR" not in said, said


@pytest.mark.parametrize("values", VALUES, ids=["plain", "placer"])
def test_the_api_server_takes_all_that_the_chart_renders(
    helm: Helm, control_plane: ControlPlane, values: list[str]
) -> None:
    made = helm("template", "cotenant", str(CHART), "--namespace", "default", "--validate", *values)
    objects = [one for one in yaml.safe_load_all(made) if one]
    assert ("Deployment", "cotenant-placer") in {
        (one["kind"], one["metadata"]["name"]) for one in objects
    } or (not values)
    check_taken(control_plane, made)


def test_what_helm_installs_and_upgrades_it_removes(helm: Helm, control_plane: ControlPlane) -> None:
    where = ["cotenant", "--namespace", NAMESPACE]
    helm("install", *where, "--create-namespace", str(CHART))
    secret = control_plane.cluster.get("v1", "Secret", manifests.WEBHOOK, NAMESPACE)
    assert secret is not None and "Deployment" in {kind for kind, _ in left(control_plane)}
    helm("upgrade", *where, str(CHART), *VALUES[1])
    assert control_plane.cluster.get("apps/v1", "Deployment", "cotenant-placer", NAMESPACE)
    after = control_plane.cluster.get("v1", "Secret", manifests.WEBHOOK, NAMESPACE)
    assert after is not None and after["data"] == secret["data"], "an upgrade keeps the certificate"
    helm("uninstall", *where)
    until(lambda: not left(control_plane), "something is left")
