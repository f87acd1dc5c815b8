"""Container images made of a few of this machine's own files: the cluster of the tests reaches no registry."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def with_libraries(programs: Iterable[Path]) -> dict[str, Path]:
    """The programs and the shared libraries that they need, by their paths in the image."""
    found: dict[str, Path] = {}
    for program in programs:
        listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+)", listed):
            found[library] = Path(library).resolve()
    return found


def write(path: Path, name: str, files: dict[str, Path], command: list[str]) -> None:
    """An OCI archive with one layer."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for inside, source in sorted(files.items()):
            entry = tarfile.TarInfo(inside.lstrip("/"))
            content = source.read_bytes()
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
        for folder in ("tmp", "dev", "proc", "sys", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    def described(value: object, kind: str) -> dict[str, object]:
        return blob(json.dumps(value).encode(), kind)

    oci = "application/vnd.oci.image"
    only = blob(layer.getvalue(), f"{oci}.layer.v1.tar")
    config = described(
        {
            "architecture": MACHINES[platform.machine()],
            "os": "linux",
            "config": {"Cmd": command, "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [only["digest"]]},
        },
        f"{oci}.config.v1+json",
    )
    manifest = described(
        {
            "schemaVersion": 2,
            "mediaType": f"{oci}.manifest.v1+json",
            "config": config,
            "layers": [only],
        },
        f"{oci}.manifest.v1+json",
    )
    manifest["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
    index = {"schemaVersion": 2, "manifests": [manifest]}
    with tarfile.open(path, "w") as tar:
        for inside, content in {
            "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
            "index.json": json.dumps(index).encode(),
            **{f"blobs/sha256/{digest}": content for digest, content in blobs.items()},
        }.items():
            entry = tarfile.TarInfo(inside)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def found(name: str) -> Path:
    path = shutil.which(name)
    assert path, f"there is no {name}"
    return Path(path).resolve()
