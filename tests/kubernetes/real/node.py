"""A real node on this machine: containerd and kubelet in a mount namespace of their own, and our agent beside them.

Pods use the host's network: the node has no other. Their images are made here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from cotenant.kubernetes.node import container
from cotenant.launch import native_files
from tests.kubernetes import build
from tests.kubernetes.real import cgroups, images
from tests.kubernetes.real.control_plane import PATIENCE_SECONDS, ControlPlane, appears, binaries, until
from tests.ports import free_port

PROGRAMS = ["kubelet", "kubectl", "containerd", "containerd-shim-runc-v2", "ctr", "runc"]
TOOLS = ("sh", "bash", "env", "sleep", "cat", "touch", "unshare")
SSH_SERVER = "dropbear"  # in the image where this machine has it
PAUSE, SHELL = "localhost/pause:1", "localhost/shell:1"

# runc comes from the Go module proxy, which has no libseccomp; containerd asks for its filters all the same.
WITHOUT_SECCOMP = """\
#!{python} -SE
import json, os, sys
if "--bundle" in sys.argv:
    file = sys.argv[sys.argv.index("--bundle") + 1] + "/config.json"
    config = json.load(open(file))
    config["linux"].pop("seccomp", None)
    json.dump(config, open(file, "w"))
os.execv("{runc}", ["runc", *sys.argv[1:]])
"""


# The software GPU's own process belongs to whoever used the GPU first, and ends with that container. A driver does not:
# somebody outside of all containers keeps it.
KEEPER = """
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
assert driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0) == 0
print("kept", flush=True)
sys.stdin.read()
"""


def required() -> None:
    if os.geteuid() != 0:
        pytest.skip("a node needs root")
    binaries(*PROGRAMS)


def own_address() -> str:
    """Kubelet takes no loopback address for its node's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            pytest.skip("this machine has no address but the loopback's")
        address: str = probe.getsockname()[0]
        return address


