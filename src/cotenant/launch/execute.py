"""Becoming another program: same process, terminal and signals, and the statuses that `nice` gives."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from cotenant.errors import NOT_EXECUTABLE, NOT_FOUND, Problem
from cotenant.launch import elf


def find_program(name: str, environment: Mapping[str, str]) -> str:
    """The file that execvp would take; raises the 126 or 127 that it would end in."""
    if os.sep in name:
        files = [name]
    else:
        files = [os.path.join(folder, name) for folder in os.get_exec_path(dict(environment)) if folder]
    blocked = ""
    for file in files:
        if os.path.isfile(file):
            if os.access(file, os.X_OK):
                return file
            blocked = blocked or "permission denied"
        elif os.sep in name and os.path.isdir(file):
            blocked = "it is a directory"
    if blocked:
        raise Problem(f"cannot run '{name}': {blocked}", "check that it is a program", NOT_EXECUTABLE)
    raise Problem(f"cannot run '{name}': no such program", "check its spelling and PATH", NOT_FOUND)


def unreachable(file: str) -> str:
    """Why nothing can be preloaded into the program, and what follows; or nothing."""
    if takes_other_rights(file):
        return "is setuid: neither it nor what it starts is scheduled; hint: put `cotenant run` behind it"
    kind = linked(file)
    return f"is {kind}, so only programs that it starts are scheduled" if kind else ""


def takes_other_rights(file: str) -> bool:
    """Then the loader drops LD_PRELOAD, from the environment too."""
    try:
        about = os.stat(file)
    except OSError:
        return False
    of_user = about.st_mode & stat.S_ISUID and about.st_uid != os.getuid()
    of_group = about.st_mode & stat.S_ISGID and about.st_gid != os.getgid()
    return bool(of_user or of_group)


def linked(file: str) -> str:
    """How, where that is not with the C library's own loader."""
    try:
        loader = elf.interpreter(Path(file))
    except OSError:
        return ""
    if loader is None or os.path.basename(file).startswith("ld"):
        return ""
    if loader:
        return "linked with musl" if os.path.basename(loader).startswith(b"ld-musl") else ""
    return "statically linked"


def become(file: str, command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Only returns by raising a Problem."""
    # Python ignores these two, and what is ignored stays so across exec.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.flush()
    try:
        try:
            os.execve(file, list(command), dict(environment))
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # As execvp does: a script without an interpreter line is the shell's.
            os.execve("/bin/sh", ["/bin/sh", file, *command[1:]], dict(environment))
    except OSError as error:
        missing = error.errno == errno.ENOENT
        reason = "its interpreter is missing" if missing else os.strerror(error.errno or 0).lower()
        raise Problem(
            f"cannot run '{command[0]}': {reason}", status=NOT_FOUND if missing else NOT_EXECUTABLE
        ) from error


def inherited() -> dict[str, str]:
    """The environment as it was given to us: in a C locale Python sets LC_CTYPE in its own."""
    environment = dict(os.environ)
    try:
        given = Path("/proc/self/environ").read_bytes()
    except OSError:
        return environment
    environment.pop("LC_CTYPE", None)
    for entry in given.split(b"\0"):
        if entry.startswith(b"LC_CTYPE="):
            environment["LC_CTYPE"] = os.fsdecode(entry.partition(b"=")[2])
    return environment
