"""A Slurm of its own: munged, slurmctld and two slurmd on this machine, with ports and a folder of their own."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

NODES = ("one", "two")
PATIENCE_S = 60.0

CONF = """
ClusterName=cotenant
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
PluginDir={plugins}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
TaskProlog={folder}/task-prolog
NodeName=one NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8 State=UNKNOWN
NodeName=two NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8 State=UNKNOWN
PartitionName=shared Nodes=one,two Default=YES MaxTime=INFINITE State=UP
PartitionName=serving Nodes=one,two MaxTime=INFINITE State=UP
"""


class Slurm:
    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder
        [plugins] = root.glob("usr/lib/*/slurm-wlm")
        self.libraries = f"{plugins.parent}:{plugins}"
        self.squeue = root / "usr" / "bin" / "squeue"
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir()
        conf = CONF.format(folder=folder, plugins=plugins, ports=free_ports(3), user=getpass.getuser())
        (folder / "slurm.conf").write_text(conf)
        (folder / "cgroup.conf").write_text("CgroupAutomount=no\nCgroupPlugin=cgroup/v1\n")
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        at = self.folder
        files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid"}
        more = {"log-file": "munged.log", "seed-file": "munged.seed"}
        options = [f"--{name}={at / file}" for name, file in {**files, **more}.items()]
        self._daemon("munged", "--force", "--foreground", *options)
        self._until((at / "munge.socket").exists, "munged")
        self._daemon("slurmctld-wlm", "-D", "-c", "-i", "-f", f"{at}/slurm.conf")
        stepd = self.root / "usr" / "sbin" / "slurmstepd-wlm"
        for node in NODES:
            self._daemon("slurmd-wlm", "-D", "-N", node, "-f", f"{at}/slurm.conf", "-d", str(stepd))
        self._until(
            lambda: self.run("sinfo", "-N", "-h", "-p", "shared", "-o", "%t").stdout.split() == ["idle"] * 2,
            "the nodes",
        )

    def stop(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in reversed(self._daemons):
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        found = dict(more)
        behind = found.get("LD_LIBRARY_PATH")
        found["LD_LIBRARY_PATH"] = f"{behind}:{self.libraries}" if behind else self.libraries
        found["SLURM_CONF"] = f"{self.folder}/slurm.conf"
        return found

    def command(self, program: str, *words: str) -> list[str]:
        return [str(self.root / "usr" / "bin" / program), *words]

    def run(
        self, program: str, *words: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(program, *words),
            env=self.environment(env or {"PATH": os.environ["PATH"]}),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def said(self) -> str:
        return "\n".join(
            f"== {path.name}\n{path.read_text(errors='replace')[-1500:]}"
            for path in sorted(self.folder.glob("*.log"))
        )

    def _daemon(self, program: str, *words: str) -> None:
        with (self.folder / f"{program}-{len(self._daemons)}.log").open("wb") as log:
            self._daemons.append(
                subprocess.Popen(
                    [str(self.root / "usr" / "sbin" / program), *words],
                    env=self.environment({"PATH": os.environ["PATH"]}),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def _until(self, is_so: object, what: str) -> None:
        assert callable(is_so)
        end = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < end, f"{what} did not come up:\n{self.said()}"
            time.sleep(0.1)


def free_ports(count: int) -> Sequence[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
