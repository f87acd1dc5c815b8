"""Files that a command writes: refused before the work where they cannot be written, and whole or not at all."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cotenant.errors import USAGE, Problem


def check(path: Path) -> None:
    """Raises Problem where no file can be made there."""
    if path.is_dir():
        raise Problem(f"{path} is a folder", "name a file", USAGE)
    # A new file takes the place of what is named: never of a device, nor of a link such as /dev/stdout. If links were
    # followed, whoever plants one in /tmp would choose which of root's files is replaced.
    if path.is_symlink():
        raise Problem(f"{path} is a link", f"name the file that it leads to: {os.path.realpath(path)}", USAGE)
    if path.exists() and not path.is_file():
        raise Problem(f"{path} is no regular file", "name a file", USAGE)
    check_folder(path.absolute().parent)


def check_folder(folder: Path) -> None:
    """Raises Problem where no file can be made in it."""
    if not folder.is_dir():
        raise Problem(f"there is no folder {folder}", "create it, or choose another", USAGE)
    try:
        with tempfile.NamedTemporaryFile(prefix=".cotenant-", dir=folder):
            pass
    except OSError as error:
        raise Problem(
            f"{folder} cannot be written: {reason(error)}", "choose another folder", USAGE
        ) from None


def argument(text: str) -> Path:
    """The `type` of an argument of argparse."""
    try:
        check(Path(text))
    except Problem as problem:
        raise argparse.ArgumentTypeError(problem.message) from None
    return Path(text)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A file to write beside `path`, which takes its place only when all went well."""
    beside = path.with_name(f".{path.stem[:150]}.{os.getpid()}{path.suffix[:50]}")
    try:
        yield beside
        beside.replace(path)
    except OSError as error:
        hint = "check the free space and the folder's permissions"
        raise Problem(f"cannot write {path}: {reason(error)}", hint) from None
    finally:
        beside.unlink(missing_ok=True)


def reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
