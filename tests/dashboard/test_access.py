"""Nobody without the token learns anything from the dashboard or does anything through it, whatever is sent."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

from cotenant import segment
from cotenant.dashboard.access import Access
from cotenant.dashboard.app import Dashboard
from cotenant.dashboard.feed import MOST_WATCHERS, Feed
from cotenant.top import actions
from tests.dashboard.serving import HOST, Pairs, ask, scene, served, session

JOB = "/api/jobs/0-" + "55" * 16
PATHS = (
    "/",
    "/static/index.html",
    "/api/state",
    "/api/stream",
    "/api/history",
    f"{JOB}/pause",
    f"{JOB}/kill",
)
KILL = {"signal": "SIGKILL", "processes": [[4101, 0]]}


class Acted(AssertionError):
    pass


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Access]:
    """Whatever would act on a job fails the test."""

    def acts(*arguments: Any) -> str:
        raise Acted(arguments)

    monkeypatch.setattr(actions, "command", acts)
    monkeypatch.setattr(actions, "end", acts)
    yield made(tmp_path)


def made(folder: Path, readonly: bool = False) -> Access:
    feed = Feed(scene().to(folder / "segment"), 1.0)
    asyncio.run(feed.look())
    return Access(Dashboard(feed, readonly).app(), 8765)


def without(headers: Pairs, name: bytes) -> Pairs:
    return [pair for pair in headers if pair[0] != name]


def replaced(headers: Pairs, name: bytes, value: bytes) -> Pairs:
    return [*without(headers, name), (name, value)]


def test_the_token_gives_a_cookie_and_the_cookie_everything(app: Access) -> None:
    answer = ask(app, query=f"token={app.token}".encode())
    assert answer.status == 200 and b"<title>Cotenant" in answer.body
    cookie = answer.header(b"set-cookie").decode()
    assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Path=/"))
    assert app.token not in cookie
    headers = [(b"host", HOST), (b"cookie", cookie.partition(";")[0].encode())]
    state = json.loads(ask(app, "/api/state", headers=headers).body)
    assert {job["job"] for job in state["jobs"]} >= {"llm-serve", "finetune.py", "pretrain"}
    assert ask(app, "/api/history", headers=headers).status == 200
    assert not ask(app, headers=headers).header(b"set-cookie")


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_answered(app: Access, path: str) -> None:
    for method in ("GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE"):
        for query in (b"", b"token=", b"token=x", f"token={app.session}".encode()):
            headers = without(session(app), b"cookie")
            answer = ask(app, path, method, headers, json.dumps(KILL).encode(), query)
            assert answer.status == 401 and b"llm-serve" not in answer.body
    if path != "/":
        assert ask(app, path, query=f"token={app.token}".encode()).status == 401, (
            "the token is the page's only"
        )


@pytest.mark.parametrize(
    "host", [b"evil.example", b"evil.example:8765", b"127.0.0.1.evil.example", b"", b"localhost.:8765"]
)
def test_a_name_that_was_made_to_mean_this_machine_is_refused(app: Access, host: bytes) -> None:
    headers = replaced(replaced(session(app), b"host", host), b"origin", b"http://" + host)
    assert ask(app, "/api/state", headers=headers).status == 421
    assert ask(app, headers=[(b"host", host)], query=f"token={app.token}".encode()).status == 421


def test_who_watches_no_more_makes_room_for_others(tmp_path: Path) -> None:
    async def watch() -> tuple[int, int]:
        feed = Feed(tmp_path / "segment", 1.0)
        frames = feed.frames(dict)
        assert isinstance(frames, AsyncGenerator)
        await anext(frames)
        during = feed.watchers
        await frames.aclose()
        return during, feed.watchers

    assert asyncio.run(watch()) == (1, 0)


def test_so_many_may_watch_at_once(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "segment", 1.0)
    access = Access(Dashboard(feed, False).app(), 8765)
    feed.watchers = MOST_WATCHERS
    assert ask(access, "/api/stream", headers=session(access)).status == 503


def test_a_segment_that_is_there_again_is_shown_again(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"no segment")
    feed = Feed(path, 1.0)
    asyncio.run(feed.look())
    assert "problem" in feed.frame()
    scene().to(path)
    asyncio.run(feed.look())
    assert "problem" not in feed.frame() and feed.frame()["jobs"]


def test_two_dashboards_of_a_machine_have_cookies_of_their_own(app: Access) -> None:
    """Cookies do not know ports: the second would log the first one's user out."""
    assert Access(app.app, 8766).cookie != app.cookie


