"""The pod, namespace and container that a process is in, as far as its cgroup's path and its environment say.

A cgroup's path has the UID of the pod and the id of the container. Their names are only in the environment, where the
pod's specification put them there: POD_NAME, POD_NAMESPACE, CONTAINER_NAME. The name wins over the id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from cotenant.terminal import printable

PROC = Path("/proc")
POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?=/|$)", re.MULTILINE)
SHORT_ID = 12  # as docker ps has it
MOST_BYTES = 1 << 20
VARIABLES = {"pod": "POD_NAME", "namespace": "POD_NAMESPACE", "container": "CONTAINER_NAME"}


def of_process(pid: int) -> dict[str, str]:
    """The labels; empty for a process in no container, for one that has ended, and for one that may not be read."""
    labels = in_cgroup(text_of(pid, "cgroup"))
    variables = environment(text_of(pid, "environ"))
    if "KUBERNETES_SERVICE_HOST" in variables and variables.get("HOSTNAME"):
        labels["pod"] = variables["HOSTNAME"]  # the pod's name, unless its specification names another host
    return labels | {
        label: variables[variable] for label, variable in VARIABLES.items() if variables.get(variable)
    }


def in_cgroup(path: str) -> dict[str, str]:
    labels = {}
    if pod := POD.search(path):
        labels["pod"] = pod.group(1).replace("_", "-")
    if containers := CONTAINER.findall(path):
        labels["container"] = containers[-1][:SHORT_ID]
    return labels


def environment(text: str) -> Mapping[str, str]:
    pairs = (entry.partition("=") for entry in text.split("\0"))
    return {name: printable(value) for name, _, value in pairs}


def text_of(pid: int, file: str) -> str:
    try:
        with (PROC / str(pid) / file).open("rb") as opened:
            return opened.read(MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
