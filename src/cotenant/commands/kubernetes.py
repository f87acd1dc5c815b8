"""`cotenant kubernetes`: GPUs of a cluster, claimed by Dynamic Resource Allocation (docs/kubernetes.md)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cotenant import units
from cotenant.cli import Nested
from cotenant.errors import USAGE, Problem, narrate, unknown
from cotenant.kubernetes import names
from cotenant.options import OneOf
from cotenant.terminal import say

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

    from cotenant.cluster.placement.interface import Placement
    from cotenant.kubernetes.cluster import Cluster

MOST_NAMED = 5  # of pods, in a line

kubeconfig_option = click.option(
    "--kubeconfig",
    metavar="FILE",
    envvar="COTENANT_KUBECONFIG",
    help="How to reach the cluster.  [default: the pod's own account, KUBECONFIG, ~/.kube/config]",
)

namespace_option = click.option(
    "--namespace",
    default=names.NAMESPACE,
    show_default=True,
    metavar="NAME",
    envvar="COTENANT_KUBERNETES_NAMESPACE",
    help="Where Cotenant's own pods run.",
)

kubelet_option = click.option(
    "--kubelet",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    default=Path("/var/lib/kubelet"),
    show_default=True,
    envvar="COTENANT_KUBERNETES_KUBELET",
    help="Kubelet's folder.",
)

state_option = click.option(
    "--state",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    default=Path("/var/lib/cotenant"),
    show_default=True,
    envvar="COTENANT_KUBERNETES_STATE",
    help="What the agent keeps over a restart of the node, and containers mount.",
)

node_segment_option = click.option(
    "--segment",
    "segment_file",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    envvar="COTENANT_SEGMENT",
    help="The node's segment.  [default: /dev/shm/cotenant.shared]",
)


@click.group(
    "kubernetes",
    cls=Nested,
    short_help="Share the GPUs of a Kubernetes cluster.",
    epilog="""\b
Examples:
  cotenant kubernetes install --dry-run | kubectl apply -f -
  cotenant kubernetes uninstall""",
)
def command() -> None:
    """Share the GPUs of a Kubernetes cluster (1.36 or later) between pods, by claims.

    Needs the extra `cotenant[kubernetes]`. docs/kubernetes.md shows what a pod's author writes.
    """


@command.command(
    "install",
    short_help="Install Cotenant in a cluster.",
    epilog="""\b
Examples:
  cotenant kubernetes install --dry-run | kubectl apply -f -
  cotenant kubernetes install --image registry.example/cotenant:1.0
  cotenant kubernetes install --placer muxflow""",
)
@click.option(
    "--image",
    metavar="IMAGE",
    envvar="COTENANT_KUBERNETES_IMAGE",
    help="The container image, made from deploy/kubernetes/Containerfile.  [default: cotenant:VERSION]",
)
@namespace_option
@click.option(
    "--policy",
    metavar="NAME",
    default="guard",
    show_default=True,
    envvar="COTENANT_KUBERNETES_POLICY",
    help="The policy on every node; `cotenant policies` lists them.",
)
@click.option(
    "--placer",
    metavar="NAME",
    default="",
    envvar="COTENANT_KUBERNETES_INSTALL_PLACER",
    help="Also the placer, with this placement policy: muxflow, iadeep and others.  [default: no placer]",
)
@click.option(
    "--dry-run",
    is_flag=True,
    envvar="COTENANT_KUBERNETES_DRY_RUN",
    help="Print the manifests, and stop.",
)
@kubeconfig_option
def install(
    image: str | None, namespace: str, policy: str, placer: str, dry_run: bool, kubeconfig: str | None
) -> None:
    """Install the node agent, the webhook with a certificate, DeviceClasses and PriorityClasses."""
    from cotenant.policies import registry

    if policy not in registry.names():
        raise unknown("policy", policy, registry.names())
    if placer:
        placement(placer)
    if dry_run:
        import yaml

        made = everything(image, namespace, policy, placer)
        say("---\n".join(yaml.safe_dump(one, sort_keys=False, width=1000) for one in made).rstrip())
        return
    from cotenant.kubernetes.cluster import ApiServer

    cluster = ApiServer(kubeconfig)
    for one in everything(image, namespace, policy, placer, cluster):
        cluster.apply(one)
        narrate(f"{one['kind']} {one['metadata']['name']}")


def everything(
    image: str | None, namespace: str, policy: str, placer: str, cluster: Cluster | None = None
) -> list[dict[str, Any]]:
    """With the certificate that the cluster's webhook has already; else with a new one."""
    from dataclasses import asdict, replace

    from cotenant.kubernetes import certificates, manifests

    try:
        there = certificates.of_cluster(cluster, manifests.WEBHOOK, namespace) if cluster else None
        certificate = there or certificates.for_service(manifests.WEBHOOK, namespace)
    except ImportError:
        raise Problem(
            "cryptography is not installed", "install the extra: pip install 'cotenant[kubernetes]'"
        ) from None
    settings = manifests.Settings(
        namespace=namespace, policy=policy, placer=placer, digest=certificate.digest, **asdict(certificate)
    )
    return manifests.everything(replace(settings, image=image) if image else settings)


