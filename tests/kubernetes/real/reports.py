"""What tests have measured, for who runs them: a file each in the folder that COTENANT_TEST_REPORT names."""

from __future__ import annotations

import os
from pathlib import Path


def write(name: str, text: str) -> None:
    folder = os.environ.get("COTENANT_TEST_REPORT")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{name}.txt").write_text(f"{text}\n", encoding="utf-8")
