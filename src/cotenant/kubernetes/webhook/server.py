"""The admission webhook: the API server posts each new pod here, and gets a patch, a refusal, or nothing."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable, Sequence
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cotenant.errors import Problem, narrate
from cotenant.kubernetes import names, quantities
from cotenant.kubernetes.cluster import Cluster
from cotenant.kubernetes.webhook.gating import hold
from cotenant.kubernetes.webhook.mutation import Mutation, mutate
from cotenant.kubernetes.webhook.wish import Refused

MOST_BYTES = 8 << 20


class Webhook:
    def __init__(self, cluster: Cluster, has_placer: bool = False) -> None:
        self._cluster = cluster
        self._has_placer = has_placer

    def review(self, review: dict[str, Any]) -> dict[str, Any]:
        """An AdmissionReview's answer."""
        request = review["request"]
        response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
        pod = request.get("object") or {}
        try:
            mutation = mutate(pod, request["namespace"], self.gpu_bytes, self._has_placer)
            if self._has_placer:
                mutation = self.held(mutation or Mutation(deepcopy(pod)), request["namespace"])
            if mutation:
                if not request.get("dryRun"):
                    for template in mutation.templates:
                        self._cluster.create(template)
                response["patchType"] = "JSONPatch"
                response["patch"] = base64.b64encode(json.dumps(patch(pod, mutation.pod)).encode()).decode()
                if mutation.warnings:
                    response["warnings"] = mutation.warnings
        except Refused as refused:
            response |= refusal(str(refused))
        except Problem as problem:
            response |= refusal(problem.message)
        return {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}

    def held(self, mutation: Mutation, namespace: str) -> Mutation | None:
        """None: nothing is asked of the placer, and nothing was mutated."""

        def find(name: str) -> dict[str, Any] | None:
            return self._cluster.get("resource.k8s.io/v1", "ResourceClaimTemplate", name, namespace)

        is_held = hold(mutation.pod, mutation.templates, mutation.words, find)
        return mutation if is_held or mutation.templates else None

    def gpu_bytes(self) -> Sequence[int]:
        """The memory of the cluster's GPUs, asked only for a pod that wants a part of one."""
        found = []
        for one in self._cluster.all_of("resource.k8s.io/v1", "ResourceSlice"):
            if one["spec"]["driver"] == names.DRIVER:
                for device in one["spec"].get("devices") or ():
                    found.append(quantities.whole(device["capacity"][names.MEMORY]["value"]))
        return found


def patch(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"op": "replace", "path": f"/{key}", "value": after[key]}
        for key in ("metadata", "spec")
        if after.get(key) != before.get(key)
    ]


def refusal(why: str) -> dict[str, Any]:
    status = {"message": f"Cotenant: {why}", "reason": "Forbidden", "code": 403}
    return {"allowed": False, "status": status}


def handler(webhook: Webhook) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_GET(self) -> None:
            self.answer(200 if self.path == "/healthz" else 404, b"ok\n")

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            if self.path.partition("?")[0] != "/mutate" or not 0 < length <= MOST_BYTES:
                self.close_connection = True
                self.answer(404 if length else 400, b"")
                return
            try:
                review = json.loads(self.rfile.read(length))
                answer = json.dumps(webhook.review(review)).encode()
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                self.answer(400, f"no AdmissionReview: {error}\n".encode())
                return
            self.answer(200, answer)

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    return Handler


def serve(
    webhook: Webhook, certificates: Path, port: int, ready: Callable[[ThreadingHTTPServer], None]
) -> None:
    """Until it is shut down. Raises Problem."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
    except (OSError, ssl.SSLError) as error:
        raise Problem(
            f"no certificate in {certificates}: {error}", "`cotenant kubernetes install` makes one"
        ) from None
    with ThreadingHTTPServer(("", port), handler(webhook)) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        narrate(f"the webhook listens on port {server.server_port}")
        ready(server)
        server.serve_forever()
