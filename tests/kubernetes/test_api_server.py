"""What is asked of the API server, by a client that only notes it, and what becomes of its answers."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("kubernetes", reason="the Kubernetes client is not installed")

from cotenant.cluster.placement import registry
from cotenant.errors import Problem
from cotenant.kubernetes import cluster
from cotenant.kubernetes.cluster import ApiServer, Unreachable, reason_of
from cotenant.kubernetes.mirror import Mirror
from cotenant.kubernetes.placer import placer
from cotenant.kubernetes.placer.placer import Placer
from cotenant.kubernetes.placer.sight import Sight
from cotenant.kubernetes.placer.slowdowns import Known
from tests.kubernetes.fake_cluster import FakeCluster

Call = tuple[str, str, dict[str, Any]]


class Refusal(Exception):
    def __init__(self, status: int | None, body: str = "") -> None:
        super().__init__("first line\nsecond line")
        self.status, self.body = status, body


class Resource:
    def __init__(self, name: str, calls: list[Call], answers: dict[str, Any]) -> None:
        self.name, self.calls, self.answers = name, calls, answers

    @property
    def status(self) -> Resource:
        return Resource(f"{self.name}/status", self.calls, self.answers)

    def __getattr__(self, verb: str) -> Any:
        def call(**given: Any) -> Any:
            self.calls.append((verb, self.name, given))
            answer = self.answers.get(verb, {"items": []})
            if isinstance(answer, Exception):
                raise answer
            return SimpleNamespace(to_dict=lambda: answer)

        return call


@pytest.fixture
def calls() -> list[Call]:
    return []


@pytest.fixture
def answers() -> dict[str, Any]:
    """By verb."""
    return {}


@pytest.fixture
def server(calls: list[Call], answers: dict[str, Any]) -> ApiServer:
    made = ApiServer.__new__(ApiServer)

    def get(api_version: str, kind: str) -> Resource:
        return Resource(f"{api_version} {kind}", calls, answers)

    client: Any = SimpleNamespace(resources=SimpleNamespace(get=get))
    made._client = client
    return made


def test_each_request_names_what_it_is_about(server: ApiServer, calls: list[Call]) -> None:
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team"}}
    cluster_wide = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    server.get("v1", "Pod", "p", "team")
    server.get("v1", "Node", "n")
    assert server.create(made) and server.create(cluster_wide)
    server.apply(made)
    assert server.patch("v1", "Pod", "p", "team", {"a": 1})
    assert server.patch_status("v1", "Node", "n", "", {"b": 2})
    assert server.delete("v1", "Pod", "p", "team") and server.delete("v1", "Node", "n", unchanged="17")
    strategic = {"content_type": "application/strategic-merge-patch+json"}
    assert calls == [
        ("get", "v1 Pod", {"name": "p", "namespace": "team"}),
        ("get", "v1 Node", {"name": "n", "namespace": None}),
        ("create", "v1 Pod", {"body": made, "namespace": "team"}),
        ("create", "v1 Node", {"body": cluster_wide, "namespace": None}),
        ("server_side_apply", "v1 Pod", {"body": made, "name": "p", "namespace": "team", "field_manager": "cotenant",
         "force_conflicts": True}),
        ("patch", "v1 Pod", {"name": "p", "namespace": "team", "body": {"a": 1}} | strategic),
        ("patch", "v1 Node/status", {"name": "n", "namespace": None, "body": {"b": 2}} | strategic),
        ("delete", "v1 Pod", {"name": "p", "namespace": "team", "body": None}),
        ("delete", "v1 Node", {"name": "n", "namespace": None,
         "body": {"preconditions": {"resourceVersion": "17"}}}),
    ]  # fmt: skip


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[str]:
    """Of an API server over HTTP, of which somebody's claim has parameters that are nested as deep as it takes them."""
    deep = '{"a":' + "[" * 5000 + "]" * 5000 + "}"
    opaque = '{"driver": "x.example", "parameters": ' + deep + "}"
    claim = '{"metadata": {"name": "deep"}, "spec": {"devices": {"config": [{"opaque": ' + opaque + "}]}}}"
    resource = {"name": "resourceclaims", "kind": "ResourceClaim", "namespaced": True, "verbs": ["list"]}
    version = {"groupVersion": "resource.k8s.io/v1", "version": "v1"}
    group = {"name": "resource.k8s.io", "versions": [version], "preferredVersion": version}
    answers = {
        "/version": '{"major": "1", "minor": "36"}',
        "/api": '{"kind": "APIVersions", "versions": []}',
        "/apis": json.dumps({"kind": "APIGroupList", "groups": [group]}),
        "/apis/resource.k8s.io/v1": json.dumps({"kind": "APIResourceList", "resources": [resource]}),
        "/apis/resource.k8s.io/v1/resourceclaims": '{"kind": "ResourceClaimList", "apiVersion": "resource.k8s.io/v1",'
        f' "items": [{claim}]}}',
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answers.get(self.path.partition("?")[0], "{}").encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as serving:
        threading.Thread(target=serving.serve_forever).start()
        config = {
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{serving.server_port}"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
            "current-context": "c",
        }
        (tmp_path / "config").write_text(json.dumps(config))
        yield str(tmp_path / "config")
        serving.shutdown()


def test_a_stranger_s_deep_parameters_keep_nobody_from_reading_claims(kubeconfig: str) -> None:
    before = sys.getrecursionlimit()
    try:
        [claim] = ApiServer(kubeconfig).all_of("resource.k8s.io/v1", "ResourceClaim")
    finally:
        sys.setrecursionlimit(before)
    [config] = claim["spec"]["devices"]["config"]
    assert config["opaque"]["parameters"]["a"]


def test_lists_are_read_whole(server: ApiServer, calls: list[Call], answers: dict[str, Any]) -> None:
    items = [{"metadata": {"name": "a", "namespace": "team"}}, {"metadata": {"name": "b"}}]
    answers["get"] = {"items": items}
    assert server.all_of("v1", "Pod") == items
    assert server.names_of("v1", "Pod", "x=y") == [("team", "a"), ("", "b")]
    assert calls == [("get", "v1 Pod", {}), ("get", "v1 Pod", {"label_selector": "x=y"})]
    answers["get"] = {"metadata": {"name": "a"}}
    assert server.get("v1", "Pod", "a") == {"metadata": {"name": "a"}}


@pytest.mark.parametrize("status", [404, 409])
def test_what_is_not_there_or_has_changed_is_an_answer(
    server: ApiServer, answers: dict[str, Any], status: int
) -> None:
    answers |= dict.fromkeys(("patch", "delete"), Refusal(status))
    assert not server.patch("v1", "Pod", "p", "team", {})
    assert not server.patch_status("v1", "Pod", "p", "team", {})
    assert not server.delete("v1", "Pod", "p", "team")
    answers |= {"get": Refusal(404), "create": Refusal(409)}
    assert server.get("v1", "Pod", "p") is None and server.names_of("v1", "Pod", "") == []
    assert not server.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Refusal(403, json.dumps({"message": "no right to it"})), "the API server refused: no right to it"),
        (Refusal(500, "no JSON"), "the API server refused: first line"),
        (Refusal(None), "no API server: first line"),
        (OSError(), "no API server: OSError"),
    ],
)
def test_every_other_error_is_a_problem(
    server: ApiServer, answers: dict[str, Any], error: Exception, message: str
) -> None:
    answers |= dict.fromkeys(("get", "create", "server_side_apply", "patch", "delete"), error)
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    for act in (
        lambda: server.get("v1", "Pod", "p"),
        lambda: server.create(made),
        lambda: server.apply(made),
        lambda: server.patch("v1", "Pod", "p", "", {}),
        lambda: server.delete("v1", "Pod", "p"),
        lambda: server.all_of("v1", "Pod"),
        lambda: server.names_of("v1", "Pod", ""),
    ):
        with pytest.raises(Unreachable) as told:
            act()
        assert told.value.message == message


