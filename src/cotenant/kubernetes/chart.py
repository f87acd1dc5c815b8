"""The Helm chart: the objects of manifests.py with Helm's expressions for what a user chooses.

    python -m cotenant.kubernetes.chart deploy/kubernetes/chart

writes it; a test holds the chart in the tree equal to what this writes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from cotenant import __version__
from cotenant.kubernetes import manifests, names

VALUES = {"image": f"cotenant:{__version__}", "policy": "guard"}
EXPRESSIONS = manifests.Settings(
    namespace="{{ .Release.Namespace }}",
    image="{{ .Values.image }}",
    policy="{{ .Values.policy }}",
)


def files() -> dict[str, str]:
    """The chart's files by their paths. Helm makes the namespace itself: `--create-namespace`."""
    return {
        "Chart.yaml": text(
            {
                "apiVersion": "v2",
                "name": "cotenant",
                "description": "Several jobs share one GPU, and the job that matters does not notice.",
                "type": "application",
                "version": __version__,
                "appVersion": __version__,
                "kubeVersion": ">=1.36.0-0",
            }
        ),
        "values.yaml": text(VALUES),
        "templates/classes.yaml": documents([*manifests.device_classes(), *manifests.priority_classes()]),
        "templates/agent.yaml": documents(
            [*manifests.agent_rights(EXPRESSIONS), *manifests.agent(EXPRESSIONS)]
        ),
        "templates/NOTES.txt": "GPUs are claimed by the DeviceClasses "
        + ", ".join(names.DEVICE_CLASSES)
        + ".\n",
    }


def text(value: Any) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, width=1000))


def documents(objects: list[manifests.Object]) -> str:
    return "---\n".join(map(text, objects))


def write(folder: Path) -> None:
    for name, content in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
