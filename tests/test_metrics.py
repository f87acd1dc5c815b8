"""`cotenant metrics`: every figure as Prometheus has it, of the tenants that are there at a scrape and of no other."""

from __future__ import annotations

import errno
import http.client
import json
import os
import re
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cotenant import segment
from cotenant.cli import main
from cotenant.daemon import files, lock, report
from cotenant.daemon.clocks import Reading
from cotenant.figures import FIGURES, Kind
from cotenant.policies.interface import GpuState
from cotenant.tenants.verdicts import Verdict
from tests.compiling import TREE
from tests.exposition import families_in, scene, serving
from tests.segments import UUID_TEXT, Written

if TYPE_CHECKING:
    from tests.conftest import Run

pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from cotenant.metrics import containers, page
from cotenant.metrics.families import SERVED, family_name, series_name
from cotenant.metrics.server import Server

POD_UID = "11112222-3333-4444-5555-666677778888"
CONTAINER_ID = "0123456789abcdef" * 4

Series = dict[str, list[tuple[dict[str, str], float]]]


def series_in(exposition: str) -> Series:
    found: Series = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@pytest.fixture
def path(plain_env: dict[str, str]) -> Path:
    return scene().to(Path(plain_env["COTENANT_SEGMENT"]))


def test_a_figure_is_served_in_base_units_with_the_labels_people_know(
    cotenant: Run, plain_env: dict[str, str], path: Path
) -> None:
    done = cotenant("metrics", env=plain_env)
    assert (done.returncode, done.stderr) == (0, "")
    found = series_in(done.stdout)
    (labels, used), _ = found["cotenant_tenant_used_seconds_total"]
    of_tenant = {
        "Hostname": socket.gethostname(),
        "job": "serve.py",
        "user": "root",
        "class": "production",
        "pid": "100",
        "run_id": "0" * 32,
    }
    assert labels == of_tenant | {"gpu": "0", "UUID": UUID_TEXT}
    assert used == 2.5
    assert found["cotenant_tenant_in_flight_seconds"][0][1] == 0.0001
    assert found["cotenant_tenant_slowdown_ratio"] == [(of_tenant, 0.05)]
    assert found["cotenant_tenant_has_work"][0][1] == 1
    assert found["cotenant_tenant_memory_limit"] == [(of_tenant | {"memory_limit": "20G"}, 1)]
    assert [labels["state"] for labels, _ in found["cotenant_tenant_state"]] == ["busy", "idle"]
    assert [value for _, value in found["cotenant_tenant_kernels_total"]] == [5, 7]


def test_waits_are_a_histogram_in_seconds(cotenant: Run, plain_env: dict[str, str]) -> None:
    written = scene()
    waiting = written.slots[1].waiting[0]
    waiting.counts[0], waiting.counts[2], waiting.counts[23], waiting.sum_ns = 3, 4, 1, 60_000_000_000
    waiting.preemptions = 9
    written.to(Path(plain_env["COTENANT_SEGMENT"]))
    found = series_in(cotenant("metrics", env=plain_env).stdout)
    of_train = {
        labels["le"]: value
        for labels, value in found["cotenant_tenant_wait_seconds_bucket"]
        if labels["job"] == "train.py"
    }
    assert len(of_train) == 24
    seen = [of_train[le] for le in ("4.096e-06", "8.192e-06", "1.6384e-05", "17.1798692", "+Inf")]
    assert seen == [3, 3, 7, 7, 8]
    assert [value for _, value in found["cotenant_tenant_wait_seconds_sum"]] == [0, 60]
    assert [value for _, value in found["cotenant_tenant_wait_seconds_count"]] == [0, 8]
    assert [value for _, value in found["cotenant_tenant_preemptions_total"]] == [0, 9]


