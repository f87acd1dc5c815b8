"""The production job: an online service. Requests arrive at random; each is a burst of kernels.

Latency counts from the moment at which a request was *meant* to arrive, so it includes the wait for a slow request
before.
"""

from __future__ import annotations

import sys
import time

from cotenant.demo.arrivals import poisson_arrivals
from cotenant.demo.orders import Answer, Order, obey
from cotenant.demo.spin import SpinGpu

KERNELS_PER_REQUEST = 20
KERNEL_US = 200.0
REQUESTS_PER_SECOND = 60.0


def serve(gpu: SpinGpu, order: Order) -> Answer:
    latencies_ms = []
    services_ms = []
    for arrival in poisson_arrivals(REQUESTS_PER_SECOND, order.seconds, order.seed):
        due = order.start + arrival
        time.sleep(max(0.0, due - time.monotonic()))
        began = time.monotonic()
        gpu.submit_burst(KERNELS_PER_REQUEST, KERNEL_US)
        gpu.synchronise()
        ended = time.monotonic()
        latencies_ms.append(1000.0 * (ended - due))
        services_ms.append(1000.0 * (ended - began))
    return {"latencies_ms": latencies_ms, "services_ms": services_ms, "done": len(latencies_ms)}


if __name__ == "__main__":
    sys.exit(obey(serve))
