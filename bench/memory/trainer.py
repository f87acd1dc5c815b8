"""A training job of a given size, in PyTorch; says its loss after every step, to the last bit.

    python trainer.py --gib 20 --seed 1 --steps 100

Its size is mostly what a training step keeps: weights, gradients and the optimiser's state, 16 bytes a parameter.
"""

from __future__ import annotations

import argparse
import os
import select
import sys

WIDTH = 8192
BATCH = 1024
BYTES_A_PARAMETER = 16
ACTIVATIONS_GIB = 2  # and what the libraries take


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gib", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0, help="0: until stdin ends")
    return parser.parse_args()


def told_to_stop() -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(ready)


def main() -> None:
    options = arguments()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    import cotenant.torch  # what the allocator holds free need not be copied

    torch.manual_seed(options.seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = True
    layers = max(1, (options.gib - ACTIVATIONS_GIB) * (1 << 30) // (WIDTH * WIDTH * BYTES_A_PARAMETER))
    modules: list[torch.nn.Module] = []
    for _ in range(layers):
        modules += [torch.nn.Linear(WIDTH, WIDTH, bias=False, device="cuda"), torch.nn.GELU()]
    model = torch.nn.Sequential(*modules)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    source = torch.Generator("cuda").manual_seed(options.seed)
    step = 0
    print(f"ready {int(cotenant.torch.active)}", flush=True)
    while step < options.steps if options.steps else not told_to_stop():
        inputs = torch.randn(BATCH, WIDTH, device="cuda", generator=source)
        optimiser.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs)
        loss.backward()
        optimiser.step()
        step += 1
        print(f"loss {step} {loss.item().hex()}", flush=True)
    print(f"reserved {torch.cuda.memory_reserved()}", flush=True)


if __name__ == "__main__":
    main()
