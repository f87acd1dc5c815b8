"""PyTorch, the libraries behind it: cuFFT, cuSOLVER, cuSPARSE, cuDNN's LSTM, attention, sorting, random numbers"""

import evidence

torch = evidence.deterministic_torch()
functional = torch.nn.functional

source = torch.Generator().manual_seed(7)
digests = {}


def on_gpu(*shape):
    return torch.randn(*shape, generator=source).to("cuda")


x = on_gpu(64, 64, 64)
for _ in range(5):
    x = torch.fft.ifftn(torch.fft.fftn(x) * 1.01).real
digests["fft"] = evidence.digest_tensor(x)

a = on_gpu(8, 96, 96)
symmetric = a @ a.transpose(1, 2) + torch.eye(96, device="cuda")
digests["eigenvalues"] = evidence.digest_tensor(torch.linalg.eigvalsh(symmetric))
digests["cholesky"] = evidence.digest_tensor(torch.linalg.cholesky(symmetric))
digests["solve"] = evidence.digest_tensor(torch.linalg.solve(symmetric, on_gpu(8, 96, 4)))

# Whole numbers: cuSPARSE adds them up in another order each time.
dense = on_gpu(512, 512).round()
sparse = torch.where(dense.abs() > 1, dense, torch.zeros_like(dense)).to_sparse_csr()
digests["sparse"] = evidence.digest_tensor(sparse @ on_gpu(512, 32).round())

lstm = torch.nn.LSTM(128, 256, num_layers=2).to("cuda")
output, (hidden, _) = lstm(on_gpu(50, 16, 128))
digests["lstm"] = evidence.digest_tensor(output) + evidence.digest_tensor(hidden)

q, k, v = (on_gpu(4, 8, 256, 64).bfloat16() for _ in range(3))
digests["attention"] = evidence.digest_tensor(
    functional.scaled_dot_product_attention(q, k, v, is_causal=True)
)

values = on_gpu(1_000_000)
digests["sort"] = evidence.digest_tensor(values.sort().values)
digests["top"] = evidence.digest_tensor(values.topk(1000).values)
digests["chosen"] = evidence.digest_tensor(values[values > 2])  # the program waits for its length

torch.cuda.manual_seed(11)
digests["random"] = evidence.digest_tensor(torch.rand(1_000_000, device="cuda"))
digests["dropout"] = evidence.digest_tensor(functional.dropout(values, 0.3))
evidence.report(digests, "torch")
