"""systemd's units for the daemon. deploy/systemd has them for a program in /usr/bin; `cotenant daemon install` writes
them for this installation.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from cotenant.errors import Problem
from cotenant.segment import SHARED

MARK = "# Written by `cotenant daemon install`."
NAME = "cotenant.service"

COMMON = """\
Type=notify
Restart=on-failure
RestartSec=2
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
"""

USER = """\
{mark}
[Unit]
Description=Cotenant: the policy of this user's jobs on the GPUs
Documentation=man:cotenant-daemon(1)
# The administrator's daemon looks after a segment that all users share.
ConditionPathExists=!{shared}

[Service]
{common}EnvironmentFile=-%E/cotenant/daemon.env
ExecStart={program} daemon --linger inf --replace

[Install]
WantedBy=default.target
"""

# Capabilities: to steer all users' tenants, and to see that a process was started for the segment. No network: the
# control socket has a path. The devices stay, for NVML.
SYSTEM = """\
{mark}
[Unit]
Description=Cotenant: the policy of the GPUs that all users share
Documentation=man:cotenant-daemon(1)
After=nvidia-persistenced.service

[Service]
{common}# COTENANT_SEGMENT_ALLOW, COTENANT_SEGMENT_LIMIT, COTENANT_DAEMON_POLICY, COTENANT_DAEMON_ADMINS and so on.
EnvironmentFile=-/etc/default/cotenant
ExecStartPre=/bin/sh -c 'test -d {shared} || exec {program} segment create {shared}'
ExecStart={program} daemon --segment {shared} --linger inf --replace
# What the policy learns of pairs of programs.
CacheDirectory=cotenant
CacheDirectoryMode=0700
Environment=XDG_CACHE_HOME=/var/cache
CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_SYS_PTRACE
ProtectSystem=strict
ReadWritePaths=/dev/shm
ProtectHome=read-only
PrivateTmp=yes
PrivateNetwork=yes
RestrictAddressFamilies=AF_UNIX
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
ProtectClock=no
ProtectHostname=yes

[Install]
WantedBy=multi-user.target
"""


def unit(is_system: bool, program: str) -> str:
    text = SYSTEM if is_system else USER
    return text.format(mark=MARK, common=COMMON, program=program, shared=SHARED)


def this_program() -> str:
    """As a unit names it."""
    beside = Path(sys.executable).with_name("cotenant")
    words = [str(beside)] if os.access(beside, os.X_OK) else [sys.executable, "-P", "-m", "cotenant"]
    for word in words:
        if not re.fullmatch(r"[\w./+=@:-]+", word):
            raise Problem(f"a unit cannot hold the path {word}", "install into a folder with a plain name")
    return " ".join(words)


def is_hidden(program: str) -> bool:
    """Whether the system's unit would not find it: it has a /tmp of its own."""
    return any(Path(program.split(maxsplit=1)[0]).is_relative_to(place) for place in ("/tmp", "/var/tmp"))


def folder(is_system: bool, environment: Mapping[str, str]) -> Path:
    if is_system:
        return Path("/etc/systemd/system")
    above = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(above) / "systemd" / "user"


def write(file: Path, text: str) -> None:
    """Whole or not at all. Raises a Problem where somebody else's unit is in the way, and OSError."""
    if file.exists() and not file.read_text(errors="replace").startswith(MARK):
        raise Problem(f"{file} is not ours", "move it away, or compare it with --dry-run")
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.new")
    unfinished.write_text(text)
    unfinished.chmod(0o644)
    unfinished.replace(file)


if __name__ == "__main__":
    for kind in ("system", "user"):
        Path(sys.argv[1], f"cotenant-{kind}.service").write_text(unit(kind == "system", "/usr/bin/cotenant"))