class RealNode:
    def __init__(self, plane: ControlPlane, name: str, folder: Path, softgpu: dict[str, str]) -> None:
        required()
        self.plane, self.name, self.folder, self.softgpu = plane, name, folder, softgpu
        self.address = own_address()
        self.programs = {one: build.place(build.default_folder(), one) for one in PROGRAMS}
        self.containerd: subprocess.Popen[bytes] | None = None
        self.kubelet: subprocess.Popen[bytes] | None = None
        self.agent: subprocess.Popen[bytes] | None = None
        self.keeper: subprocess.Popen[str] | None = None
        self.has_cgroup = False
        for place in ("kubelet", "cdi", "state", "cni", "cni-bin", "bin", "logs", "registries"):
            (folder / place).mkdir()
        self.segment = Path(f"/dev/shm/cotenant-test-{os.getpid()}-{name}")

    @property
    def socket(self) -> Path:
        return self.folder / "c.sock"

    def start(self, programs: dict[str, Path]) -> None:
        """`programs` are files that pods of the image SHELL have in /bin, by their names there."""
        shim = "containerd-shim-runc-v2"
        (self.folder / "bin" / shim).symlink_to(self.programs[shim])
        wrapper = self.folder / "bin" / "runc"
        wrapper.write_text(WITHOUT_SECCOMP.format(python=sys.executable, runc=self.programs["runc"]))
        wrapper.chmod(0o755)
        self.has_cgroup = cgroups.make(self.name)
        self.keep_gpu()
        self.start_containerd()
        self.make_images(programs)
        self.check_containers()
        self.start_kubelet()
        if not appears(self.has_kubelet):
            pytest.skip(f"kubelet does not run here: {self.last_error('kubelet')}")
        self.start_agent()
        until(self.is_ready, "kubelet does not know the agent")

    def keep_gpu(self) -> None:
        """From now on, or again where it was killed."""
        if self.keeper:
            self.keeper.communicate("")
        self.keeper = subprocess.Popen(
            self.beside_pods(sys.executable, "-c", KEEPER),
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.keeper.stdout and self.keeper.stdout.readline() == "kept\n"

    def beside_pods(self, *command: str) -> list[str]:
        """A program that uses the pods' GPU outside of any: a software GPU is known by its path."""
        inside = container.NATIVE
        lines = [
            "set -e",
            f"mkdir -p {inside}",
            f"mount --bind {native_files.folder()} {inside}",
            f"export LD_LIBRARY_PATH={inside}/softgpu",
            *(f"export {name}={self.softgpu[name]}" for name in ("COTENANT_SOFTGPU", "COTENANT_SOFTGPU_DIR")),
            'exec "$@"',
        ]
        return [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            "\n".join(lines),
            "sh",
            *command,
        ]

    def environment(self) -> dict[str, str]:
        return dict(os.environ) | {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}

    def log(self, name: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(self.folder / "logs" / f"{name}.log", flags, 0o644)

    def start_containerd(self) -> None:
        (self.folder / "cni" / "10-loopback.conflist").write_text(
            '{"cniVersion": "0.4.0", "name": "lo", "plugins": [{"type": "loopback"}]}'
        )
        config = self.folder / "containerd.toml"
        config.write_text(f"""\
version = 3
root = "{self.folder}/root"
state = "{self.folder}/run"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
  address = "{self.socket}"
[ttrpc]
  address = "{self.folder}/t.sock"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{PAUSE}"
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = "{self.folder}/registries"
[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = true
  cdi_spec_dirs = ["{self.folder}/cdi"]
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{self.folder}/cni-bin"]
  conf_dir = "{self.folder}/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = "{self.folder}/bin/runc"
  SystemdCgroup = false
""")
        lines = ["set -e", *self.mounts(), f"exec {self.programs['containerd']} -c {config}"]
        self.containerd = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join(lines)],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=self.log("containerd"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        if not appears(lambda: self.ctr("version").returncode == 0):
            pytest.skip(f"containerd does not run here: {self.last_error('containerd')}")

    def mounts(self) -> list[str]:
        """Of the node's own mount namespace. Kubelet has its device plugins in /var/lib, whatever its own folder is."""
        return [
            "mount -t tmpfs none /var/lib",
            "mkdir /var/lib/kubelet",
            f"mount --bind {self.folder / 'kubelet'} /var/lib/kubelet",
        ]

    def ctr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.inside([str(self.programs["ctr"]), "-a", str(self.socket), "-n", "k8s.io", *arguments])

    def inside(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """In the node's mount namespace."""
        assert self.containerd
        return subprocess.run(
            ["nsenter", "--mount", "--target", str(self.containerd.pid), *command],
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )

    def make_images(self, programs: dict[str, Path]) -> None:
        source = self.folder / "pause.c"
        source.write_text("#include <unistd.h>\nint main(void) { for (;;) pause(); }\n")
        pause = self.folder / "pause"
        subprocess.run(["cc", "-static", "-o", str(pause), str(source)], check=True)
        images.write(self.folder / "pause.tar", [PAUSE], {"/pause": pause}, {"Cmd": ["/pause"]})
        sleeping = {"Cmd": ["/bin/sleep", "1000000"]}
        images.write(self.folder / "shell.tar", [SHELL], self.files_of_pods(programs), sleeping)
        for one in ("pause", "shell"):
            self.take_image(self.folder / f"{one}.tar")

    def files_of_pods(self, programs: dict[str, Path]) -> dict[str, Path]:
        tools = {f"/bin/{one}": images.found(one) for one in TOOLS}
        tools |= {f"/bin/{name}": file for name, file in programs.items()}
        if shutil.which(SSH_SERVER):
            tools[f"/bin/{SSH_SERVER}"] = images.found(SSH_SERVER)
        users = self.folder / "passwd"
        users.write_text("root:x:0:0:root:/shared:/bin/sh\n")
        # Every image with glibc has these, even where its own programs need less.
        native = [path for path in native_files.folder().rglob("*") if path.is_file()]
        return tools | {"/etc/passwd": users} | images.with_libraries([*tools.values(), *native])

    def take_image(self, archive: Path) -> None:
        done = self.ctr("images", "import", str(archive))
        assert done.returncode == 0, done.stderr

    def check_containers(self) -> None:
        """Nothing of ours is in it: where it fails, the machine lacks what containers need."""
        done = self.ctr(
            *("run", "--rm", "--runc-binary", str(self.folder / "bin" / "runc")),
            *(("--cgroup", f"/{self.name}/canary") if self.has_cgroup else ()),
            *(SHELL, "canary", "/bin/sh", "-c", "echo alive"),
        )
        if done.stdout.split() != ["alive"]:
            pytest.skip(f"containers do not run here: {done.stderr.strip()[-300:]}")

    def last_error(self, program: str) -> str:
        lines = (self.folder / "logs" / f"{program}.log").read_text(errors="replace").splitlines()
        bad = [
            line
            for line in lines
            if line.startswith(("E", "F")) or "level=error" in line or "level=fatal" in line
        ]
        return (bad or lines or ["it says nothing"])[-1][-300:]

    def start_kubelet(self) -> None:
        config = self.folder / "kubelet.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "kubelet.config.k8s.io/v1beta1",
                    "kind": "KubeletConfiguration",
                    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
                    "authorization": {"mode": "AlwaysAllow"},
                    "address": self.address,
                    "port": free_port(),
                    "healthzPort": 0,
                    "readOnlyPort": 0,
                    "containerRuntimeEndpoint": f"unix://{self.socket}",
                    "cgroupDriver": "cgroupfs",
                    "cgroupRoot": f"/{self.name}" if self.has_cgroup else "/",
                    "cgroupsPerQOS": self.has_cgroup,
                    "enforceNodeAllocatable": [],
                    "failCgroupV1": False,
                    "failSwapOn": False,
                    "makeIPTablesUtilChains": False,
                    "localStorageCapacityIsolation": False,
                    "imageGCHighThresholdPercent": 100,
                    "imageGCLowThresholdPercent": 99,
                    "evictionHard": {"memory.available": "10Mi"},
                    "registryPullQPS": 0,
                    "syncFrequency": "5s",
                    "nodeStatusUpdateFrequency": "4s",
                    "volumePluginDir": str(self.folder / "volumes"),
                    "podLogsDir": str(self.folder / "logs" / "pods"),
                    "resolvConf": "",
                }
            )
        )
        assert self.containerd
        self.kubelet = subprocess.Popen(
            [
                *("nsenter", "--mount", "--target", str(self.containerd.pid)),
                str(self.programs["kubelet"]),
                f"--config={config}",
                f"--kubeconfig={self.plane.kubeconfig}",
                f"--root-dir={self.folder}/kubelet",
                f"--cert-dir={self.folder}/pki",
                f"--hostname-override={self.name}",
                f"--node-ip={self.address}",
                "--v=2",
            ],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=self.log("kubelet"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def start_agent(self) -> None:
        cluster = ["--kubeconfig", str(self.plane.kubeconfig), "--node", self.name]
        self.agent = self.ours("agent", "--cdi", str(self.folder / "cdi"), "--overflow", "1G", *cluster)

    def ours(self, part: str, *arguments: str) -> subprocess.Popen[bytes]:
        places = ["--kubelet", str(self.folder / "kubelet"), "--state", str(self.folder / "state")]
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "cotenant", "kubernetes", part, *places),
                *("--segment", str(self.segment), *arguments),
            ],
            env=self.environment() | self.softgpu,
            stdin=subprocess.DEVNULL,
            stdout=self.log(part),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def start_daemon(self, policy: str) -> subprocess.Popen[bytes]:
        """As the agent's pods have it beside the agent."""
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "cotenant", "daemon", "--segment", str(self.segment)),
                *("--policy", policy, "--linger", "1e9"),
            ],
            env=self.environment() | self.softgpu,
            stdin=subprocess.DEVNULL,
            stdout=self.log("daemon"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def has_kubelet(self) -> bool:
        found = self.plane.cluster.get("v1", "Node", self.name)
        conditions = found["status"].get("conditions") or [] if found else []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def is_ready(self) -> bool:
        return self.has_kubelet() and "has registered" in (self.folder / "logs" / "agent.log").read_text()

    def kubectl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.programs["kubectl"]), f"--kubeconfig={self.plane.kubeconfig}", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def left_of_claims(self) -> list[str]:
        """What the node still has of claims: folders, CDI files, slots."""
        places = (self.folder / "state" / "claims", self.folder / "cdi", self.segment / "slots")
        return [str(path) for place in places if place.is_dir() for path in place.iterdir()]

    def reboot(self) -> None:
        """Whatever ran on the node is dead, and what was in memory is gone: /run, and /dev/shm."""
        for process in (self.agent, self.kubelet):
            self.kill(process)
        self.end_shims()
        self.kill(self.containerd)
        self.end_containers()
        for place in (self.folder / "run", self.segment):
            shutil.rmtree(place)
        for file in (self.folder / "cdi").iterdir():
            file.unlink()
        self.start_containerd()
        self.start_kubelet()
        self.start_agent()

    def kill(self, process: subprocess.Popen[bytes] | None) -> None:
        if process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self) -> None:
        if self.agent:
            self.agent.terminate()
            self.agent.wait(PATIENCE_SECONDS)
        self.kill(self.kubelet)
        self.end_shims()
        self.kill(self.containerd)
        self.end_containers()
        if self.has_cgroup:
            cgroups.remove(self.name)
        if self.keeper:
            self.keeper.communicate("")
            with contextlib.suppress(OSError):
                container.NATIVE.rmdir()  # where it was made for the mount
        if self.segment.is_dir():
            subprocess.run(["rm", "-rf", str(self.segment)], check=False)

    def end_shims(self) -> None:
        for pid in self.shims():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 10
        while self.shims() and time.monotonic() < deadline:
            time.sleep(0.1)
        for pid in self.shims():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end_containers(self) -> None:
        """A container outlives a shim that was killed."""
        tasks = self.folder / "run" / "io.containerd.runtime.v2.task" / "k8s.io"
        ids = [entry.name for entry in tasks.iterdir()] if tasks.is_dir() else []
        for groups in Path("/proc").glob("[0-9]*/cgroup"):
            with contextlib.suppress(OSError):
                where = groups.read_text()
                if any(one in where for one in ids):
                    os.kill(int(groups.parent.name), signal.SIGKILL)

    def shims(self) -> list[int]:
        """The processes of this node's containers that look after one each."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    line = (entry / "cmdline").read_bytes()
                    if b"containerd-shim" in line and str(self.socket).encode() in line:
                        found.append(int(entry.name))
        return found