def test_only_the_process_that_was_confirmed_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []

    def end(path: Path, one: segment.Tenant, number: signal.Signals) -> str:
        ended.append(one.pid)
        return "done"

    monkeypatch.setattr(actions, "end", end)
    app = made(tmp_path)

    def kill(*processes: list[int]) -> int:
        body = json.dumps(KILL | {"processes": processes}).encode()
        return ask(app, f"{JOB}/kill", "POST", session(app), body).status

    assert kill([4101, 7]) == 409 and ended == []  # another process has the number now
    assert kill([4101, 0]) == 200 and ended == [4101]


def test_a_request_has_one_host(app: Access) -> None:
    headers = without(session(app), b"origin")
    assert ask(app, "/api/state", headers=headers).status == 200
    assert ask(app, "/api/state", headers=[*headers, (b"host", b"evil.example")]).status == 421
    assert ask(app, "/api/state", headers=without(headers, b"host")).status == 421


@pytest.mark.parametrize(
    "host", [b"127.0.0.1:9000", b"localhost:9000", b"[::1]:9000", b"LOCALHOST", b"10.0.0.7:80"]
)
def test_through_a_tunnel_it_has_another_port(app: Access, host: bytes) -> None:
    headers = replaced(replaced(session(app), b"host", host), b"origin", b"http://" + host)
    assert ask(app, "/api/state", headers=headers).status == 200


@pytest.mark.parametrize(
    "origin", [b"http://127.0.0.1:9999", b"https://127.0.0.1:8765", b"http://evil.example", b"null", b""]
)
def test_what_another_page_sends_is_refused(app: Access, origin: bytes) -> None:
    """A page at another port of this machine gets the browser to send the cookie along."""
    headers = replaced(session(app), b"origin", origin)
    assert ask(app, f"{JOB}/kill", "POST", headers, json.dumps(KILL).encode()).status == 403
    assert ask(app, "/api/state", headers=headers).status == 403


def test_an_action_needs_an_origin_and_json(app: Access) -> None:
    body = json.dumps(KILL).encode()
    assert ask(app, f"{JOB}/kill", "POST", without(session(app), b"origin"), body).status == 403
    form = replaced(session(app), b"content-type", b"text/plain")
    assert ask(app, f"{JOB}/kill", "POST", form, body).status == 415


def test_readonly_does_nothing(tmp_path: Path) -> None:
    app = made(tmp_path, readonly=True)
    state = json.loads(ask(app, "/api/state", headers=session(app)).body)
    key = state["jobs"][0]["key"]
    for action in ("pause", "resume", "class", "kill"):
        answer = ask(app, f"/api/jobs/{key}/{action}", "POST", session(app), json.dumps(KILL).encode())
        assert answer.status == 403 and b"--readonly" in answer.body
    assert state["readonly"] is True


def test_a_page_may_load_nothing_from_elsewhere_and_stand_in_no_other(app: Access) -> None:
    for path in ("/", "/nothing", "/api/state"):
        for headers in (session(app), [(b"host", HOST)]):
            answer = ask(app, path, headers=headers)
            policy = answer.header(b"content-security-policy").decode()
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy and "http" not in policy
            assert answer.header(b"x-content-type-options") == b"nosniff"
            assert answer.header(b"referrer-policy") == b"no-referrer"


def test_the_page_names_no_outside_resource() -> None:
    import re

    from cotenant.dashboard.app import static_files

    files = static_files()
    assert b"MIT" in files["uPlot.LICENSE.txt"]
    for name, content in files.items():
        if name.endswith((".html", ".css", ".js")):
            addresses = re.findall(rb"(?:https?:)?//[a-z0-9.-]+\.[a-z]+[^\s\"']*", content)
            assert set(addresses) <= {b"https://github.com/leeoniya/uPlot", b"http://www.w3.org/2000/svg"}, (
                name
            )


