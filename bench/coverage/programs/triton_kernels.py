"""Triton: vector addition and a matrix product"""

import os
import tempfile

import evidence

cache = tempfile.TemporaryDirectory(prefix="coverage-triton-", ignore_cleanup_errors=True)
os.environ["TRITON_CACHE_DIR"] = cache.name
torch = evidence.deterministic_torch()
triton = evidence.need("triton")
tl = evidence.need("triton.language")


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(
        out + offsets, tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside), mask=inside
    )


@triton.jit
def multiply(a, b, c, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        left = tl.load(a + rows[:, None] * n + inner[None, :])
        right = tl.load(b + inner[:, None] * n + columns[None, :])
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * n + columns[None, :], total)


x, y = torch.randn(1_000_003, device="cuda"), torch.randn(1_000_003, device="cuda")
added = torch.empty_like(x)
for _ in range(20):
    add[(triton.cdiv(x.numel(), 1024),)](x, y, added, x.numel(), BLOCK=1024)
size = 512
a = torch.randn(size, size, device="cuda", dtype=torch.float16)
b = torch.randn(size, size, device="cuda", dtype=torch.float16)
product = torch.empty(size, size, device="cuda", dtype=torch.float32)
for _ in range(20):
    multiply[(size // 64, size // 64)](a, b, product, size, BLOCK=64)
if not torch.equal(added, x + y):
    raise SystemExit("the sum is wrong")
evidence.report(
    {"sum": evidence.digest_tensor(added), "product": evidence.digest_tensor(product)}, "triton", "torch"
)
cache.cleanup()