@command.command(
    "uninstall",
    short_help="Remove Cotenant from a cluster.",
    epilog="""\b
Examples:
  cotenant kubernetes uninstall
  cotenant kubernetes uninstall --namespace gpu-sharing""",
)
@namespace_option
@kubeconfig_option
def uninstall(namespace: str, kubeconfig: str | None) -> None:
    """Remove everything that `install`, the agents and the webhook have made.

    Pods that run go on under the limits they have; their claims are not deleted, and kubelet ends such a pod only when
    there is an agent again. Delete pods with claims first.
    """
    from cotenant.kubernetes import removal
    from cotenant.kubernetes.cluster import ApiServer

    cluster = ApiServer(kubeconfig)
    for kind, name in removal.remove(cluster, namespace):
        narrate(f"{kind} {name} removed")
    if left := removal.users(cluster):
        some = ", ".join(left[:MOST_NAMED]) + (", ..." if len(left) > MOST_NAMED else "")
        narrate(
            f"these pods still have claims: {some}. They run on; to end them, `cotenant kubernetes install` again"
        )


@command.command(
    "agent",
    short_help="Offer this node's GPUs, and prepare claims.",
    epilog="""\b
Examples:
  cotenant kubernetes agent
  cotenant softgpu -- cotenant kubernetes agent --node laptop""",
)
@click.option(
    "--node",
    required=True,
    metavar="NAME",
    envvar="NODE_NAME",
    help="The node that the agent is on.",
)
@click.option(
    "--overflow",
    metavar="SIZE|SHARE",
    default="25%",
    show_default=True,
    envvar="COTENANT_KUBERNETES_OVERFLOW",
    help="Host memory for what claims allocate beyond their GPU memory: 64G, or a share of the node's.",
)
@click.option(
    "--order",
    type=OneOf("order", ("spread", "pack", "fixed")),
    default="spread",
    show_default=True,
    envvar="COTENANT_KUBERNETES_ORDER",
    help="Which GPU the scheduler takes first: the emptiest, the fullest, or as NVML numbers them.",
)
@kubelet_option
@click.option(
    "--cdi",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    default=Path("/var/run/cdi"),
    show_default=True,
    envvar="COTENANT_KUBERNETES_CDI",
    help="Where the container runtime looks for CDI files.",
)
@state_option
@node_segment_option
@kubeconfig_option
def agent(
    node: str,
    overflow: str,
    order: str,
    kubelet: Path,
    cdi: Path,
    state: Path,
    segment_file: Path | None,
    kubeconfig: str | None,
) -> None:
    """Offer this node's GPUs to the scheduler, and prepare claims for kubelet. Runs until it is ended.

    Agent and kubelet may be restarted at any time: running pods go on, and claims stay as they are.
    """
    import functools
    import os

    from cotenant import segment
    from cotenant.gpus import process_memory
    from cotenant.kubernetes.cluster import EXTRA_HINT, ApiServer

    try:
        from cotenant.kubernetes.node import gpus, host
        from cotenant.kubernetes.node.agent import Agent, Places
        from cotenant.kubernetes.node.pods import Pods
        from cotenant.kubernetes.node.preparing import Claims
        from cotenant.kubernetes.node.story import Story
        from cotenant.kubernetes.node.tending import Tending
    except ImportError as error:
        raise Problem(f"{error.name} is not installed", EXTRA_HINT) from None

    size = overflow_bytes(overflow)
    devices, softgpu = gpus.found(os.environ)
    cluster = ApiServer(kubeconfig)
    shared = segment_file or segment.SHARED
    ready = host.make_ready(state, shared, devices, softgpu, os.environ)
    devices = host.enforceable(shared, devices)
    claims = Claims(state, cdi, ready, node, devices)
    narrate(f"{len(devices)} GPUs on {node}: {', '.join(device.name for device in devices)}")
    places = Places(kubelet / "plugins", kubelet / "plugins_registry")
    story = Story(cluster, node)
    pods = Pods(cluster, node)
    on_gpus = functools.partial(process_memory.by_process, os.environ)
    tending = Tending(shared, state, claims, devices, pods, story, on_gpus=on_gpus)
    Agent(node, cluster, claims, devices, places, size, order, tending, story).run(
        lambda: gpus.are_well(os.environ, devices), lambda: host.tidy(shared), told_to_end()
    )


