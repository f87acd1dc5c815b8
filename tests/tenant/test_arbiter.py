"""Who has a place in a GPU's memory when not all fit, and the slabs of small allocations, under chance."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compiling import compile_program


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("arbiter")
    return compile_program(
        folder, "tests/tenant/arbiter.cpp", "native/tenant/memory/slabs.cpp", optimise=True
    )


@pytest.mark.parametrize("case", ["choosing", "turns", "slabs"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_rules(rules: Path, case: str, seed: int) -> None:
    done = subprocess.run(
        [str(rules), case, str(seed)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("case", ["order", "hope", "pressure"])
def test_what_is_always_so(rules: Path, case: str) -> None:
    done = subprocess.run([str(rules), case, "0"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
