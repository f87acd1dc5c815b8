"""A CDI file applied by hand: a command in a mount namespace of its own, with the file's mounts and variables.

Not a container: the command sees the machine's files but for /etc, /opt and /dev/shm, of which it has copies or
nothing. What it must not see, it does not.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest


def required() -> None:
    """Skips where this cannot be done."""
    if os.geteuid() != 0:
        pytest.skip("mounts need root")
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    if subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/opt"], check=False).returncode:
        pytest.skip("this machine allows no mounts")


def command_in(specification: Path, command: Sequence[str], stage: Path) -> list[str]:
    """The command line; `stage` is an empty folder."""
    edits = json.loads(specification.read_text())["containerEdits"]
    lines = ["set -e", f"mount -t tmpfs none {stage}"]
    for number, mount in enumerate(edits["mounts"]):
        host = Path(mount["hostPath"])
        at = f"{stage}/{number}"
        lines += [f"mkdir {at}" if host.is_dir() else f"touch {at}", f"mount --bind {host} {at}"]
    lines += [f"cp -a /etc {stage}/etc", f"mount --bind {stage}/etc /etc"]
    lines += ["mount -t tmpfs none /opt", "mount -t tmpfs none /dev/shm"]
    for number, mount in enumerate(edits["mounts"]):
        inside = mount["containerPath"]
        is_folder = Path(mount["hostPath"]).is_dir()
        lines += [f"mkdir -p {inside}" if is_folder else f"mkdir -p $(dirname {inside}); touch {inside}"]
        lines += [f"mount --bind {stage}/{number} {inside}"]
        if "ro" in mount["options"]:
            lines += [f"mount -o remount,bind,ro {inside}"]
    # What a container has from its image and the runtime, and no more.
    variables = ["PATH=/usr/bin:/bin", *edits.get("env", ())]
    lines += [f"exec env -i {shlex.join([*variables, *command])}"]
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join(lines)]
