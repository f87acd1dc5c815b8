"""The checkout that is packaged, pip in it, and what is raised where packaging fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class PackagingError(Exception):
    pass


def pip(
    *arguments: str | Path, python: Path = Path(sys.executable), extra: dict[str, str] | None = None
) -> None:
    command = [str(python), "-m", "pip", "-qq", "--disable-pip-version-check", *map(str, arguments)]
    env = os.environ | (extra or {})
    result = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if result.returncode:
        raise PackagingError(f"pip {arguments[0]} failed:\n{(result.stderr or result.stdout).strip()}")
