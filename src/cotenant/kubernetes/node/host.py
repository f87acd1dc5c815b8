"""Making the node ready: the native files where containers can mount them, and the node's segment."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from cotenant import __version__, segment
from cotenant.errors import Problem, narrate
from cotenant.kubernetes.inventory import Device
from cotenant.kubernetes.node import container, durable
from cotenant.launch import native_files
from cotenant.segment.folder import FolderSegment, create_folder, put_gpus
from cotenant.segment.layout import uuid_bytes
from cotenant.segment.paths import is_folder

NEEDED = ("shim", "libcotenant_wire.so")
FOR_SOFTGPU = ("softgpu", "devices")


def make_ready(
    state: Path, shared: Path, devices: Sequence[Device], softgpu: bool, environment: Mapping[str, str]
) -> container.Host:
    """Raises Problem."""
    state.mkdir(parents=True, exist_ok=True)
    native = copy_native(state, (*NEEDED, *FOR_SOFTGPU) if softgpu else NEEDED)
    preload = state / "ld.so.preload"
    durable.write(preload, f"{container.NATIVE / 'shim' / 'libcuda.so.1'}\n")
    make_segment(shared, devices)
    folder = Path(environment.get("COTENANT_SOFTGPU_DIR") or f"/tmp/cotenant-softgpu-{os.getuid()}")
    if softgpu:
        folder.mkdir(parents=True, exist_ok=True)
        return container.Host(native, preload, shared, folder, environment.get("COTENANT_SOFTGPU", ""))
    return container.Host(native, preload, shared)


def copy_native(state: Path, parts: Sequence[str]) -> Path:
    """A folder named after what is in it: containers that still run have the files of another build open."""
    source = native_files.folder()
    files: dict[Path, Path] = {}
    for part in parts:
        whole = source / part
        if not whole.exists():
            raise Problem(f"{whole} is missing", "install the package again")
        inside = [path for path in sorted(whole.rglob("*")) if path.is_file()] if whole.is_dir() else [whole]
        files |= {path.relative_to(source): path for path in inside}
    digest = hashlib.sha256()
    for name, path in files.items():
        digest.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    place = state / f"native-{__version__}-{digest.hexdigest()[:12]}"
    if place.exists():
        return place
    fresh = place.with_name(f"{durable.NEW}{place.name}")
    shutil.rmtree(fresh, ignore_errors=True)
    for name, path in files.items():
        (fresh / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, fresh / name)
    fresh.rename(place)
    durable.sync(state)
    return place


def enforceable(shared: Path, devices: Sequence[Device]) -> list[Device]:
    """Those that have a place in the node's segment: on any other no limit would hold, so it is not offered."""
    header = FolderSegment(shared).read_header()
    known = {bytes(place.uuid) for place in header.gpus if place.known == segment.GPU_VALID}
    for device in devices:
        if uuid_bytes(device.uuid) not in known:
            narrate(
                f"{device.name} is not offered: {shared} has place for {segment.GPUS} GPUs; if some of them are gone,"
                " remove it while no pod uses it, or restart the node"
            )
    return [device for device in devices if uuid_bytes(device.uuid) in known]


def tidy(shared: Path) -> None:
    """Reaps the slots of killed tenants: on a node nobody else may be left to do it."""
    with contextlib.suppress(OSError, segment.BadSegment):
        FolderSegment(shared).clean()


def make_segment(shared: Path, devices: Sequence[Device]) -> None:
    """An administrator's segment with all GPUs of the node, also with those that came later; the class of a tenant is
    its identity file's to limit."""
    known = (uuid_bytes(device.uuid) for device in devices)
    uuids = [uuid for uuid in known if uuid]
    if is_folder(shared):
        try:
            segment.open(shared).read()
            with FolderSegment(shared).writable_header() as header:
                put_gpus(header, uuids)
        except (segment.BadSegment, OSError) as error:
            raise Problem(str(error), f"end the jobs that use it and remove {shared}") from None
        return
    try:
        create_folder(shared, None, (), uuids)
    except FileExistsError:
        if is_folder(shared):
            return  # another agent was faster
        raise Problem(
            f"{shared} is a segment for one user", f"end the daemon that made it, and remove {shared}"
        ) from None
    except (OSError, segment.BadSegment) as error:
        raise Problem(
            f"cannot create {shared}: {error}", "the agent has to run as root, with the host's /dev/shm"
        ) from None
