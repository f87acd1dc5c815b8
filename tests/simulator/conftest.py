"""The simulator's engine, where it is built."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def engine(native: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (native / "libcotenant_sim.so").exists():
        pytest.skip(f"the simulator is not built ({native})")
    monkeypatch.setenv("COTENANT_NATIVE", str(native))
