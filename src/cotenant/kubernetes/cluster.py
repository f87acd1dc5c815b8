"""The API server, as little of it as is needed: objects are dictionaries, as their manifests are."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from typing import Any, Protocol

from cotenant.errors import Problem

Object = dict[str, Any]
FIELD_OWNER = "cotenant"
EXTRA_HINT = "install the extra: pip install 'cotenant[kubernetes]'"
CONFLICT, NOT_FOUND = 409, 404
ALL = "ALL"  # the first change of those that `follow` yields; the others have Kubernetes' words
FOLLOW_SECONDS = 240  # after which the API server ends a watch
# A claim's parameters may be nested 5,000 deep, and one such claim would keep us from reading any: the client needs two
# calls for each level. No deeper, since a thread's stack may have 2 MiB only.
DEEPEST_CALLS = 12_000
ANSWER_SECONDS = 10  # for one attempt; the client makes four, and kubelet waits 45 s for a claim


class Cluster(Protocol):
    def get(self, version: str, kind: str, name: str, namespace: str = "") -> Object | None:
        """None: there is none of that name."""

    def create(self, made: Object) -> bool:
        """False: there is one of that name."""

    def apply(self, made: Object) -> None:
        """Creates it, or makes it so."""

    def follow(
        self, version: str, kind: str, fields: str = "", labels: str = ""
    ) -> Iterator[tuple[str, list[Object]]]:
        """Those that the selectors name, as ALL, and then each that is ADDED, MODIFIED or DELETED, until the
        connection ends."""

    def patch(self, version: str, kind: str, name: str, namespace: str, change: Object) -> bool:
        """Merges the change, lists as their types say (a strategic merge patch); False: there is none of that name, or
        it is not the one with the UID that `change` says."""

    def patch_status(self, version: str, kind: str, name: str, namespace: str, change: Object) -> bool:
        """The same with its status."""

    def delete(self, version: str, kind: str, name: str, namespace: str = "", unchanged: str = "") -> bool:
        """False: there was none, or it is no more of the resourceVersion `unchanged`."""

    def all_of(self, version: str, kind: str) -> list[Object]:
        """In all namespaces."""

    def names_of(self, version: str, kind: str, labels: str) -> list[tuple[str, str]]:
        """(namespace, name) of all that have these labels, in all namespaces."""


class Unreachable(Problem):
    """The API server did not answer, or refused."""


class ApiServer:
    """By the official client: the cluster around this pod, or the one that the kubeconfig names."""

    def __init__(self, kubeconfig: str | None = None) -> None:
        try:
            from kubernetes import client, config, dynamic
        except ImportError:
            raise Problem("the Kubernetes client is not installed", EXTRA_HINT) from None
        try:
            if kubeconfig:
                config.load_kube_config(kubeconfig)
            else:
                config.load_config()
        except Exception as error:
            raise Problem(
                f"no cluster is configured: {error}", "set KUBECONFIG, or give --kubeconfig FILE"
            ) from None

        sys.setrecursionlimit(max(DEEPEST_CALLS, sys.getrecursionlimit()))

        class Client(dynamic.DynamicClient):  # type: ignore[misc]
            def request(self, method: str, path: str, body: Any = None, **others: Any) -> Any:
                """Unless told otherwise, the library waits for an answer for ever."""
                return super().request(
                    method, path, body=body, **({"_request_timeout": ANSWER_SECONDS} | others)
                )

        # Not the client's own place, which all programs of all users share.
        self._folder = tempfile.TemporaryDirectory(prefix="cotenant-")
        with Explained():
            self._client = Client(client.ApiClient(), cache_file=f"{self._folder.name}/discovered.json")

    def get(self, version: str, kind: str, name: str, namespace: str = "") -> Object | None:
        with Explained(NOT_FOUND):
            found: Object = self._kind(version, kind).get(name=name, namespace=namespace or None).to_dict()
            return found
        return None

    def create(self, made: Object) -> bool:
        with Explained(CONFLICT):
            self._of(made).create(body=made, namespace=made["metadata"].get("namespace"))
            return True
        return False

    def apply(self, made: Object) -> None:
        metadata = made["metadata"]
        with Explained():
            self._of(made).server_side_apply(
                body=made,
                name=metadata["name"],
                namespace=metadata.get("namespace"),
                field_manager=FIELD_OWNER,
                force_conflicts=True,
            )

    def patch(self, version: str, kind: str, name: str, namespace: str, change: Object) -> bool:
        return self._patched(self._kind(version, kind), name, namespace, change)

    def patch_status(self, version: str, kind: str, name: str, namespace: str, change: Object) -> bool:
        return self._patched(self._kind(version, kind).status, name, namespace, change)

    def _patched(self, resource: Any, name: str, namespace: str, change: Object) -> bool:
        with Explained(NOT_FOUND, CONFLICT):
            resource.patch(
                name=name,
                namespace=namespace or None,
                body=change,
                content_type="application/strategic-merge-patch+json",
            )
            return True
        return False

    def delete(self, version: str, kind: str, name: str, namespace: str = "", unchanged: str = "") -> bool:
        options = {"preconditions": {"resourceVersion": unchanged}} if unchanged else None
        with Explained(NOT_FOUND, CONFLICT):
            self._kind(version, kind).delete(name=name, namespace=namespace or None, body=options)
            return True
        return False

    def follow(
        self, version: str, kind: str, fields: str = "", labels: str = ""
    ) -> Iterator[tuple[str, list[Object]]]:
        from kubernetes import watch

        chosen = {"field_selector": fields or None, "label_selector": labels or None}
        with Explained():
            resource = self._kind(version, kind)
            listed = resource.get(**chosen).to_dict()
            yield ALL, listed["items"]
            changes = watch.Watch().stream(
                resource.get,
                **chosen,
                resource_version=listed["metadata"]["resourceVersion"],
                serialize=False,
                timeout_seconds=FOLLOW_SECONDS,
                # A connection whose other end is gone says nothing.
                _request_timeout=(ANSWER_SECONDS, FOLLOW_SECONDS + ANSWER_SECONDS),
            )
            yield from ((change["type"], [change["raw_object"]]) for change in changes if change)

    def all_of(self, version: str, kind: str) -> list[Object]:
        with Explained():
            found: list[Object] = self._kind(version, kind).get().to_dict()["items"]
        return found

    def names_of(self, version: str, kind: str, labels: str) -> list[tuple[str, str]]:
        with Explained(NOT_FOUND):
            found = self._kind(version, kind).get(label_selector=labels).to_dict()["items"]
            return [(one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in found]
        return []

    def _of(self, made: Object) -> Any:
        return self._kind(made["apiVersion"], made["kind"])

    def _kind(self, version: str, kind: str) -> Any:
        from kubernetes.dynamic.exceptions import ResourceNotFoundError

        try:
            return self._client.resources.get(api_version=version, kind=kind)
        except ResourceNotFoundError:
            raise Unreachable(
                f"this cluster has no {kind} of {version}", "Cotenant's claims need Kubernetes 1.36 or later"
            ) from None


class Explained:
    """The client's errors as Problems; one with an expected status ends the block instead."""

    def __init__(self, *expected: int) -> None:
        self._expected = expected

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception) or isinstance(error, Problem):
            return False
        status = getattr(error, "status", None)
        if status in self._expected:
            return True
        message = reason_of(error)
        raise Unreachable(
            f"the API server refused: {message}" if status else f"no API server: {message}"
        ) from None


def reason_of(error: Exception) -> str:
    """The API server says why in the body."""
    import json

    try:
        return str(json.loads(getattr(error, "body", "") or "")["message"])
    except (ValueError, KeyError, TypeError):
        return str(error).splitlines()[0] if str(error) else type(error).__name__
