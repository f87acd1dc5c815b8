"""`cotenant dashboard`: what it prints, what its buttons do to a real job on the software GPU, and how it ends."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.segment import Where
from tests.dashboard.serving import pass_a_second, scene

if TYPE_CHECKING:
    from tests.conftest import Run

COMMAND = [sys.executable, "-m", "cotenant", "dashboard", "--port", "0"]


class Client:
    """A browser that has opened the printed address."""

    def __init__(self, url: str) -> None:
        self.where = urllib.parse.urlsplit(url)
        answer, _ = self.ask("GET", f"/?{self.where.query}")
        self.cookie = answer.headers["Set-Cookie"].partition(";")[0]

    def ask(self, method: str, path: str, body: object = None) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection(self.where.netloc, timeout=60)
        headers = {"Origin": f"http://{self.where.netloc}", "Content-Type": "application/json"}
        if hasattr(self, "cookie"):
            headers["Cookie"] = self.cookie
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        body_read = answer.read()
        connection.close()
        return answer, body_read

    def state(self) -> dict[str, Any]:
        return dict(json.loads(self.ask("GET", "/api/state")[1]))

    def act(self, key: str, action: str, body: object) -> tuple[int, str]:
        answer, text = self.ask("POST", f"/api/jobs/{key}/{action}", body)
        return answer.status, text.decode()

    def frames(self) -> Iterator[dict[str, Any]]:
        connection = http.client.HTTPConnection(self.where.netloc, timeout=60)
        connection.request("GET", "/api/stream", headers={"Cookie": self.cookie})
        answer = connection.getresponse()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        while line := answer.readline():
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


@contextmanager
def dashboard(env: dict[str, str], *more: str) -> Iterator[tuple[Client, subprocess.Popen[str]]]:
    with subprocess.Popen(
        [*COMMAND, *more], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            url = process.stdout.readline().strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43}", url), process.stderr.read()  # type: ignore[union-attr]
            yield Client(url), process
        finally:
            process.kill()


def the_tenant(path: Path) -> segment.Tenant:
    (only,) = segment.read(path).tenants
    return only


def test_its_buttons_steer_a_real_job(
    job: subprocess.Popen[str],
    path: Path,
    softgpu_env: dict[str, str],
) -> None:
    with dashboard(softgpu_env) as (client, _):
        (shown,) = client.state()["jobs"]
        assert (shown["pids"], shown["class"], shown["state"]) == ([job.pid], "opportunistic", "idle")
        key = shown["key"]
        assert client.act(key, "class", {"class": "standard"})[0] == 200
        assert the_tenant(path).tenant_class == TenantClass.standard
        status, said = client.act(key, "pause", {})
        assert status == 200 and "is paused" in said
        assert (the_tenant(path).where, the_tenant(path).paused) == (Where.evicted, True)
        assert client.act(key, "resume", {})[0] == 200
        assert the_tenant(path).where == Where.resident

        (tenant,) = shown["tenants"]
        later = [[tenant["pid"], tenant["started"] + 1]]
        status, said = client.act(key, "kill", {"signal": "SIGTERM", "processes": later})
        assert status == 409 and "have ended" in said
        assert job.poll() is None, "who was not confirmed is not killed"
        confirmed = [[tenant["pid"], tenant["started"]]]
        assert client.act(key, "kill", {"signal": "SIGTERM", "processes": confirmed})[0] == 200
        assert job.wait(60) == -signal.SIGTERM
        for frame in client.frames():
            if not frame["jobs"]:
                break
        status, said = client.act(key, "pause", {})
        assert status == 409 and "has ended" in said


def test_what_cannot_be_done_is_told_with_the_reason(tmp_path: Path, plain_env: dict[str, str]) -> None:
    path = scene().to(tmp_path / "segment")
    with dashboard(plain_env, "--segment", str(path)) as (client, _):
        key = client.state()["jobs"][0]["key"]
        status, said = client.act(key, "pause", {})
        assert status == 409 and "cannot be paused" in json.loads(said)["error"]


def test_frames_follow_the_segment(tmp_path: Path, plain_env: dict[str, str]) -> None:
    written = scene()
    path = written.to(tmp_path / "segment")
    with dashboard(plain_env, "--segment", str(path), "--interval", "0.1") as (client, _):
        for frame in client.frames():
            pass_a_second(written, {4101: 0.25, 4388: 0.5})
            written.to(tmp_path / "next").rename(path)
            shares = {job["job"]: job["gpu_share"] for job in frame["jobs"]}
            if shares["llm-serve"] and shares["finetune.py"]:
                break
        (gpu, _) = frame["gpus"]
        assert gpu["class_shares"]["production"] and gpu["class_shares"]["opportunistic"]
        series = json.loads(client.ask("GET", "/api/history")[1])["series"]
        assert any(series["gpu/0/production"]) and not any(series["gpu/1/production"])
        path.write_bytes(b"nonsense")
        assert any(
            "is not a Cotenant segment" in one["problem"]["message"]
            for one in client.frames()
            if "problem" in one
        )


def test_it_ends_while_pages_watch(tmp_path: Path, plain_env: dict[str, str]) -> None:
    path = scene().to(tmp_path / "segment")
    with dashboard(plain_env, "--segment", str(path)) as (client, process):
        frames = client.frames()
        next(frames)
        process.send_signal(signal.SIGINT)
        for _ in frames:
            pass
        _, told = process.communicate(timeout=60)
        assert process.returncode == 130 and "Traceback" not in told and "rror" not in told


@pytest.mark.parametrize(
    ("options", "error", "hint"),
    [
        (["--host", "0.0.0.0"], "0.0.0.0 is not a loopback address", "--public"),
        (["--host", "a..b"], "no address is known for 'a..b'", "--host 127.0.0.1"),
        (["--host", "203.0.113.9", "--public"], "cannot listen at 203.0.113.9:0", "--host 127.0.0.1"),
    ],
)
def test_a_wrong_address_is_one_line_with_the_remedy(
    cotenant: Run, plain_env: dict[str, str], tmp_path: Path, options: list[str], error: str, hint: str
) -> None:
    told = cotenant(
        "dashboard", "--port", "0", "--segment", scene().to(tmp_path / "s"), *options, env=plain_env
    )
    first, second = told.stderr.splitlines()
    assert (
        told.returncode
        and first.startswith(f"error: {error}")
        and second.startswith("hint: ")
        and hint in second
    )


def test_a_taken_port_names_the_way_out(cotenant: Run, plain_env: dict[str, str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        told = cotenant("dashboard", "--port", port, "--segment", scene().to(tmp_path / "s"), env=plain_env)
    assert told.returncode == 1 and told.stdout == ""
    assert "Address already in use" in told.stderr and "hint: another program listens there" in told.stderr


def test_without_the_extra_the_remedy_is_said(
    cotenant: Run, plain_env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "starlette.py").write_text("raise ModuleNotFoundError('no', name='starlette')")
    env = plain_env | {"PYTHONPATH": f"{tmp_path}:{plain_env['PYTHONPATH']}"}
    told = cotenant("dashboard", env=env)
    assert told.stderr == "error: starlette is not installed\nhint: pip install 'cotenant[dashboard]'\n"


def test_what_is_no_segment_is_an_error_before_there_is_a_page(
    cotenant: Run, plain_env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no segment")
    told = cotenant("dashboard", "--port", "0", "--segment", tmp_path / "file", env=plain_env)
    assert told.returncode == 1 and "is not a Cotenant segment" in told.stderr
