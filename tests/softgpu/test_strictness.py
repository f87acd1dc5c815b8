"""The error codes of the driver, one named probe each (probes/).

All were recorded on NVIDIA's driver 580.159.04 with an H200 on 2026-11-15, where they run unmodified
(COTENANT_TEST_REAL_GPU=1): the answers, and which calls that driver does not survive (`crashes`, `hangs`); there the
expected one is the software GPU's own. strictness_report.py prints what a driver answers.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import REAL_GPU
from tests.softgpu.calls import value
from tests.softgpu.probes import PROBES, Probe
from tests.softgpu.strictness_report import agrees, answers, asked


def named(probe: Probe) -> str:
    return probe.name


@pytest.mark.parametrize("probe", [one for one in PROBES.values() if not one.apart], ids=named)
def test_probe(cuda: Any, context: Any, probe: Probe) -> None:
    before = value(cuda.cuMemGetInfo())[0]
    assert probe.run(cuda) == probe.expected
    value(cuda.cuCtxSynchronize())
    if not REAL_GPU:  # which others may be using at the same time
        assert value(cuda.cuMemGetInfo())[0] == before, "the probe left memory behind"


@pytest.fixture(scope="session")
def answers_apart(cuda: Any) -> dict[str, str]:
    """`cuda` has set the environment: the children are clients of the same device."""
    return dict(answers([one.name for one in PROBES.values() if one.apart and asked(one.name)]))


@pytest.mark.parametrize("probe", [one for one in PROBES.values() if one.apart], ids=named)
def test_probe_apart(answers_apart: dict[str, str], probe: Probe) -> None:
    if not asked(probe.name):
        pytest.skip("a real driver hangs")
    answer = answers_apart[probe.name]
    assert agrees(probe.name, answer), f"{answer} instead of {probe.expected}"