NAMES = st.sampled_from([b"host", b"origin", b"cookie", b"content-type", b"x-forwarded-host", b"range"])
LIKELY = [
    HOST,
    b"http://" + HOST,
    b"application/json",
    b"cotenant-8765=",
    b"null",
    b"localhost",
    b"[::1",
    b"]:1",
]
VALUES = st.one_of(
    st.sampled_from(LIKELY),
    st.binary(max_size=60).map(lambda text: text.replace(b"\n", b"").replace(b"\r", b"")),
)
METHODS = st.one_of(
    st.sampled_from(["GET", "HEAD", "POST", "PUT", "OPTIONS", "TRACE"]),
    st.text("ABCXYZ", min_size=1, max_size=8),
)
ODD_PATHS = ["/api/jobs//kill", "/static/../app.py", "/static/%2e%2e", "//", "/static/uPlot.LICENSE.txt"]
ACTIONS = st.sampled_from(["pause", "kill", "x"])
SOME_PATHS = st.one_of(
    st.sampled_from([*PATHS, *ODD_PATHS]),
    st.text(max_size=30).map(lambda text: f"/{text}"),
    st.builds(lambda key, action: f"/api/jobs/{key}/{action}", st.text(max_size=12), ACTIONS),
)
WORDS = st.text(max_size=8) | st.sampled_from(["SIGKILL", "standard"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(st.sampled_from(["signal", "processes", "class"]), inside, max_size=3)
    ),
    max_leaves=8,
)
BODIES = st.one_of(
    st.binary(max_size=80), JSON.map(lambda value: json.dumps(value).encode()), st.just(b"[" * 5000)
)

fuzzed = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)


@fuzzed
@given(SOME_PATHS, METHODS, st.lists(st.tuples(NAMES, VALUES), max_size=5), BODIES, st.binary(max_size=40))
def test_no_request_without_the_token_is_answered(
    app: Access, path: str, method: str, headers: Pairs, body: bytes, query: bytes
) -> None:
    for given_headers in (headers, [(b"host", HOST), *headers]):
        answer = ask(app, path, method, given_headers, body, query)
        assert answer.status in (400, 401, 403, 421)
        assert b"llm-serve" not in answer.body and not answer.header(b"set-cookie")


@fuzzed
@given(SOME_PATHS, METHODS, st.lists(st.tuples(NAMES, VALUES), max_size=3), BODIES, st.binary(max_size=40))
def test_with_the_token_nonsense_is_refused_and_harms_nothing(
    app: Access, path: str, method: str, headers: Pairs, body: bytes, query: bytes
) -> None:
    own = session(app)
    names = {name for name, _ in own}
    answer = ask(app, path, method, [*own, *(pair for pair in headers if pair[0] not in names)], body, query)
    assert 200 <= answer.status < 500


@fuzzed
@given(st.sampled_from(["pause", "resume", "class", "kill", "explode"]), BODIES)
def test_a_body_that_is_nonsense_is_refused(app: Access, action: str, body: bytes) -> None:
    try:
        status = ask(app, f"{JOB}/{action}", "POST", session(app), body).status
    except Acted:  # a body that says nothing suffices for these
        assert action in ("pause", "resume") and isinstance(json.loads(body), dict)
        return
    assert status in (400, 404, 409, 413)


def test_a_body_that_never_ends_is_not_read_to_its_end(app: Access) -> None:
    assert ask(app, f"{JOB}/kill", "POST", session(app), b" " * (1 << 20)).status == 413


def test_bytes_that_are_no_http_leave_it_running(tmp_path: Path) -> None:
    path = scene().to(tmp_path / "segment")
    with served(path) as server:
        for sent in (
            b"\0" * 500,
            b"GET /\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            b"A" * 200_000,
        ):
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
                try:
                    client.sendall(sent)
                    client.shutdown(socket.SHUT_WR)
                    assert b" 200 " not in client.recv(1000).partition(b"\r\n")[0]
                except OSError:
                    pass  # it hung up before everything was sent
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
            client.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 401")
