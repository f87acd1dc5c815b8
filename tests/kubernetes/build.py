"""Build the programs of a Kubernetes cluster from the Go module proxy into one cache folder, once.

    python tests/kubernetes/build.py [--into FOLDER] [--seconds NUMBER] [PROGRAM...]

A program that is already there is not built again; one that is half built is never seen, since a finished
program is renamed into its place. k8s.io/kubernetes names its staging modules as v0.0.0, which the proxy does
not have: each is replaced by the version that was published with the release.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

KUBERNETES = "1.36.3"
STAGING = f"v0.{KUBERNETES.partition('.')[2]}"

_VERSION_FLAGS = " ".join(
    f"-X {package}.{name}={value}"
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    for name, value in (
        ("gitVersion", f"v{KUBERNETES}"),
        ("gitMajor", KUBERNETES.split(".", maxsplit=1)[0]),
        ("gitMinor", KUBERNETES.split(".")[1]),
        ("gitTreeState", "clean"),
    )
)


@dataclass(frozen=True)
class Module:
    """One Go module and the programs that are built from it."""

    path: str
    version: str
    programs: dict[str, str]
    tags: str = ""
    cgo: bool = False
    link_flags: str = ""
    staging: bool = False
    is_optional: bool = False  # built where it is asked for by name
    environment: dict[str, str] = field(default_factory=dict)


MODULES = {
    "etcd": Module("go.etcd.io/etcd/server/v3", "v3.6.5", {"etcd": "."}),
    "kubernetes": Module(
        "k8s.io/kubernetes",
        f"v{KUBERNETES}",
        {
            name: f"cmd/{name}"
            for name in ("kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubelet", "kubectl")
        },
        tags="selinux,notest,grpcnotrace",
        link_flags=_VERSION_FLAGS,
        staging=True,
    ),
    "containerd": Module(
        "github.com/containerd/containerd/v2",
        "v2.2.9",
        {
            "containerd": "cmd/containerd",
            "containerd-shim-runc-v2": "cmd/containerd-shim-runc-v2",
            "ctr": "cmd/ctr",
        },
        tags="no_btrfs,no_devmapper,no_zfs",
    ),
    "runc": Module("github.com/opencontainers/runc", "v1.3.4", {"runc": "."}, cgo=True),
    "helm": Module("helm.sh/helm/v3", "v3.21.4", {"helm": "cmd/helm"}, is_optional=True),
}


def default_folder() -> Path:
    """Return where the programs are kept unless the caller names a folder."""
    named = os.environ.get("COTENANT_TEST_KUBERNETES")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else cache / "cotenant-tests" / "kubernetes"


def programs() -> dict[str, Module]:
    """Return each program's name with the module that holds it, in the order of their use."""
    return {program: module for module in MODULES.values() for program in module.programs}


def needed() -> list[str]:
    """Return the programs that a cluster is made of."""
    return [name for name, module in programs().items() if not module.is_optional]


def missing(folder: Path, names: list[str]) -> list[str]:
    """Return those of the programs that are not in the folder."""
    return [name for name in names if not os.access(place(folder, name), os.X_OK)]


def place(folder: Path, program: str) -> Path:
    """Return where a program lies: what was built of another version is not taken for it."""
    return folder / programs()[program].version / program


# Seconds that a cold build took on two busy cores: what one program has taken says how long all of them will.
COLD_SECONDS = {
    "etcd": 195,
    "kube-apiserver": 529,
    "kube-scheduler": 37,
    "kube-controller-manager": 190,
    "kubelet": 336,
    "kubectl": 622,
    "containerd": 403,
    "containerd-shim-runc-v2": 11,
    "ctr": 13,
    "runc": 122,
    "helm": 700,
}
HOPE = 1.5  # times the allowed time that is still tried: the estimate is a rough one


@dataclass
class Allowance:
    """Of time, for all programs together."""

    seconds: float = float("inf")
    since: float = field(default_factory=time.monotonic)

    def left(self) -> float | None:
        return max(0.0, self.since + self.seconds - time.monotonic()) if self.seconds < float("inf") else None

    def check(self, built: list[str], wanted: list[str]) -> None:
        """Gives up early where the rest would come too late."""
        done, whole = (sum(COLD_SECONDS[name] for name in names) for names in (built, wanted))
        expected = (time.monotonic() - self.since) * whole / done
        if expected > HOPE * self.seconds:
            sys.exit(
                f"error: the programs would take {expected / 60:.0f} minutes here, and {self.seconds / 60:.0f}"
                " are allowed; what is built stays"
            )


