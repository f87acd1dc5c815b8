"""What a container needs so that the command in it is a tenant of this machine's segment: the segment and the
interposer, mounted where they lie here, and the variables that `cotenant run` would set.

The driver is not among them: the container's runtime mounts its own (`--gpus`, NVIDIA's CDI files), and the interposer
finds it at the usual places.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotenant import classes, segment
from cotenant.errors import USAGE, Problem
from cotenant.launch import environment, native_files, python_path

RUNTIMES = ("docker", "podman", "cdi")
CDI_VERSION = "0.6.0"
CDI_KIND = "cotenant.dev/tenant"
PASSED = (*environment.SETTINGS, "COTENANT_QUIET", "LD_PRELOAD")
# Of one run, or of this machine alone.
NOT_PASSED = ("COTENANT_DRIVER",)
OF_ONE_RUN = ("COTENANT_RUN_ID", "COTENANT_NAME")


@dataclass(frozen=True)
class Bind:
    path: Path  # the same here and in the container
    is_writable: bool


def binds(path: Path, with_helper: bool) -> list[Bind]:
    found = [Bind(path, True), Bind(native_files.folder(), False)]
    return [*found, Bind(python_path.FOLDER, False)] if with_helper else found


def variables(tenant: Mapping[str, str]) -> dict[str, str]:
    """Of the environment that a tenant would have here, what it needs in a container."""
    kept = {name: tenant[name] for name in PASSED if name in tenant and name not in NOT_PASSED}
    kept["LD_PRELOAD"] = str(native_files.shim())  # others that are preloaded here are not there
    if has_helper(tenant):
        kept["PYTHONPATH"] = str(python_path.FOLDER)
    if native_files.is_softgpu(Path(tenant["COTENANT_DRIVER"])):
        # Where there is no GPU: both sides use the software GPU of this installation, whose folder they must share.
        kept["COTENANT_DRIVER"] = tenant["COTENANT_DRIVER"]
        kept |= {name: tenant[name] for name in tenant if name.startswith("COTENANT_SOFTGPU")}
    return kept


def has_helper(tenant: Mapping[str, str]) -> bool:
    return str(python_path.FOLDER) in tenant.get("PYTHONPATH", "").split(os.pathsep)


def flags(runtime: str, tenant: Mapping[str, str]) -> list[str]:
    """For `docker run` or `podman run`."""
    path = Path(tenant["COTENANT_SEGMENT"])
    found = [*mount_flags(binds(path, has_helper(tenant)))]
    found += [f"--env={name}={value}" for name, value in variables(tenant).items()]
    if runtime == "podman":
        # SELinux would keep the container from a segment that others use, too.
        found.append("--security-opt=label=disable")
        if os.geteuid() != 0:
            found.append("--userns=keep-id")
    for flag in found:
        if flag.split() != [flag]:
            raise Problem(f"'{flag}' would be several words in a shell", "choose names without spaces", USAGE)
    return found


def mount_flags(wanted: Sequence[Bind]) -> Iterator[str]:
    for bind in wanted:
        if "," in str(bind.path):
            raise Problem(f"--mount cannot hold the path {bind.path}", "install into a folder without commas")
        read_only = "" if bind.is_writable else ",readonly"
        yield f"--mount=type=bind,source={bind.path},target={bind.path}{read_only}"


def cdi(tenants: Mapping[str, Mapping[str, str]]) -> str:
    """A CDI file with a device for each class, by what its tenants would have here."""
    import json

    devices = [
        {"name": name, "containerEdits": edits(tenant)}
        for name, tenant in tenants.items()
        if name in classes.NAMES
    ]
    return json.dumps({"cdiVersion": CDI_VERSION, "kind": CDI_KIND, "devices": devices}, indent=2)


def edits(tenant: Mapping[str, str]) -> dict[str, Any]:
    path = Path(tenant["COTENANT_SEGMENT"])
    return {
        "env": [f"{name}={value}" for name, value in variables(tenant).items() if name not in OF_ONE_RUN],
        "mounts": [
            {
                "hostPath": str(bind.path),
                "containerPath": str(bind.path),
                "options": [*([] if bind.is_writable else ["ro"]), "nosuid", "nodev", "bind"],
            }
            for bind in binds(path, has_helper(tenant))
        ],
    }


def explanation(runtime: str, path: Path) -> str:
    """For people, on stderr."""
    whose = (
        "its administrator's: any user in the container can be a tenant"
        if segment.is_folder(path)
        else "yours: in the container root, or your own user number, can be a tenant"
    )
    use = {
        "docker": "docker run $(cotenant run --print-mounts docker) --gpus all IMAGE COMMAND",
        "podman": "podman run $(cotenant run --print-mounts podman) --device nvidia.com/gpu=all IMAGE COMMAND",
        "cdi": f"write it to /etc/cdi/cotenant.json, then: docker run --device {CDI_KIND}=opportunistic --gpus all ...",
    }[runtime]
    return (
        f"use: {use}\n"
        f"The segment {path} is {whose}.\n"
        "The image needs the GNU C library 2.28 or newer (not musl); the driver comes from the container's runtime."
    )
