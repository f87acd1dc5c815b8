"""A machine with a systemd of its own: PID 1 of new namespaces, on this machine's files, which it cannot change.

No network, no package and no virtual machine is needed, but root, and a kernel with overlayfs and cgroup v2.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.conftest import TREE
from tests.waiting import wait_for

SYSTEMD = Path("/lib/systemd/systemd")
PROGRAM = "/opt/cotenant/bin/cotenant"
NEEDED = ("unshare", "nsenter", "setpriv", "mount", "useradd", "systemctl")


def why_not() -> str:
    """Why there cannot be one; nothing: there can."""
    if os.geteuid() != 0:
        return "only root can boot a systemd in namespaces of its own"
    missing = [name for name in NEEDED if not shutil.which(name)]
    if not SYSTEMD.exists() or missing:
        return f"this system has no {', '.join(missing) or 'systemd'}"
    if not cgroups():
        return "no cgroup v2 is mounted"
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "the kernel has no overlayfs"
    return ""


def cgroups() -> Path | None:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(where)
    return None


class Machine:
    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="cotenant-machine-"))
        above = cgroups()
        assert above is not None
        self._cgroup = above / self._folder.name
        self._cgroup.mkdir()
        self._log = (self._folder.parent / f"{self._folder.name}.log").open("w+b")
        into = 'echo $$ > "$0/cgroup.procs"; exec "$@"'
        apart = ("--fork", "--kill-child", "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup")
        boot = (str(TREE / "tests/systemd/boot.sh"), str(self._folder), sys.prefix, str(TREE))
        self._unshare = subprocess.Popen(
            ["/bin/sh", "-c", into, str(self._cgroup), "unshare", *apart, "--", *boot],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        try:
            wait_for(lambda: self.first() is not None or self._unshare.poll() is not None)
            wait_for(lambda: self._is_systemd() or self._unshare.poll() is not None)
            assert self._unshare.poll() is None, self.said()
            ask = ("systemctl", "is-system-running", "--wait")
            wait_for(lambda: self.run(*ask).stdout.strip() in ("running", "degraded"))
        except BaseException:
            self.end()
            raise

    def said(self) -> str:
        return Path(self._log.name).read_text(errors="replace")

    def first(self) -> int | None:
        """Its PID 1, as this machine numbers it."""
        children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children")
        with contextlib.suppress(OSError, ValueError):
            return int(children.read_text().split()[0]) if children.read_text().split() else None
        return None

    def _is_systemd(self) -> bool:
        first = self.first()
        with contextlib.suppress(OSError):
            return Path(f"/proc/{first}/comm").read_text() == "systemd\n"
        return False

    def command(self, *words: str, user: str = "root", **variables: str) -> list[str]:
        home = "/root" if user == "root" else f"/home/{user}"
        path = "/opt/cotenant/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        settings = {"PATH": path, "HOME": home, "USER": user, "NO_COLOR": "1"} | variables
        as_user = () if user == "root" else ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups")
        enter = (
            "nsenter",
            f"--target={self.first()}",
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--pid",
            "--cgroup",
        )
        return [*enter, "--", "env", "-i", *(f"{k}={v}" for k, v in settings.items()), *as_user, *words]

    def run(self, *words: str, user: str = "root", **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words, user=user, **variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd="/",
        )

    def end(self) -> None:
        """Its PID 1 is killed, and the kernel kills all others of its namespace with it."""
        if first := self.first():
            with contextlib.suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)
        else:
            self._unshare.kill()
        self._unshare.wait()
        self._log.close()
        Path(self._log.name).unlink()
        wait_for(lambda: not any(file.read_text() for file in self._cgroup.rglob("cgroup.procs")))
        for below in sorted(self._cgroup.rglob("*/"), reverse=True):
            below.rmdir()
        self._cgroup.rmdir()
        self._folder.rmdir()


if __name__ == "__main__":
    why = why_not()
    print(why)
    sys.exit(bool(why))
