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
from cotenant.kubernetes.webhook import matching

VALUES = {"image": f"cotenant:{__version__}", "policy": "guard", "placer": ""}
EXPRESSIONS = manifests.Settings(
    namespace="{{ .Release.Namespace }}",
    image="{{ .Values.image }}",
    policy="{{ .Values.policy }}",
    placer="{{ .Values.placer }}",
    certificate="{{ $certificate }}",
    key="{{ $key }}",
    authority="{{ $authority }}",
    digest="{{ $digest }}",
)
# An upgrade keeps the certificate that is there, as a second `install` does: the webhook's pods have it open.
WEBHOOK_HEAD = f"""\
{{{{- $host := printf "{manifests.WEBHOOK}.%s.svc" .Release.Namespace }}}}
{{{{- $secret := lookup "v1" "Secret" .Release.Namespace "{manifests.WEBHOOK}" }}}}
{{{{- $configuration := lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" \
"{manifests.WEBHOOK}" }}}}
{{{{- $made := genCA "cotenant-webhook-authority" 3650 }}}}
{{{{- $signed := genSignedCert $host nil (list $host) 3650 $made }}}}
{{{{- $certificate := $signed.Cert | b64enc }}}}
{{{{- $key := $signed.Key | b64enc }}}}
{{{{- $authority := $made.Cert | b64enc }}}}
{{{{- if and $secret $configuration }}}}
{{{{- $certificate = index $secret.data "tls.crt" }}}}
{{{{- $key = index $secret.data "tls.key" }}}}
{{{{- $authority = (index $configuration.webhooks 0).clientConfig.caBundle }}}}
{{{{- end }}}}
{{{{- $digest := printf "sha256:%s" ($certificate | sha256sum) }}}}
"""


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
        "templates/placer.yaml": only_with_placer(documents(manifests.placer(EXPRESSIONS))),
        "templates/webhook.yaml": WEBHOOK_HEAD
        + for_placer(documents([*manifests.webhook_rights(EXPRESSIONS), *manifests.webhook(EXPRESSIONS)])),
        "templates/NOTES.txt": "GPUs are claimed by the DeviceClasses "
        + ", ".join(names.DEVICE_CLASSES)
        + ".\n",
    }


def only_with_placer(lines: str) -> str:
    return f"{{{{- if .Values.placer }}}}\n{lines}{{{{- end }}}}\n"


def for_placer(webhook: str) -> str:
    """What the webhook has more where there is a placer: an argument, the right to look at templates, and all pods
    with claims."""
    more = ("        - --placer\n", "  verbs:\n  - create\n  - get\n", matching.WITH_CLAIMS)
    for lines in more:
        assert webhook.count(lines) == 1, lines
    webhook = webhook.replace(more[0], only_with_placer(more[0]))
    webhook = webhook.replace(more[2], f"{{{{ if .Values.placer }}}}{more[2]}{{{{ end }}}}")
    return webhook.replace(more[1], "  verbs:\n  - create\n" + only_with_placer("  - get\n"))


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
