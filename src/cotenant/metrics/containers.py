"""The pod, namespace and container that a process is in.

A cgroup's path has the UID of the pod and the id of the container. On a node of a cluster the agent writes down the
names of all containers by these ids, SEGMENT/daemon.pods. Elsewhere names are only in the environment, where the pod's
specification put them there: POD_NAME, POD_NAMESPACE, CONTAINER_NAME. What the agent says wins over the environment,
which is the pod's own, and a name over an id.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cotenant.daemon import files
from cotenant.errors import Problem
from cotenant.terminal import printable

PROC = Path("/proc")
POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?=/|$)", re.MULTILINE)
SHORT_ID = 12  # as docker ps has it
MOST_BYTES = 1 << 20
VARIABLES = {"pod": "POD_NAME", "namespace": "POD_NAMESPACE", "container": "CONTAINER_NAME"}
NAMES = ".pods"  # of a daemon's file

Names = Mapping[str, Mapping[str, str]]  # the labels of a container, by its id


@dataclass(frozen=True)
class Within:
    """What is known of a process by itself: nothing of one in no container, of one that has ended, and of one that may
    not be read."""

    labels: Mapping[str, str] = field(default_factory=dict)
    ids: tuple[str, ...] = ()  # of its container, and of those around it

    def named(self, names: Names) -> dict[str, str]:
        return dict(self.labels) | next((dict(names[one]) for one in self.ids if one in names), {})


def of_process(pid: int) -> Within:
    cgroup = text_of(pid, "cgroup")
    labels = in_cgroup(cgroup)
    variables = environment(text_of(pid, "environ"))
    if "KUBERNETES_SERVICE_HOST" in variables and variables.get("HOSTNAME"):
        labels["pod"] = variables["HOSTNAME"]  # the pod's name, unless its specification names another host
    said = {label: variables[variable] for label, variable in VARIABLES.items() if variables.get(variable)}
    return Within(labels | said, ids_in_cgroup(cgroup))


def ids_in_cgroup(path: str) -> tuple[str, ...]:
    """The innermost container's first. Of cgroup v1 the paths of all hierarchies say the same."""
    return tuple(dict.fromkeys(reversed(CONTAINER.findall(path))))


def write_names(segment: Path, names: Names) -> None:
    """Raises OSError."""
    files.replace(segment, files.beside(segment, NAMES), json.dumps(names).encode())


def read_names(segment: Path) -> Names:
    """Empty where no agent has written any."""
    try:
        with os.fdopen(files.open_trusted(segment, files.beside(segment, NAMES), os.O_RDONLY), "rb") as file:
            found = json.loads(file.read(MOST_BYTES * 16))
        return {
            str(one): {str(label): printable(str(name)) for label, name in labels.items()}
            for one, labels in found.items()
        }
    except (OSError, Problem, ValueError, AttributeError, RecursionError):
        return {}


def in_cgroup(path: str) -> dict[str, str]:
    labels = {}
    if pod := POD.search(path):
        labels["pod"] = pod.group(1).replace("_", "-")
    if ids := ids_in_cgroup(path):
        labels["container"] = ids[0][:SHORT_ID]
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
