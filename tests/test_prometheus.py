"""The dashboard, the alerts and a real Prometheus understand what `cotenant metrics` serves."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cotenant import segment
from cotenant.daemon import lock, report
from cotenant.daemon.clocks import Reading
from cotenant.policies.interface import GpuState
from cotenant.tenants.verdicts import Verdict
from tests.compiling import TREE
from tests.exposition import families_in, scene, serving
from tests.segments import UUID_TEXT
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run

pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")

DASHBOARD = TREE / "deploy" / "grafana" / "cotenant.json"
QUERIES = ("cotenant_", "sum by", "rate(", "increase(", "histogram_quantile(")
ALERTS = TREE / "deploy" / "prometheus" / "alerts.yml"

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed: apt-get install prometheus"
)


@pytest.fixture
def path(plain_env: dict[str, str]) -> Path:
    return scene().to(Path(plain_env["COTENANT_SEGMENT"]))


@needs_promtool
def test_promtool_finds_nothing_to_say(cotenant: Run, plain_env: dict[str, str], path: Path) -> None:
    text = cotenant("metrics", env=plain_env).stdout
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", [DASHBOARD, ALERTS], ids=lambda file: file.name)
def test_metrics_that_dashboard_and_alerts_name_are_served(
    cotenant: Run, plain_env: dict[str, str], path: Path, file: Path
) -> None:
    named = {name.removesuffix("_bucket") for name in re.findall(r"\bcotenant_[a-z_]+", file.read_text())}
    assert len(named) > 3
    assert named - families_in(cotenant("metrics", env=plain_env).stdout).keys() == set()


def test_the_dashboard_is_one() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    assert all(query.startswith(QUERIES) for query in dashboard_queries())
    # Grafana shows a legend only where the panel says so, since schema version 37.
    assert all(panel["options"]["legend"]["showLegend"] for panel in panels)


RULES_TEST = """
rule_files: [{alerts}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {{series: 'cotenant_tenant_promise_kept{{pid="1",run_id="a",gpu="0"}}', values: '1x20 {kept}x10'}}
      - {{series: 'cotenant_tenant_escaped_total{{pid="3",gpu="0"}}', values: '{escaped}'}}
      - {{series: 'cotenant_tenant_evictions_total{{pid="4"}}', values: '0+{evictions}x30'}}
      - {{series: 'cotenant_tenant_transfer_seconds{{pid="4"}}', values: '10x30'}}
    alert_rule_test:
"""
FIRING = """\
      - eval_time: 25m
        alertname: {name}
        exp_alerts: [{{exp_labels: {{severity: {severity}, {labels}}}}}]
"""
QUIET = "      - {{eval_time: 25m, alertname: {name}, exp_alerts: []}}\n"
ALERT_NAMES = {
    "CotenantPromiseBroken": ("critical", 'pid: "1", run_id: a, gpu: "0"'),
    "CotenantWorkEscapes": ("warning", 'pid: "3", gpu: "0"'),
    "CotenantEvictionStorm": ("warning", 'pid: "4"'),
}


@needs_promtool
@pytest.mark.parametrize("is_bad", [True, False], ids=["bad", "good"])
def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path, is_bad: bool) -> None:
    rules = tmp_path / "alerts.yml"
    text = ALERTS.read_text()
    # What the annotations say is for people: the test is about when.
    rules.write_text(re.sub(r"^ +annotations:\n( {10}.*\n)+", "", text, flags=re.MULTILINE))
    how = {
        "kept": "0" if is_bad else "1",
        "escaped": "0x20 3x10" if is_bad else "0x30",
        "evictions": "5" if is_bad else "0",
    }
    test = RULES_TEST.format(alerts=rules, **how)
    for name, (severity, labels) in ALERT_NAMES.items():
        test += (FIRING if is_bad else QUIET).format(name=name, severity=severity, labels=labels)
    (tmp_path / "test.yml").write_text(test)
    for arguments in (["check", "rules", str(ALERTS)], ["test", "rules", str(tmp_path / "test.yml")]):
        done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


CONFIGURATION = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{alerts}]
scrape_configs:
  - job_name: cotenant
    honor_labels: true
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def dashboard_queries() -> list[str]:
    """As Grafana asks them."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    return [re.sub(r"\$(host|gpu)", ".*", query).replace("$__rate_interval", "1m") for query in queries]


def work_on(path: Path, has_ended: threading.Event) -> None:
    """Tenants and a daemon, all at work."""
    written = scene()
    serve, train = written.slots[0], written.slots[1]
    serve.pace[0].now_ns, serve.pace[0].alone_ns = 1100, 1000
    shown = report.Report(path)
    held = lock.acquire(path)
    assert held is not None
    since_ns = segment.now_ns()
    try:
        while not has_ended.wait(0.2):
            for slot in (serve, train):
                slot.gpus[0].used_ns += 50_000_000
                slot.gpus[0].figures.graphs += 1
                slot.waiting[0].counts[5] += 9
                slot.waiting[0].counts[9] += 1
            train.waiting[0].preemptions += 3
            with path.open("r+b") as file:
                file.write(written.bytes())
            state = GpuState(segment.now_ns() / 1000, 1455.0, 1980.0, 698.0, 700.0, ("power limit",))
            verdict = {(100, 0, 0): Verdict(False, since_ns)}
            shown.show("guard", "", {}, {0: Reading(state)}, promises=verdict)
    finally:
        os.close(held)


@pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not installed: apt-get install prometheus"
)
def test_a_real_prometheus_scrapes_it(plain_env: dict[str, str], path: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        own = free.getsockname()[1]

    def ask(query: str) -> list[dict[str, Any]]:
        url = f"http://127.0.0.1:{own}/api/v1/query?query={urllib.parse.quote(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
                return found
        except urllib.error.HTTPError as error:
            if error.code == 400:
                pytest.fail(f"{query}: {error.read().decode()}")
            return []
        except OSError:
            return []  # it is still starting

    def has_series(query: str) -> bool:
        return bool(ask(query))

    has_ended = threading.Event()
    working = threading.Thread(target=work_on, args=(path, has_ended))
    with serving(plain_env) as port:
        working.start()
        configuration = tmp_path / "prometheus.yml"
        configuration.write_text(CONFIGURATION.format(alerts=ALERTS, port=port))
        command = [
            "prometheus",
            f"--config.file={configuration}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{own}",
        ]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=(tmp_path / "prometheus.log").open("w")
        ) as child:
            try:
                wait_for(lambda: bool(ask('cotenant_tenant_kernels_total{job="train.py"}')))
                (kernels,) = ask('cotenant_tenant_kernels_total{job="train.py"}')
                assert kernels["value"][1] == "7" and kernels["metric"]["UUID"] == UUID_TEXT
                assert [one["value"][1] for one in ask('up{job="cotenant"}')] == ["1"]
                wait_for(lambda: bool(ask('ALERTS{alertname="CotenantWorkEscapes",job="serve.py"}')))
                for query in dashboard_queries():
                    wait_for(functools.partial(has_series, query))
                has_ended.set()
                working.join()
                written = scene()
                del written.slots[1]
                written.to(path)
                wait_for(lambda: not ask('cotenant_tenant_kernels_total{job="train.py"}'))
                assert ask('cotenant_tenant_kernels_total{job="serve.py"}')
            finally:
                has_ended.set()
                working.join()
                child.terminate()
