"""The modules of bench/pairs, which is no package."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest

from tests.conftest import TREE

BENCH = TREE / "bench" / "pairs"
pytest.importorskip("numpy", reason="numpy is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")


def load(name: str) -> ModuleType:
    sys.path.insert(0, str(BENCH))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCH))