def test_every_figure_is_a_family_a_label_or_left_out_on_purpose(
    cotenant: Run, plain_env: dict[str, str], path: Path
) -> None:
    families = families_in(cotenant("metrics", env=plain_env).stdout)
    assert families == {
        series_name(one): one.kind.value if one.kind in (Kind.counter, Kind.histogram) else "gauge"
        for one in SERVED
    }
    assert len({family_name(one) for one in SERVED}) == len(SERVED)
    assert {one.name for one in FIGURES if one.kind is Kind.unserved} == {
        "began_at",
        "command",
        "program",
        "process",
        "lane",
        "uid",
        "promise",
        "memory",
        "seconds_ago",
        "in_words",
        "outsider_pids",
        "outside_in_words",
        # Of the time between two looks: Prometheus has rates of its own.
        "gpu_share",
        "share",
        "share_asked",
        "share_got",
        "wait_us",
        "wait_p50_us",  # of the histogram that is served, too
        "wait_p99_us",
    }


@pytest.mark.parametrize("figure", SERVED, ids=series_name)
def test_names_follow_prometheus_conventions(figure: Any) -> None:
    name = series_name(figure)
    assert re.fullmatch(r"cotenant_(tenant|gpu)_[a-z_]+", name)
    assert not re.search(r"_(us|ms|ns|mhz|w|percent)(_|$)", name)
    assert name.endswith("_total") == (figure.kind is Kind.counter)
    if figure.unit == "":
        assert figure.kind is Kind.text


def test_two_tenants_that_claim_one_process_are_one_series(cotenant: Run, plain_env: dict[str, str]) -> None:
    written = scene()
    written.slots[2] = written.slots[0]
    written.to(Path(plain_env["COTENANT_SEGMENT"]))
    found = series_in(cotenant("metrics", env=plain_env).stdout)
    assert len(found["cotenant_tenant_kernels_total"]) == 2


def test_a_gpu_has_what_the_daemon_saw_of_late(cotenant: Run, plain_env: dict[str, str], path: Path) -> None:
    held = lock.acquire(path)
    assert held is not None
    try:
        for seconds_ago, is_shown in ((0, True), (60, False)):
            at_us = segment.now_ns() / 1000 - seconds_ago * 1e6
            state = GpuState(at_us, 1455.0, 1980.0, 698.0, 700.0, ("power limit", "temperature"))
            report.Report(path).show("guard", "", {}, {0: Reading(state)})
            found = series_in(cotenant("metrics", env=plain_env).stdout)
            if not is_shown:
                assert not [name for name in found if name.startswith("cotenant_gpu_")]
                continue
            of_gpu = {"Hostname": socket.gethostname(), "gpu": "0", "UUID": UUID_TEXT}
            assert found["cotenant_gpu_clock_hertz"] == [(of_gpu, 1.455e9)]
            assert found["cotenant_gpu_power_watts"] == [(of_gpu, 698.0)]
            assert found["cotenant_gpu_throttled"] == [(of_gpu, 1.0)]
            reasons = [labels["slowed_by"] for labels, _ in found["cotenant_gpu_slowed_by"]]
            assert reasons == ["power limit", "temperature"]
    finally:
        os.close(held)


def test_a_promise_is_as_the_daemon_decided(cotenant: Run, plain_env: dict[str, str], path: Path) -> None:
    held = lock.acquire(path)
    assert held is not None
    verdict = Verdict(False, segment.now_ns() - 125_000_000_000)
    try:
        report.Report(path).show("guard", "", {}, promises={(100, 0, 0): verdict})
        found = series_in(cotenant("metrics", env=plain_env).stdout)
        ((labels, kept),) = found["cotenant_tenant_promise_kept"]
        ((_, seconds),) = found["cotenant_tenant_promise_seconds"]
        assert (labels["pid"], kept) == ("100", 0) and 125 <= seconds < 600
        for command in (["status"], ["top", "--once", "--interval", "0.1"]):
            assert "<5% BROKEN 2m" in cotenant(*command, env=plain_env).stdout
        of_serve = json.loads(cotenant("status", "-o", "json", env=plain_env).stdout)["tenants"][0]["gpus"][0]
        assert of_serve["promise_kept"] is False and of_serve["promise_seconds"] >= 125
    finally:
        os.close(held)
    found = series_in(cotenant("metrics", env=plain_env).stdout)
    assert "cotenant_tenant_promise_kept" not in found, "the daemon is gone"


