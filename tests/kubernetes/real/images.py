"""Container images made of a few of this machine's own files: the cluster of the tests reaches no registry."""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PACKAGES = Path("/opt/packages")
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
LEFT_OUT = {"site-packages", "dist-packages", "test", "idlelib", "lib2to3", "tkinter", "ensurepip"} | {
    f"config-{sys.version_info.major}.{sys.version_info.minor}-{platform.machine()}-linux-gnu"
}


def with_libraries(programs: Iterable[Path]) -> dict[str, Path]:
    """The programs and the shared libraries that they need, by their paths in the image."""
    listed = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False).stdout
    # A line of each program's own name ends with a colon.
    named = set(re.findall(r"(/\S+)(?= \(0x)", listed))
    return {library: Path(library).resolve() for library in named}


def write(path: Path, names: Sequence[str], files: dict[str, Path], config: dict[str, Any]) -> None:
    """An OCI archive with one layer. `config` is the image's: Cmd, Env and so on."""
    layer = path.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        for inside, source in sorted(files.items()):
            entry = tarfile.TarInfo(inside.lstrip("/"))
            entry.size, entry.mode = source.stat().st_size, 0o755
            with source.open("rb") as file:
                tar.addfile(entry, file)
        for folder in ("tmp", "dev", "proc", "sys", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
    blobs: dict[str, bytes] = {}

    def described(value: object, kind: str) -> dict[str, object]:
        content = json.dumps(value).encode()
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    oci = "application/vnd.oci.image"
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    size = layer.stat().st_size
    only = {"mediaType": f"{oci}.layer.v1.tar", "digest": f"sha256:{digest}", "size": size}
    described_config = described(
        {
            "architecture": MACHINES[platform.machine()],
            "os": "linux",
            "config": {"Env": ["PATH=/bin"]} | config,
            "rootfs": {"type": "layers", "diff_ids": [only["digest"]]},
        },
        f"{oci}.config.v1+json",
    )
    manifest = described(
        {
            "schemaVersion": 2,
            "mediaType": f"{oci}.manifest.v1+json",
            "config": described_config,
            "layers": [only],
        },
        f"{oci}.manifest.v1+json",
    )
    named = [
        manifest
        | {"annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}}
        for name in names
    ]
    index = {"schemaVersion": 2, "manifests": named}
    with tarfile.open(path, "w") as tar:
        for inside, content in {
            "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
            "index.json": json.dumps(index).encode(),
            **{f"blobs/sha256/{digest}": content for digest, content in blobs.items()},
        }.items():
            entry = tarfile.TarInfo(inside)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        tar.add(layer, f"blobs/sha256/{digest}")
    layer.unlink()


def found(name: str) -> Path:
    path = shutil.which(name)
    assert path, f"there is no {name}"
    return Path(path).resolve()


def like_the_containerfile_s(
    folder: Path, environment: dict[str, str]
) -> tuple[dict[str, Path], dict[str, Any]]:
    """The files and the configuration of an image with what deploy/kubernetes/Containerfile installs: this Python, the
    package with its extras from this environment, and a shell. `folder` is for what is made."""
    program = Path(sys.executable).resolve()
    library = Path(sysconfig.get_paths()["stdlib"]).resolve()
    command = folder / "cotenant"
    command.write_text(f'#!/bin/sh\nexec {program} -m cotenant "$@"\n')
    files = {str(program): program, "/usr/local/bin/cotenant": command}
    for path in library.rglob("*"):
        if path.is_file() and not LEFT_OUT & set(path.relative_to(library).parts):
            files[str(path)] = path
    for name in installed("cotenant", {"cluster", "kubernetes", "metrics"}):
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            source = Path(str(distribution.locate_file(file)))
            if not {"..", "tests"} & set(file.parts) and source.is_file():
                files[str(PACKAGES / file)] = source
    shared = [path for path in files.values() if path == program or ".so" in path.name]
    tools = {f"/bin/{one}": found(one) for one in ("sh", "sleep")}
    # Those of a package lie beside it.
    libraries = {
        inside: path
        for inside, path in with_libraries([*shared, *tools.values()]).items()
        if "site-packages" not in path.parts
    }
    variables = {"PATH": "/usr/local/bin:/bin", "PYTHONPATH": str(PACKAGES)} | environment
    config = {"Entrypoint": ["cotenant"], "Env": [f"{name}={value}" for name, value in variables.items()]}
    return files | tools | libraries, config


def installed(name: str, extras: set[str]) -> set[str]:
    """The names of a distribution and of all that it needs, with these extras."""
    seen: dict[str, set[str]] = {}
    waiting = [(name, extras)]
    while waiting:
        one, wanted = waiting.pop()
        if one in seen and wanted <= seen[one]:
            continue
        seen[one] = seen.get(one, set()) | wanted
        for text in importlib.metadata.distribution(one).requires or ():
            needed = Requirement(text)
            if not needed.marker or any(
                needed.marker.evaluate({"extra": extra}) for extra in (*seen[one], "")
            ):
                waiting.append((canonicalize_name(needed.name), set(needed.extras)))
    return set(seen)