allowance = Allowance()


def _go(arguments: list[str], where: Path, environment: dict[str, str]) -> str:
    process = subprocess.Popen(
        ["go", *arguments],
        cwd=where,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # it has compilers of its own
    )
    try:
        out, said = process.communicate(timeout=allowance.left())
    except BaseException as stopped:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(stopped, subprocess.TimeoutExpired):
            sys.exit("error: not all programs are built within the time; what is built stays")
        raise
    if process.returncode != 0:
        tail = "\n".join(said.strip().splitlines()[-20:])
        sys.exit(f"error: go {' '.join(arguments[:2])} in {where}: {tail}")
    return out


def _staging_modules(where: Path, version: str) -> list[str]:
    fetched = json.loads(_go(["mod", "download", "-json", f"k8s.io/kubernetes@{version}"], where, {}))
    described = json.loads(_go(["mod", "edit", "-json", fetched["GoMod"]], where, {}))
    return sorted(
        entry["Old"]["Path"]
        for entry in described["Replace"] or []
        if entry["Old"]["Path"].startswith("k8s.io/")
    )


def _prepare(name: str, module: Module, folder: Path) -> Path:
    """Write a module of our own that requires the wanted one, and return its folder."""
    where = folder / "modules" / f"{name}-{module.version}"
    if (where / "ready").exists():
        return where
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    (where / "go.mod").write_text(f"module cotenant-tests/{name}\n\ngo 1.25.0\n", encoding="utf-8")
    edits = [f"-require={module.path}@{module.version}"]
    if module.staging:
        edits += [f"-replace={path}={path}@{STAGING}" for path in _staging_modules(where, module.version)]
    _go(["mod", "edit", *edits], where, {})
    # Names the packages, so that go.sum covers what is built; the build tag keeps the file itself out.
    imports = "".join(f'import _ "{_package(module, source)}"\n' for source in module.programs.values())
    (where / "programs.go").write_text(
        f"//go:build programs\n\npackage programs\n\n{imports}", encoding="utf-8"
    )
    (where / "ready").touch()
    return where


def _package(module: Module, source: str) -> str:
    return module.path if source == "." else f"{module.path}/{source}"


def build(name: str, program: str, module: Module, folder: Path) -> float:
    """Build one program into the folder and return how many seconds it took."""
    began = time.monotonic()
    where = _prepare(name, module, folder)
    unfinished = folder / f".{program}.{os.getpid()}"
    arguments = ["build", "-mod=mod", "-trimpath", "-o", str(unfinished)]
    if module.tags:
        arguments += [f"-tags={module.tags}"]
    arguments += [f"-ldflags=-s -w {module.link_flags}", _package(module, module.programs[program])]
    _go(arguments, where, {"CGO_ENABLED": "1" if module.cgo else "0", "GOWORK": "off"} | module.environment)
    place(folder, program).parent.mkdir(parents=True, exist_ok=True)
    unfinished.rename(place(folder, program))
    return time.monotonic() - began


def main() -> None:
    """Build what is asked for and is not there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--into", type=Path, default=default_folder())
    parser.add_argument("--seconds", type=float, default=float("inf"), help="the longest that it may take")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    options = parser.parse_args()
    allowance.seconds = options.seconds
    unknown = [name for name in options.programs if name not in programs()]
    if unknown:
        sys.exit(f"error: no such program: {', '.join(unknown)}\nhint: one of {', '.join(programs())}")
    if shutil.which("go") is None:
        sys.exit(
            "error: go is not installed\nhint: install Go 1.25 or later; the programs come from its module proxy"
        )
    options.into.mkdir(parents=True, exist_ok=True)
    wanted = missing(options.into, options.programs or needed())
    built: list[str] = []
    for name, module in MODULES.items():
        for program in module.programs:
            if program not in wanted:
                continue
            print(f"building {program} of {module.path} {module.version} ...", flush=True)
            print(f"built {program} in {build(name, program, module, options.into):.0f} s", flush=True)
            built.append(program)
            allowance.check(built, wanted)


if __name__ == "__main__":
    main()
