"""Debian's packages for another machine, unpacked into a folder: a Python to test a foreign wheel with, and a kernel
with large pages.

apt does the work with a state of its own, so that nothing of this system changes. Which mirror it asks is this system's
choice; without Debian's apt there is nothing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from checkout import PackagingError

SUITE = "trixie"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def mirror() -> str:
    """Where this system gets its packages from."""
    listed = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for path in listed:
        for line in path.read_text().splitlines() if path.is_file() else []:
            if found := re.search(r"^[^#]*?(https?://\S+/debian)/?(\s|$)", line):
                return found[1]
    raise PackagingError("this system has no Debian mirror in /etc/apt")


class Debian:
    def __init__(self, folder: Path, architecture: str) -> None:
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb") and Path(KEYRING).exists()):
            raise PackagingError("this needs Debian's apt-get, dpkg-deb and its keyring")
        self.folder = folder
        for part in ("state/lists/partial", "cache/archives/partial", "debs"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        (folder / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} {SUITE} main\n")
        settings = {
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            "APT::Sandbox::User": "root",
            "Dir::State": folder / "state",
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder / "cache",
            "Dir::Etc::SourceList": folder / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::Etc::Preferences": "/dev/null",
            "Dir::Etc::PreferencesParts": "/dev/null",
        }
        self.options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
        if not list((folder / "state" / "lists").glob("*Packages*")):
            self.apt("apt-get", "update")

    def apt(self, command: str, *arguments: str) -> str:
        quiet = ["-qq"] if command == "apt-get" else []
        done = subprocess.run(
            [command, *quiet, *self.options, *arguments],
            cwd=self.folder / "debs",
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise PackagingError(f"{command} {arguments[0]} failed:\n{done.stderr.strip()}")
        return done.stdout

    def unpack_all(self, packages: list[str], root: Path) -> None:
        """These and all that they depend on; no script of theirs runs."""
        wanted = ["install", "-y", "--download-only", "--no-install-recommends", *packages]
        self.apt("apt-get", *wanted)
        for package in sorted((self.folder / "cache" / "archives").glob("*.deb")):
            unpack(package, root)

    def unpack_what_it_stands_for(self, package: str, root: Path) -> None:
        """The one package that this one is a name for, without what that depends on."""
        first = re.search(r"Depends: (\S+)", self.apt("apt-cache", "depends", package))
        if not first:
            raise PackagingError(f"Debian's {SUITE} has no {package}")
        if not list((self.folder / "debs").glob(f"{first[1]}_*.deb")):
            self.apt("apt-get", "download", first[1])
        [found] = (self.folder / "debs").glob(f"{first[1]}_*.deb")
        unpack(found, root)


def unpack(package: Path, root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    # A root whose /bin is a link to /usr/bin, which dpkg-deb would replace by a folder.
    tar = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", root], stdin=tar.stdout, check=True)
    if tar.wait():
        raise PackagingError(f"{package} cannot be unpacked")
