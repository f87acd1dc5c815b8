"""The messages that we declare are those that Kubernetes publishes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cotenant.kubernetes.node import protocol
from cotenant.kubernetes.node.protocol import Fields
from tests.kubernetes import build
from tests.kubernetes.real.control_plane import binaries

FIELD = re.compile(r"^\s*(repeated |optional )?(map<string, (\w+)>|\w+)\s+(\w+)\s*=\s*(\d+);", re.MULTILINE)


def published(package: str) -> dict[str, Fields]:
    binaries()
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    modules = subprocess.run(
        ["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True
    ).stdout.strip()
    file = Path(modules) / f"k8s.io/kubelet@{build.STAGING}" / "pkg" / "apis" / package / "api.proto"
    if not file.exists():
        pytest.skip(f"{file} is not there")
    text = re.sub(r"/\*.*?\*/", "", re.sub(r"//[^\n]*", "", file.read_text()), flags=re.DOTALL)
    return {
        name: {
            field: (int(number), f"map {value}" if value else f"{label}{kind}")
            for label, kind, value, field, number in FIELD.findall(body)
        }
        for name, body in re.findall(r"message (\w+) \{(.*?)\}", text, flags=re.DOTALL)
    }


@pytest.mark.parametrize(
    ("package", "declared"),
    [
        ("pluginregistration/v1", protocol.REGISTRATION),
        ("dra/v1", protocol.DRA),
        ("dra-health/v1alpha1", protocol.HEALTH),
        ("deviceplugin/v1beta1", protocol.DEVICE_PLUGIN),
    ],
)
def test_declared_messages_are_the_published_ones(package: str, declared: dict[str, Fields]) -> None:
    assert declared == published(package)
