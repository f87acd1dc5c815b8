"""A Slurm of its own: munged, slurmctld, slurmdbd with its database, and two slurmd on this machine, with ports and a
folder of their own."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.ports import free_port

NODES = ("one", "two")
PATIENCE_S = 240.0

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
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports[3]}
AccountingStoragePass={folder}/munge.socket
AccountingStorageEnforce=qos
GresTypes=gpu,shard
NodeName=one NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8 Gres=gpu:1,shard:{shards} State=UNKNOWN
NodeName=two NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8 Gres=gpu:1,shard:{shards} State=UNKNOWN
PartitionName=shared Nodes=one,two Default=YES MaxTime=INFINITE State=UP
PartitionName=serving Nodes=one,two MaxTime=INFINITE State=UP
"""

DATABASE_CONF = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={ports[3]}
SlurmUser={user}
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={ports[4]}
StorageUser=slurm
StorageLoc=slurm
PluginDir={plugins}
PidFile={folder}/slurmdbd.pid
"""
# A GPU has a file; the software GPU has none, and nothing opens this one.
GRES_CONF = """
Name=gpu File=/dev/null
Name=shard Count={shards}
"""
SHARDS = 100
QOS = ("scavenger", "gold")


class Slurm:
    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder
        [plugins] = root.glob("usr/lib/*/slurm-wlm")
        self.libraries = f"{plugins.parent}:{plugins}"
        self.squeue = root / "usr" / "bin" / "squeue"
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir()
        self.user = getpass.getuser()
        self.ports = [free_port() for _ in range(5)]
        said = {
            "folder": folder,
            "plugins": plugins,
            "ports": self.ports,
            "user": self.user,
            "shards": SHARDS,
        }
        for name, text in {"slurm": CONF, "slurmdbd": DATABASE_CONF, "gres": GRES_CONF}.items():
            (folder / f"{name}.conf").write_text(text.format(**said))
            (folder / f"{name}.conf").chmod(0o600)
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
        self.start_database()
        self._daemon("slurmctld", "-D", "-i", "-f", f"{at}/slurm.conf")
        stepd = self.root / "usr" / "sbin" / "slurmstepd"
        for node in NODES:
            self._daemon("slurmd", "-D", "-N", node, "-f", f"{at}/slurm.conf", "-d", str(stepd))
        self._until(
            lambda: self.run("sinfo", "-N", "-h", "-p", "shared", "-o", "%t").stdout.split() == ["idle"] * 2,
            "the nodes",
        )

    def start_database(self) -> None:
        """Who may do what is slurmdbd's business, so the database asks nobody who he is."""
        data, share = self.folder / "database", self.root / "usr" / "share" / "mysql"
        data.mkdir()
        words = [
            *("--no-defaults", f"--datadir={data}", f"--user={self.user}", f"--lc-messages-dir={share}"),
            *(f"--character-sets-dir={share}/charsets", "--innodb-buffer-pool-size=32M"),
            *("--innodb-flush-log-at-trx-commit=0", f"--tmpdir={self.folder}"),
        ]
        tables = (share / "mysql_system_tables.sql").read_text()
        done = subprocess.run(
            [str(self.root / "usr" / "sbin" / "mariadbd"), *words, "--bootstrap"],
            env=self.environment({"PATH": os.environ["PATH"]}),
            input=f"create database if not exists mysql;\nuse mysql;\n{tables}",
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-1500:]
        where = ["--bind-address=127.0.0.1", f"--port={self.ports[4]}", f"--socket={self.folder}/db.socket"]
        self._daemon(
            "mariadbd", *words, *where, "--skip-grant-tables", f"--pid-file={self.folder}/mariadbd.pid"
        )
        self._until(lambda: listens(self.ports[4]), "the database")
        self._daemon("slurmdbd", "-D")
        self._until(lambda: listens(self.ports[3]), "slurmdbd")
        self._until(
            lambda: self.run("sacctmgr", "-n", "list", "cluster").returncode == 0, "slurmdbd's database"
        )
        for words in (
            ["add", "cluster", "cotenant"],
            *(["add", "qos", name] for name in QOS),
            ["add", "account", "team", "cluster=cotenant"],
            ["add", "user", self.user, "account=team"],
            ["modify", "user", self.user, "set", f"qos=normal,{','.join(QOS)}", "defaultqos=normal"],
        ):
            done = self.run("sacctmgr", "-i", *words)
            assert done.returncode == 0, (words, done.stdout, done.stderr)

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


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
