"""A training job of a given size, in PyTorch; says its loss after every step, to the last bit.

    python trainer.py --gib 20 --seed 1 --steps 100

Where a step has the most, half of its memory are activations, the rest weights and the optimiser's state; at its end
gradients are there instead, and a third of the memory is free in PyTorch's allocator. Under `cotenant run` the helper
comes by itself; with --amid the job does not say when a step has ended, and so leaves in the middle of one.
"""

from __future__ import annotations

import argparse
import os
import select
import sys

WIDTH = 4096
BATCH = 6144
BYTES_A_PARAMETER = 12  # weights and the optimiser's state; gradients take the place of activations
ACTIVATIONS_A_LAYER = 2 * 4 * BATCH * WIDTH  # before and after the GELU
OTHER_GIB = 1  # inputs, workspaces, what the libraries take


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gib", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0, help="0: until stdin ends")
    parser.add_argument("--amid", action="store_true", help="leave in the middle of steps")
    return parser.parse_args()


def told_to_stop() -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(ready)


def main() -> None:
    options = arguments()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    helper = sys.modules.get("_cotenant_torch")
    if options.amid:
        from torch.optim.optimizer import _global_optimizer_post_hooks

        _global_optimizer_post_hooks.clear()
    torch.manual_seed(options.seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = True
    layer_bytes = WIDTH * WIDTH * BYTES_A_PARAMETER + ACTIVATIONS_A_LAYER
    layers = max(1, (options.gib - OTHER_GIB) * (1 << 30) // layer_bytes)
    modules: list[torch.nn.Module] = []
    for _ in range(layers):
        modules += [torch.nn.Linear(WIDTH, WIDTH, bias=False, device="cuda"), torch.nn.GELU()]
    model = torch.nn.Sequential(*modules)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    source = torch.Generator("cuda").manual_seed(options.seed)
    step = 0
    print(f"ready {int(helper is not None and helper.active)}", flush=True)
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
