"""The simulator and the software GPU's model say the same of the same work."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.simulator import Interference, Op, OpKind, SimulatedGpu
from tests.model.modelled_device import (
    KERNEL,
    ON_DEVICE,
    TO_DEVICE,
    TO_HOST,
    ModelledDevice,
    Work,
)
from tests.simulator.small import NONE, TOGETHER, once, run

SMS, GBPS, BUS = 10, 100.0, 10.0
SLICE_US, SWITCH_US, LAUNCH_US = 700.0, 90.0, 3.0
GPU = SimulatedGpu(
    name="small",
    sms=SMS,
    memory_bytes=1 << 30,
    memory_gbps=GBPS,
    bus_gbps=BUS,
    slice_us=SLICE_US,
    switch_us=SWITCH_US,
    launch_us=LAUNCH_US,
    interference=Interference(cut_us=SWITCH_US, keep_us=0),
)

kernels = st.builds(
    lambda us, sms, gbps: Op(us=us, sms=float(sms) if sms > 1 else 1 / SMS, gbps=float(gbps)),
    st.integers(1, 3000),
    st.integers(1, SMS),
    st.sampled_from([0, 20, 60, 90]),
)
copies = st.builds(
    lambda kind, size: Op(kind, bytes=size),
    st.sampled_from([OpKind.copy_to_device, OpKind.copy_to_host, OpKind.copy_on_device]),
    st.integers(10_000, 20_000_000),
)
programs = st.lists(st.lists(kernels | copies, min_size=1, max_size=5), min_size=1, max_size=4)

KINDS = {
    OpKind.kernel: KERNEL,
    OpKind.copy_to_device: TO_DEVICE,
    OpKind.copy_to_host: TO_HOST,
    OpKind.copy_on_device: ON_DEVICE,
}


def modelled_ends(native: Path, jobs: list[list[Op]], together: bool) -> list[list[float]]:
    device = ModelledDevice(native, SMS, GBPS, BUS, SLICE_US, SWITCH_US, LAUNCH_US, together)
    submitted = []
    for ops in jobs:
        queue = device.queue(device.context())
        submitted.append(
            [
                device.submit(
                    queue,
                    Work(
                        KINDS[op.kind],
                        max(1, round(op.sms if op.sms > 1 else op.sms * SMS)),
                        op.us,
                        op.gbps,
                        op.bytes,
                    ),
                )
                for op in ops
            ]
        )
    device.run()
    return [[device.ended[op].end for op in ops] for ops in submitted]


@pytest.mark.parametrize("together", [False, True])
@settings(max_examples=150, deadline=None)
@given(jobs=programs)
def test_every_operation_ends_when_the_device_model_says(
    native: Path, together: bool, jobs: list[list[Op]]
) -> None:
    expected = modelled_ends(native, jobs, together)
    tenants = [once(f"job{number}", *ops) for number, ops in enumerate(jobs)]
    outcome = run(*tenants, under=TOGETHER if together else NONE, gpu=GPU, seconds=10)
    for number, ends in enumerate(expected):
        found = [span.end_us for span in outcome.spans if span.tenant == f"job{number}"]
        assert found == pytest.approx(ends, rel=1e-4, abs=0.01)
