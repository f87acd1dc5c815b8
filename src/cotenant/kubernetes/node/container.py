"""What a container of a claim gets from its node: a CDI file that the container runtime reads.

    /opt/cotenant                  the interposer, with its software GPU where the node has no other
    /etc/ld.so.preload             loads the interposer into every program, whatever its environment says
    /etc/cotenant/identity         class, limits and name (native/tenant/identity_file.h)
    /dev/shm/cotenant.shared       the node's segment; only its slots can be written

All mounts are read-only but the folder of slots. The GPU itself comes by NVIDIA's own CDI file of the node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotenant.errors import Problem
from cotenant.kubernetes import names
from cotenant.kubernetes.claims import Terms
from cotenant.kubernetes.inventory import Device
from cotenant.launch.job_name import LONGEST_BYTES
from cotenant.segment.paths import SHARED

KIND = f"{names.DRIVER}/claim"
CDI_VERSION = "0.5.0"
NATIVE = Path("/opt/cotenant")
IDENTITY = Path("/etc/cotenant/identity")
PRELOAD = Path("/etc/ld.so.preload")
NVIDIA = "nvidia.com/gpu"


@dataclass(frozen=True)
class Host:
    """Where things lie on the node."""

    native: Path
    preload: Path
    segment: Path
    softgpu: Path | None = None  # the folder of the software GPU's sockets; None: NVIDIA's driver
    machine: str = ""  # which software GPUs there are, as COTENANT_SOFTGPU has them; empty: the default


def identity(terms: Terms, softgpu: bool) -> str:
    """The lines of the claim's identity file."""
    owner = terms.pods[0] if terms.pods else terms.name
    said = {
        "COTENANT_CLASS": terms.tenant_class,
        "COTENANT_SEGMENT": str(SHARED),
        "COTENANT_RUN_ID": terms.uid.replace("-", ""),
        "COTENANT_NAME": f"{terms.namespace}/{owner}"[:LONGEST_BYTES],
        "COTENANT_MEMORY": str(terms.memory_limit),
        "COTENANT_WEIGHT": terms.parameters.weight,
        "COTENANT_SLOWDOWN": terms.parameters.promise,
        "COTENANT_FLOOR": terms.floor,
        "COTENANT_OVERSUBSCRIBE": "1" if terms.may_overflow else None,
        "COTENANT_DRIVER": str(NATIVE / "softgpu" / "libcuda.so.1") if softgpu else None,
    }
    return "".join(f"{name}={value}\n" for name, value in said.items() if value)


def file_name(uid: str) -> str:
    return f"{names.DRIVER}-claim-{uid}.json"


def uid_in(file: str) -> str | None:
    """The claim of a CDI file of ours; None: the file is somebody else's."""
    begin, end = f"{names.DRIVER}-claim-", ".json"
    return file[len(begin) : -len(end)] if file.startswith(begin) and file.endswith(end) else None


def edits(uuids: Sequence[str], identity_file: Path, host: Host) -> dict[str, Any]:
    """The mounts and variables of a container."""
    mounts = [
        mount(host.native, NATIVE),
        mount(host.preload, PRELOAD),
        mount(identity_file, IDENTITY),
        mount(host.segment, SHARED),
        mount(host.segment / "slots", SHARED / "slots", "rw"),
    ]
    made: dict[str, Any] = {"mounts": mounts}
    if host.softgpu:
        mounts.append(mount(host.softgpu, Path("/tmp/cotenant-softgpu-0"), "rw"))
        made["env"] = [f"CUDA_VISIBLE_DEVICES={','.join(uuids)}"]
        if host.machine:
            made["env"].append(f"COTENANT_SOFTGPU={host.machine}")
    return made


def specification(uid: str, uuids: Sequence[str], identity_file: Path, host: Host) -> str:
    """The CDI file of a claim. What all of its devices need stands once: a container that has two of them would mount
    it twice."""
    devices = [
        {"name": f"{uid}-{number}", "containerEdits": {"env": [f"COTENANT_CLAIMED_GPU_{number}={uuid}"]}}
        for number, uuid in enumerate(uuids)
    ]
    shared = edits(uuids, identity_file, host)
    made = {"cdiVersion": CDI_VERSION, "kind": KIND, "devices": devices, "containerEdits": shared}
    return json.dumps(made, indent=2) + "\n"


def mount(host: Path, inside: Path, how: str = "ro") -> dict[str, Any]:
    return {
        "hostPath": str(host),
        "containerPath": str(inside),
        "options": [how, "nosuid", "nodev", "bind"]
        if how == "ro"
        else [how, "nosuid", "nodev", "noexec", "bind"],
    }


def device_id(uid: str, number: int) -> str:
    return f"{KIND}={uid}-{number}"


def nvidia_devices(folders: Sequence[Path]) -> set[str]:
    """The device names in NVIDIA's CDI files of this node."""
    import yaml

    found: set[str] = set()
    for folder in folders:
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.suffix not in (".json", ".yaml", ".yml"):
                continue
            try:
                # All values as texts: 0:1 without quotes would be a number in base 60.
                said = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
            except (OSError, UnicodeDecodeError, yaml.YAMLError):
                continue
            if isinstance(said, Mapping) and said.get("kind") == NVIDIA:
                found |= {str(device["name"]) for device in said.get("devices") or () if "name" in device}
    return found


def nvidia_id(device: Device, known: set[str]) -> str:
    """How NVIDIA's CDI file names the GPU. Raises Problem."""
    for name in (device.uuid, device.index):
        if name in known:
            return f"{NVIDIA}={name}"
    raise Problem(
        f"no CDI file of this node has the GPU {device.uuid}",
        "run on the node: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
    )
