"""What Nsight Compute writes, and what it means."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.errors import Problem
from cotenant.profile import ncu
from cotenant.profile.columns import Columns, KernelClass

RAW, DETAILS = ((Path(__file__).parent / f"ncu-{page}.csv").read_text() for page in ("raw", "details"))


def test_a_row_for_each_launch_under_a_row_of_units() -> None:
    product, add = ncu.kernels_in(RAW, 132, "2026-11-16")
    assert product.columns == Columns(KernelClass.compute, True, True, 0.825, 612.0)
    assert (product.grid, product.block) == ((66, 2, 1), (384, 1, 1))
    assert (product.blocks_per_sm, product.sms, product.registers) == (1, 132, 168)
    assert product.shared_bytes == 200_000 and product.mean_us == pytest.approx(12340.0)
    assert add.columns == Columns(KernelClass.memory, False, True, 0.21, 4100.0)
    assert (add.blocks_per_sm, add.sms) == (16, 19)


def test_a_row_for_each_metric_with_units_that_people_read() -> None:
    (scale,) = ncu.kernels_in(DETAILS, 132, "")
    assert scale.mean_us == pytest.approx(2.5)
    assert scale.columns == Columns(KernelClass.unknown, False, True, 0.031, 30.5)
    assert scale.sms == 0  # it did not say how many blocks fit


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance "
            "Counters on the target device 0.",
            "may not read",
        ),
        ("==ERROR== The application returned an error code (1).", "returned an error code"),
        ("==WARNING== No kernels were profiled.\n", "it measured no kernel"),
        ('"ID","Kernel Name"\n"0"\n', "it measured no kernel"),
        ("", "it measured no kernel"),
    ],
)
def test_what_it_refuses_is_told_with_what_to_do(said: str, message: str) -> None:
    with pytest.raises(Problem) as refused:
        ncu.kernels_in(said, 132, "")
    assert message in refused.value.message
    assert "--source" in refused.value.hint