@command.command(
    "device-plugin",
    short_help="Offer this node's GPUs as extended resources.",
    epilog="""\b
Examples:
  cotenant kubernetes device-plugin
  cotenant kubernetes device-plugin --split production=60,opportunistic=40""",
)
@click.option(
    "--split",
    metavar="CLASS=PERCENT[,...]",
    default="production=50,standard=25,opportunistic=25",
    show_default=True,
    envvar="COTENANT_KUBERNETES_SPLIT",
    help="How much of each GPU's memory each class may have; each percent is one unit of cotenant.dev/CLASS.",
)
@kubelet_option
@state_option
@node_segment_option
def device_plugin(split: str, kubelet: Path, state: Path, segment_file: Path | None) -> None:
    """Offer this node's GPUs as extended resources, for clusters without Dynamic Resource Allocation.

    A container asks for `cotenant.dev/production: 20` and gets 20 % of one GPU's memory, in that class.
    """
    import os

    from cotenant import segment
    from cotenant.kubernetes.cluster import EXTRA_HINT

    try:
        from cotenant.kubernetes.node import device_plugin as plugins
        from cotenant.kubernetes.node import gpus, host
        from cotenant.kubernetes.node.agent import State
    except ImportError as error:
        raise Problem(f"{error.name} is not installed", EXTRA_HINT) from None

    divided = plugins.parse_split(split)
    devices, softgpu = gpus.found(os.environ)
    shared = segment_file or segment.SHARED
    ready = host.make_ready(state, shared, devices, softgpu, os.environ)
    devices = host.enforceable(shared, devices)
    now = State({device.name: "" for device in devices})
    made = [plugins.Plugin(name, percent, devices, now, state, ready) for name, percent in divided.items()]
    plugins.Plugins(kubelet / "device-plugins", made).run(
        now, lambda: gpus.are_well(os.environ, devices), lambda: host.tidy(shared), told_to_end()
    )


def told_to_end() -> threading.Event:
    import signal

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    return ended


def overflow_bytes(text: str) -> int:
    import os

    limit = 0 if text == "0" else units.encoded_limit(text)
    if not limit & units.SHARE_OF_GPU:
        return limit
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return machine * (limit & ~units.SHARE_OF_GPU) // 1_000_000


