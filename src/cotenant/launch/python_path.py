"""PYTHONPATH of a command whose memory can move: first in it, the folder whose `sitecustomize` loads the helper."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).absolute().parents[1] / "guest" / "startup"
OFF = ("0", "no", "false")


def add_helper(environment: dict[str, str]) -> None:
    """COTENANT_TORCH=0 leaves PYTHONPATH alone."""
    drop_helper(environment)
    if environment.get("COTENANT_TORCH") in OFF or os.pathsep in str(FOLDER):
        return
    others = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([str(FOLDER), *([others] if others else [])])


def drop_helper(environment: dict[str, str]) -> None:
    """What an outer run has added."""
    entries = environment.get("PYTHONPATH", "").split(os.pathsep)
    others = [entry for entry in entries if entry != str(FOLDER)]
    if len(others) == len(entries):
        return
    environment["PYTHONPATH"] = os.pathsep.join(others)
    if not others:
        del environment["PYTHONPATH"]
