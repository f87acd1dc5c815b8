"""PyTorch, expandable_segments: the caching allocator on virtual memory management"""

import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
import evidence

torch = evidence.deterministic_torch()
import training

model = training.Transformer().cuda()
losses = training.train(model, torch.optim.Adam(model.parameters(), lr=1e-3), steps=20)
growing = torch.zeros(1, device="cuda")
for megabytes in (1, 8, 64, 256, 32):
    block = torch.full((megabytes * 2**18,), float(megabytes), device="cuda")
    growing += block.sum()
    del block
    torch.cuda.empty_cache()
evidence.report(
    {
        "losses": evidence.digest(repr(losses).encode()),
        "weights": evidence.digest_model(model),
        "sums": evidence.digest_tensor(growing),
    },
    "torch",
)