@pytest.mark.parametrize(
    ("cgroup", "environ", "labels"),
    [
        ("0::/user.slice/user-1000.slice/session-1.scope\n", "HOSTNAME=here", {}),
        (f"0::/system.slice/docker-{CONTAINER_ID}.scope\n", "", {"container": CONTAINER_ID[:12]}),
        (f"12:cpu:/docker/{CONTAINER_ID}\n0::/\n", "HOSTNAME=here", {"container": CONTAINER_ID[:12]}),
        (
            f"0::/kubepods.slice/kubepods-burstable-pod{POD_UID.replace('-', '_')}.slice"
            f"/cri-containerd-{CONTAINER_ID}.scope\n",
            "",
            {"pod": POD_UID, "container": CONTAINER_ID[:12]},
        ),
        (
            f"0::/kubepods/burstable/pod{POD_UID}/{CONTAINER_ID}\n",
            "KUBERNETES_SERVICE_HOST=10.0.0.1\0HOSTNAME=serve-0\0POD_NAMESPACE=ml\0",
            {"pod": "serve-0", "namespace": "ml", "container": CONTAINER_ID[:12]},
        ),
        (
            f"0::/docker/{CONTAINER_ID}/kubelet/{CONTAINER_ID[::-1]}\n",  # a node that is a container itself
            "",
            {"container": CONTAINER_ID[::-1][:12]},
        ),
        (
            "0::/\n",
            "POD_NAME=a\x1b[31m\0POD_NAMESPACE=ml\0CONTAINER_NAME=main\0nonsense",
            {"pod": "a?[31m", "namespace": "ml", "container": "main"},
        ),
    ],
)
def test_a_process_is_labelled_with_its_pod_and_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cgroup: str, environ: str, labels: dict[str, str]
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(cgroup)
    (tmp_path / "7" / "environ").write_text(environ)
    monkeypatch.setattr(containers, "PROC", tmp_path)
    assert containers.of_process(7).labels == labels
    assert containers.of_process(8) == containers.Within()


def test_what_the_node_s_agent_says_of_a_container_wins_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"0::/kubepods/pod{POD_UID}/{CONTAINER_ID}/nested/{'f' * 64}\n")
    (tmp_path / "7" / "environ").write_text("POD_NAME=another\0POD_NAMESPACE=kube-system\0")
    monkeypatch.setattr(containers, "PROC", tmp_path)
    segment_file = tmp_path / "segment"
    assert containers.read_names(segment_file) == {}
    said = {"namespace": "ml", "pod": "serve-0", "container": "main"}
    containers.write_names(segment_file, {CONTAINER_ID: said})
    assert containers.of_process(7).named(containers.read_names(segment_file)) == said
    files.beside(segment_file, containers.NAMES).write_text("[")
    assert containers.of_process(7).named(containers.read_names(segment_file))["pod"] == "another"


def test_only_the_process_that_the_tenant_is_is_asked_for_its_pod(
    plain_env: dict[str, str], cotenant: Run
) -> None:
    """Its number may be another process's here: that one's environment is not its own."""
    env = plain_env | {"POD_NAME": "serve-0"}
    with subprocess.Popen(["sleep", "60"], env=env) as child:
        try:
            stat = Path(f"/proc/{child.pid}/stat").read_text()
            for started, pods in ((int(stat.rpartition(")")[2].split()[19]), ["serve-0"]), (1, [None])):
                written = Written()
                slot = written.tenant(0, pid=child.pid)
                slot.uid, slot.started = os.getuid(), started
                written.to(Path(plain_env["COTENANT_SEGMENT"]))
                found = series_in(cotenant("metrics", env=plain_env).stdout)
                assert [labels.get("pod") for labels, _ in found["cotenant_tenant_weight"]] == pods
        finally:
            child.kill()


