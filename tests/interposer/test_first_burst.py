"""What a tenant that has nobody to wait for queues in its first moments: all that the driver lets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.interposer.conftest import Tenant

# Operations of a kind that was never timed.
AT_ONCE = """
from soft import Gpu, check, driver
gpu = Gpu(); stream = gpu.stream(); memory = check(driver.cuMemAlloc(4096))
for _ in range(200): check(driver.cuMemsetD8Async(memory, 3, 16, stream))
gpu.synchronize()
"""


def test_nobody_is_taken_for_company_before_anybody_has_come(tenant: Callable[..., Tenant]) -> None:
    """Each of them had a gate of its own, and a stream had room for a quarter of what the driver lets it hold."""
    one = tenant("opportunistic", AT_ONCE)
    one.finish()
    assert one.total("memory_ops") >= 200 and one.total("gates") <= 20
