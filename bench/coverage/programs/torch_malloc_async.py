"""PyTorch, backend:cudaMallocAsync: stream-ordered allocation from pools"""

import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "backend:cudaMallocAsync"
import evidence

torch = evidence.deterministic_torch()
import training

if torch.cuda.get_allocator_backend() != "cudaMallocAsync":
    raise SystemExit("the allocator is not cudaMallocAsync")
model = training.Transformer().cuda()
losses = training.train(model, torch.optim.Adam(model.parameters(), lr=1e-3), steps=20)
sums = torch.stack(
    [torch.arange(n, device="cuda", dtype=torch.float32).sum() for n in (10, 10_000, 10_000_000)]
)
evidence.report(
    {
        "losses": evidence.digest(repr(losses).encode()),
        "weights": evidence.digest_model(model),
        "sums": evidence.digest_tensor(sums),
    },
    "torch",
)