@command.command(
    "webhook",
    short_help="Turn annotations and other spellings into claims.",
    epilog="""\b
Examples:
  cotenant kubernetes webhook --certificates /certificates""",
)
@click.option(
    "--certificates",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    required=True,
    envvar="COTENANT_KUBERNETES_CERTIFICATES",
    help="Where tls.crt and tls.key are; `install` makes them.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8443,
    show_default=True,
    metavar="PORT",
    envvar="COTENANT_KUBERNETES_PORT",
    help="Where the API server reaches it.",
)
@click.option(
    "--placer",
    is_flag=True,
    envvar="COTENANT_KUBERNETES_PLACER",
    help="Let pods with claims wait until `cotenant kubernetes placer` has chosen their GPU.",
)
@kubeconfig_option
def webhook(certificates: Path, port: int, placer: bool, kubeconfig: str | None) -> None:
    """Answer the API server about new pods: give those that ask for GPUs in a short form their claims.

    Runs until it is ended. docs/kubernetes.md has the annotations, and the spellings of other projects.
    """
    import signal

    from cotenant.kubernetes.cluster import ApiServer
    from cotenant.kubernetes.webhook.server import Webhook, serve

    def ready(server: ThreadingHTTPServer) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            # Not in the handler itself: shutdown waits for the loop that the signal has interrupted.
            signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())

    serve(Webhook(ApiServer(kubeconfig), placer), certificates, port, ready)


def placement(name: str) -> type[Placement]:
    from cotenant.cluster.placement import registry

    found = registry.find(name)
    if found.moves_jobs:
        raise Problem(
            f"the placement policy '{name}' moves running jobs, and pods cannot move",
            "take muxflow or iadeep",
            USAGE,
        )
    return found


@command.command(
    "placer",
    short_help="Choose GPUs for pods by predicted interference.",
    epilog="""\b
Examples:
  cotenant kubernetes placer
  cotenant kubernetes placer --policy iadeep --recorded traces/""",
)
@click.option(
    "--policy",
    metavar="NAME",
    default="muxflow",
    show_default=True,
    envvar="COTENANT_KUBERNETES_PLACEMENT",
    help="The placement policy: muxflow, iadeep, kubeshare, best-fit, worst-fit, first-fit, exclusive.",
)
@click.option(
    "--recorded",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    envvar="COTENANT_KUBERNETES_RECORDED",
    help="Recorded jobs, NAME.trace or NAME.toml; a pod's label cotenant.dev/workload names its own.",
)
@click.option(
    "--observed",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="COTENANT_PREDICT_OBSERVED",
    help="Measured pairs that the prediction learns from, as `cotenant predict --observed`.",
)
@click.option(
    "--release",
    is_flag=True,
    envvar="COTENANT_KUBERNETES_RELEASE",
    help="Let all pods that wait go to the scheduler, without a choice, and stop.",
)
@kubeconfig_option
def placer(
    policy: str, recorded: Path | None, observed: Path | None, release: bool, kubeconfig: str | None
) -> None:
    """Choose a GPU for each pod that the webhook holds back, all of them together, and let it go to the scheduler.

    Runs until it is ended. The webhook needs --placer; `install --placer NAME` sets up both.
    """
    from cotenant.kubernetes.cluster import EXTRA_HINT, ApiServer

    if release:
        from cotenant.kubernetes.placer.release import release_all

        if left := release_all(ApiServer(kubeconfig)):
            hint = "raise the quota that refuses them, and run this again; or delete them"
            raise Problem(f"{left} pods still wait for the placer", hint)
        return

    try:
        from cotenant.kubernetes.placer import placer as placing
        from cotenant.kubernetes.placer.sight import Sight
        from cotenant.kubernetes.placer.slowdowns import known
    except ImportError as error:
        raise Problem(f"{error.name} is not installed", EXTRA_HINT) from None

    chosen = placement(policy)()
    interference = known(recorded, observed)
    cluster = ApiServer(kubeconfig)
    until = told_to_end()
    sight = Sight(cluster, until)
    narrate(f"placing pods by {policy}")
    placing.Placer(cluster, sight.all_of, chosen, interference).run(sight.changed, until)