def test_a_conflict_is_none_where_it_is_not_expected(server: ApiServer, answers: dict[str, Any]) -> None:
    answers["get"] = Refusal(409)
    with pytest.raises(Unreachable):
        server.get("v1", "Pod", "p")
    answers["create"] = Refusal(404)
    with pytest.raises(Unreachable):
        server.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})


def test_a_kind_that_the_cluster_does_not_have_names_the_version(server: ApiServer) -> None:
    from kubernetes.dynamic.exceptions import ResourceNotFoundError

    def get(**_: str) -> None:
        raise ResourceNotFoundError("none")

    server._client.resources.get = get
    with pytest.raises(Unreachable, match="this cluster has no ResourceSlice") as told:
        server.all_of("resource.k8s.io/v1", "ResourceSlice")
    assert "1.36" in told.value.hint


def test_what_changes_is_followed_from_the_list_on(
    server: ApiServer, calls: list[Call], answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubernetes import watch

    followed: list[dict[str, Any]] = []

    class Watch:
        def stream(self, get: Any, **given: Any) -> Any:
            followed.append(given)
            yield {"type": "ADDED", "raw_object": {"n": 1}}
            yield None
            yield {"type": "DELETED", "raw_object": {"n": 2}}

    monkeypatch.setattr(watch, "Watch", Watch)
    answers["get"] = {"items": [{"n": 0}], "metadata": {"resourceVersion": "5"}}
    assert list(server.follow("v1", "Pod", fields="spec.nodeName=n")) == [
        (cluster.ALL, [{"n": 0}]),
        ("ADDED", [{"n": 1}]),
        ("DELETED", [{"n": 2}]),
    ]
    assert calls == [("get", "v1 Pod", {"field_selector": "spec.nodeName=n", "label_selector": None})]
    (given,) = followed
    assert given["resource_version"] == "5" and given["serialize"] is False
    assert given["_request_timeout"][1] > given["timeout_seconds"] > 0


def test_a_reason_is_the_servers_own_word() -> None:
    assert reason_of(Refusal(403, '{"message": "why"}')) == "why"
    assert reason_of(Refusal(403, '{"other": 1}')) == reason_of(Refusal(403, "[]")) == "first line"


def test_the_placer_goes_on_after_a_failure_and_until_it_is_told_to_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("LOOK_SECONDS", "ROUND_SECONDS"):
        monkeypatch.setattr(placer, name, 0.0)
    made = Placer(FakeCluster(), lambda version, kind: [], registry.find("first-fit")(), Known({}))
    changed, until = threading.Event(), threading.Event()
    rounds: list[bool] = []

    def round_() -> int:
        rounds.append(changed.is_set())
        changed.set()
        if len(rounds) == 3:
            until.set()
        if len(rounds) == 2:
            raise Problem("the API server is away")
        return 0

    monkeypatch.setattr(made, "round", round_)
    made.run(changed, until)
    assert rounds == [False] * 3
    assert "the API server is away" in capsys.readouterr().err


def test_sight_waits_until_all_are_known() -> None:
    there = FakeCluster()
    there.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "1"}, "spec": {}})
    until = threading.Event()
    sight = Sight(there, until)
    try:
        assert [one["metadata"]["name"] for one in sight.all_of("v1", "Node")] == ["n"]
        assert sight.all_of("v1", "Pod") == []
        assert sight.changed.wait(30)
    finally:
        until.set()


def test_what_was_deleted_while_the_api_server_was_away_is_gone() -> None:
    def node(name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "uid": f"uid-of-{name}"}}

    mirror = Mirror(FakeCluster(), "v1", "Node")
    for change, named in (("ALL", "ab"), ("ADDED", "c"), ("DELETED", "b"), ("ERROR", "x"), ("ALL", "cd")):
        mirror.take(change, [node(name) for name in named])
    assert sorted(one["metadata"]["name"] for one in mirror.all()) == ["c", "d"]
