"""`cotenant metrics`: the figures for Prometheus."""

from __future__ import annotations

from pathlib import Path

import click

from cotenant import segment
from cotenant.config.settings import option
from cotenant.errors import Problem, narrate
from cotenant.options import segment_option
from cotenant.terminal import say


@click.command(
    "metrics",
    short_help="Print the figures for Prometheus, or serve them.",
    epilog="""\b
Examples:
  cotenant metrics
  cotenant metrics --listen 127.0.0.1:9835
  cotenant metrics --listen 0.0.0.0:9835 --public
  cotenant metrics | sponge /var/lib/prometheus/node-exporter/cotenant.prom""",
)
@option("metrics.listen")
@option("metrics.public")
@segment_option
def command(listen: str | None, is_public: bool, segment_file: Path | None) -> None:
    """Print the figures of all tenants and GPUs in Prometheus' text format, once; with --listen serve them over HTTP.

    docs/metrics.md lists the metrics and their labels, and has a dashboard for Grafana and alert rules.
    """
    try:
        import prometheus_client
    except ImportError:
        raise Problem("prometheus-client is not installed", "pip install 'cotenant[metrics]'") from None
    from cotenant.metrics.collector import TenantsCollector

    if segment_file:
        segment_file = segment.path_to_read(segment_file)
    registry = prometheus_client.CollectorRegistry()
    registry.register(TenantsCollector(segment_file))
    if listen is None:
        say(prometheus_client.generate_latest(registry).decode().rstrip("\n"))
        return
    from cotenant.metrics.server import Server

    with Server(listen, is_public, registry) as server:
        narrate(f"serving {server.url}")
        server.serve_forever()
