"""An API server of dictionaries, for tests of what talks to one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from cotenant.kubernetes.cluster import ALL, Unreachable

Object = dict[str, Any]
Key = tuple[str, str, str, str]


class FakeCluster:
    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.applied = 0
        self.is_away = False
        self.is_answering = threading.Event()  # else each request waits: the API server is slow
        self.is_answering.set()
        self.refused = 0  # requests while it was away

    def put(self, made: Object) -> Object:
        self.objects[self._key(made)] = made
        return made

    def _key(self, made: Object) -> Key:
        metadata = made["metadata"]
        return made["apiVersion"], made["kind"], metadata.get("namespace", ""), metadata["name"]

    def _answer(self) -> None:
        self.is_answering.wait()
        if self.is_away:
            self.refused += 1
            raise Unreachable("no API server")

    def get(self, version: str, kind: str, name: str, namespace: str = "") -> Object | None:
        self._answer()
        return deepcopy(self.objects.get((version, kind, namespace, name)))

    def create(self, made: Object) -> bool:
        self._answer()
        if self._key(made) in self.objects:
            return False
        self.put(deepcopy(made))
        return True

    def apply(self, made: Object) -> None:
        self._answer()
        self.applied += 1
        self.put(deepcopy(made))

    def follow(
        self, version: str, kind: str, fields: str = "", labels: str = ""
    ) -> Iterator[tuple[str, list[Object]]]:
        """All, or those of a node; the connection ends at once."""
        node = fields.removeprefix("spec.nodeName=")
        found = self.all_of(version, kind)
        yield ALL, [one for one in found if not node or one["spec"].get("nodeName") == node]

    def patch(self, version: str, kind: str, name: str, namespace: str, change: Object) -> bool:
        self._answer()
        made = self.objects.get((version, kind, namespace, name))
        wanted = change.get("metadata", {}).get("uid")
        if made is None or (wanted and wanted != made["metadata"].get("uid")):
            return False
        merge(made, change)
        return True

    def patch_status(self, version: str, kind: str, name: str, namespace: str, change: Object) -> bool:
        return self.patch(version, kind, name, namespace, change)

    def delete(self, version: str, kind: str, name: str, namespace: str = "", unchanged: str = "") -> bool:
        self._answer()
        made = self.objects.get((version, kind, namespace, name))
        if made is None or (unchanged and unchanged != made["metadata"].get("resourceVersion")):
            return False
        del self.objects[version, kind, namespace, name]
        return True

    def all_of(self, version: str, kind: str) -> list[Object]:
        self._answer()
        return [deepcopy(made) for key, made in self.objects.items() if key[:2] == (version, kind)]

    def names_of(self, version: str, kind: str, labels: str) -> list[tuple[str, str]]:
        self._answer()
        wanted = dict(label.split("=") for label in labels.split(","))
        return [
            (namespace, name)
            for (its_version, its_kind, namespace, name), made in self.objects.items()
            if (its_version, its_kind) == (version, kind)
            and wanted.items() <= (made["metadata"].get("labels") or {}).items()
        ]

    def events(self) -> list[tuple[str, str, str, int]]:
        """Of whom, the reason, the message, how often."""
        return [
            (made["involvedObject"]["name"], made["reason"], made["message"], made["count"])
            for made in self.all_of("v1", "Event")
        ]


def running_pod(
    name: str = "pod",
    claim: str = "claim",
    container_id: str = "c" * 64,
    conditions: tuple[Object, ...] = (),
    **annotations: str,
) -> Object:
    """As kubelet leaves it: one container, `main`, that uses the claim."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-of-{name}",
            "annotations": {
                f"cotenant.dev/{word.replace('_', '-')}": said for word, said in annotations.items()
            },
        },
        "spec": {
            "nodeName": "node",
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
            "containers": [{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}],
        },
        "status": {
            "conditions": list(conditions),
            "containerStatuses": [{"name": "main", "containerID": f"containerd://{container_id}"}],
        },
    }


def merge(made: Object, change: Object) -> None:
    """As a strategic merge patch: dictionaries are merged, entries of lists are deleted by their names, all else is
    replaced."""
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(made.get(key), dict):
            merge(made[key], value)
        elif isinstance(value, list) and all(one.get("$patch") == "delete" for one in value):
            gone = {one["name"] for one in value}
            made[key] = [one for one in made.get(key) or () if one["name"] not in gone]
        else:
            made[key] = value


def allocated_claim(
    name: str = "claim",
    uid: str = "8f8c1b2e-3f3a-4c57-9c3c-1d6a4fb0a111",
    tenant_class: str = "production",
    device: str = "gpu-0",
    pods: tuple[str, ...] = ("pod",),
    parameters: Object | None = None,
    **consumed: str,
) -> Object:
    """As the scheduler leaves it."""
    config: list[Object] = [
        {
            "source": "FromClass",
            "requests": ["gpu"],
            "opaque": {
                "driver": "cotenant.dev",
                "parameters": {
                    "apiVersion": "cotenant.dev/v1",
                    "kind": "TenantClass",
                    "class": tenant_class,
                },
            },
        }
    ]
    if parameters is not None:
        config.append({"source": "FromClaim", "opaque": {"driver": "cotenant.dev", "parameters": parameters}})
    result = {
        "request": "gpu",
        "driver": "cotenant.dev",
        "pool": "node",
        "device": device,
        "shareID": "5a5a0000-0000-4000-8000-000000000000",
        "consumedCapacity": {"memory": "1Gi", "tenants": "1"} | consumed,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "team", "uid": uid},
        "status": {
            "allocation": {"devices": {"results": [result], "config": config}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-of-{pod}"} for pod in pods],
        },
    }