def get(port: int, path: str = "/metrics") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_series_vanish_with_their_tenant_and_a_bad_segment_is_said(
    plain_env: dict[str, str], path: Path
) -> None:
    def pids(text: str) -> set[str]:
        return {
            labels["pid"] for several in series_in(text).values() for labels, _ in several if "pid" in labels
        }

    with serving(plain_env) as port:
        status, text = get(port)
        assert (status, pids(text)) == (200, {"100", "200"})
        assert get(port, "/")[0] == 404
        written = scene()
        del written.slots[1]
        written.to(path)
        assert pids(get(port)[1]) == {"100"}
        path.write_bytes(b"somebody's file")
        status, text = get(port)
        assert status == 503 and "is not a Cotenant segment" in text
        path.unlink()
        status, text = get(port)
        assert (status, series_in(text)) == (200, {})
        scene().to(path)
        assert pids(get(port)[1]) == {"100", "200"}


def test_a_silent_client_is_not_waited_for_forever() -> None:
    """Each holds a thread until its socket's timeout."""
    client, accepted = socket.socketpair()
    with client, accepted, Server("127.0.0.1:0", False, CollectorRegistry()) as server:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        server.finish_request(accepted, ("127.0.0.1", 0))
        assert client.recv(12) == b"HTTP/1.0 200"
        assert (accepted.gettimeout() or 0) > 0


@pytest.mark.parametrize(
    ("listen", "error", "hint"),
    [
        ("0.0.0.0:0", "0.0.0.0 is not a loopback address", "--public"),
        ("[::]:0", ":: is not a loopback address", "--public"),
        ("127.0.0.1:http", "'127.0.0.1:http' is no address", "127.0.0.1:9835"),
        ("127.0.0.1:65536", "'127.0.0.1:65536' is no address", "127.0.0.1:9835"),
        pytest.param(f"127.0.0.1:{'9' * 5000}", "'127.0.0.1:999", "127.0.0.1:9835", id="digits"),
        ("a..b:1", "no address is known for 'a..b'", "127.0.0.1:9835"),
    ],
)
def test_a_bad_address_is_refused(
    cotenant: Run, plain_env: dict[str, str], path: Path, listen: str, error: str, hint: str
) -> None:
    done = cotenant("metrics", "--listen", listen, env=plain_env)
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first.startswith(f"error: {error}") and second.startswith("hint: ") and hint in second


def test_a_port_that_is_taken_is_refused(cotenant: Run, plain_env: dict[str, str], path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = cotenant("metrics", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", env=plain_env)
    assert (done.returncode, done.stdout) == (1, "")
    error, hint = done.stderr.splitlines()
    assert "Address already in use" in error and "another port" in hint


def test_what_is_not_permitted_is_one_line_with_the_remedy(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    assert main(["metrics", "--listen", "127.0.0.1:80", "--segment", str(path)]) == 1
    monkeypatch.setattr(segment, "read", refuse)
    assert main(["metrics", "--segment", str(path)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    port, higher, file, owner = told.err.splitlines()
    assert port == "error: cannot listen at 127.0.0.1:80: Permission denied" and "below 1024" in higher
    assert file == f"error: cannot read {path}: Permission denied" and "owner" in owner


def test_without_prometheus_client_the_remedy_is_said(
    cotenant: Run, plain_env: dict[str, str], path: Path, tmp_path: Path
) -> None:
    (tmp_path / "prometheus_client.py").write_text("raise ImportError")
    hidden = plain_env | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{plain_env['PYTHONPATH']}"}
    done = cotenant("metrics", env=hidden)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[1] == "hint: pip install 'cotenant[metrics]'"


def test_the_page_has_what_is_declared() -> None:
    text = (TREE / "docs" / "metrics.md").read_text()
    assert text.endswith(page.table()), "run 'make figures'"
