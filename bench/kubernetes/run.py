"""Many nodes against the real API server and scheduler: pods a second, and what agent and placer take.

python bench/kubernetes/run.py                      # 300 nodes, 300 pods each way
python bench/kubernetes/run.py --nodes 50 --pods 100 -o kubernetes.json

The nodes have slices of eight GPUs and no kubelets. `make test-kubernetes` builds the programs first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cotenant import output_files

TREE = Path(__file__).parents[2]
WAYS = ("stock", "first-fit", "muxflow")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--pods", type=int, default=300)
    parser.add_argument("--way", nargs="+", choices=WAYS, default=WAYS, dest="ways")
    parser.add_argument("--seconds", type=float, default=600, help="the longest that each way may take")
    parser.add_argument("-o", "--output", type=output_files.argument, help="all figures as JSON")
    options = parser.parse_args(words)
    # The cluster is the tests'.
    sys.path.insert(0, str(TREE))
    from tests.kubernetes import build
    from tests.kubernetes.real.control_plane import PROGRAMS, ControlPlane

    if absent := build.missing(build.default_folder(), PROGRAMS):
        sys.exit(f"error: not built: {', '.join(absent)}\nhint: python tests/kubernetes/build.py")
    os.environ.setdefault("COTENANT_TEST_KUBERNETES", str(build.default_folder()))
    figures: dict[str, Any] = {"nodes": options.nodes, "pods": options.pods}
    with tempfile.TemporaryDirectory(prefix="cotenant-bench-") as folder:
        plane = ControlPlane(Path(folder))
        try:
            plane.start()
            measure(plane, options, figures)
        finally:
            plane.stop()
    if options.output:
        options.output.write_text(json.dumps(figures, indent=2))
    return 0


def measure(plane: Any, options: argparse.Namespace, figures: dict[str, Any]) -> None:
    from tests.kubernetes.real import fake_nodes

    began = time.monotonic()
    with fake_nodes.offered(plane, "bench", options.nodes):
        figures["offered_s"] = time.monotonic() - began
        print(f"{options.nodes} nodes of {fake_nodes.GPUS} GPUs offered in {figures['offered_s']:.0f} s")
        figures["agent_mib"] = agent_mib(plane)
        print(f"an agent takes {figures['agent_mib']:.0f} MiB")
        fake_nodes.template(plane, "serving", "production", "60Gi", promise="5%")
        fake_nodes.template(plane, "batch", "opportunistic", "30Gi")
        print(
            "| placed by | pods a second | median from creation to binding | the placer's memory | its CPU time |"
        )
        print("| --- | --: | --: | --: | --: |")
        for way in options.ways:
            figures[way] = one_way(plane, way, options)
            print(row(way, figures[way]), flush=True)


def one_way(plane: Any, way: str, options: argparse.Namespace) -> dict[str, float]:
    from tests.kubernetes.real import fake_nodes

    # One in four is production, with a promise; the others are of two kinds.
    kinds = (("serving", "decode"), ("batch", "gpt"), ("batch", "resnet"), ("batch", "gpt"))
    made = [fake_nodes.pod(f"{way}-{number}", *kinds[number % len(kinds)]) for number in range(options.pods)]
    if way == "stock":
        bound, found = fake_nodes.bind(plane, made, options.seconds), {}
    else:
        with fake_nodes.webhook(plane, has_placer=True), fake_nodes.placer(plane, way) as process:
            fake_nodes.until_gated(plane, "batch")
            bound = fake_nodes.bind(plane, made, options.seconds)
            found = {
                "placer_mib": fake_nodes.resident_mib(process.pid),
                "placer_cpu_s": fake_nodes.cpu_seconds(process.pid),
            }
    fake_nodes.remove(plane)
    return {"pods_a_second": bound.a_second, "median_s": bound.median_seconds, **found}


def row(way: str, found: dict[str, float]) -> str:
    name = "the stock scheduler" if way == "stock" else f"`placer --policy {way}`"
    memory = f"{found['placer_mib']:.0f} MiB" if "placer_mib" in found else ""
    cpu = f"{found['placer_cpu_s']:.1f} s" if "placer_cpu_s" in found else ""
    return f"| {name} | {found['pods_a_second']:.1f} | {found['median_s']:.0f} s | {memory} | {cpu} |"


def agent_mib(plane: Any) -> float:
    """Of an agent on a software GPU, once it has offered it."""
    from cotenant.launch import native_files
    from tests.kubernetes.real import fake_nodes
    from tests.kubernetes.real.control_plane import until

    plane.fake_node("bench-agent")
    with tempfile.TemporaryDirectory(prefix="cotenant-agent-") as folder:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "cotenant", "kubernetes", "agent", "--node", "bench-agent"),
                *("--kubeconfig", str(plane.kubeconfig), "--kubelet", f"{folder}/kubelet"),
                *("--state", f"{folder}/state", "--cdi", f"{folder}/cdi", "--segment", f"{folder}/segment"),
            ],
            env={
                "PATH": "/usr/bin:/bin",
                "LD_LIBRARY_PATH": str(native_files.softgpu()),
                "COTENANT_SOFTGPU": "small",
                "COTENANT_SOFTGPU_DIR": folder,
            },
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            until(
                lambda: plane.cluster.get("resource.k8s.io/v1", "ResourceSlice", "bench-agent-cotenant.dev"),
                "the agent offers nothing",
            )
            return fake_nodes.resident_mib(process.pid)
        finally:
            process.terminate()
            process.wait(120)
            plane.cluster.delete("resource.k8s.io/v1", "ResourceSlice", "bench-agent-cotenant.dev")
            plane.cluster.delete("v1", "Node", "bench-agent")


if __name__ == "__main__":
    sys.exit(main())
