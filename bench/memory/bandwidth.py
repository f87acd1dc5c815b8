"""What a plain copy between pinned host memory and the GPU reaches here, in GB/s each way: the best of five."""

from __future__ import annotations

import json

GIB = 1 << 30


def main() -> None:
    import torch

    host = torch.empty(2 * GIB, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(2 * GIB, dtype=torch.uint8, device="cuda")

    def once(to: torch.Tensor, source: torch.Tensor) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        to.copy_(source, non_blocking=True)
        end.record()
        torch.cuda.synchronize()
        return float(2 * GIB / 1e6 / begin.elapsed_time(end))

    once(host, device)
    figures = {
        "to_host": max(once(host, device) for _ in range(5)),
        "to_gpu": max(once(device, host) for _ in range(5)),
        "gpu": torch.cuda.get_device_name(),
    }
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
