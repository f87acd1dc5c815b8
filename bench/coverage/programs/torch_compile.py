"""PyTorch, torch.compile: the same training through Inductor"""

import os
import tempfile

import evidence

# A cache of its own: the compiler and its worker processes really run, with and without the interposer.
cache = tempfile.TemporaryDirectory(prefix="coverage-inductor-", ignore_cleanup_errors=True)
os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.name
os.environ["TRITON_CACHE_DIR"] = os.path.join(cache.name, "triton")
torch = evidence.deterministic_torch()
import torch._inductor.config as inductor

if hasattr(inductor, "deterministic"):
    inductor.deterministic = True
import training

model = training.Transformer(layers=1).cuda()
losses = training.train(torch.compile(model), torch.optim.Adam(model.parameters(), lr=1e-3), steps=20)
evidence.report(
    {"losses": evidence.digest(repr(losses).encode()), "weights": evidence.digest_model(model)},
    "torch",
    "triton",
)
cache.cleanup()
