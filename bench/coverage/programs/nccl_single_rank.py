"""NCCL, one rank: collectives and DistributedDataParallel"""

import evidence

torch = evidence.deterministic_torch()
import torch.distributed as dist
import training

if not dist.is_available() or not dist.is_nccl_available():
    evidence.skip("torch has no NCCL")
torch.cuda.set_device(0)
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
x = torch.randn(1 << 20, generator=torch.Generator().manual_seed(3)).cuda()
dist.all_reduce(x)
dist.all_reduce(x, op=dist.ReduceOp.AVG)
dist.broadcast(x, src=0)
gathered = [torch.empty_like(x)]
dist.all_gather(gathered, x)
scattered = torch.empty_like(x)
dist.reduce_scatter_tensor(scattered, x)
model = training.Transformer(layers=1).cuda()
parallel = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
losses = training.train(parallel, torch.optim.SGD(model.parameters(), lr=0.01), steps=10)
dist.destroy_process_group()
evidence.report(
    {
        "gathered": evidence.digest_tensor(gathered[0]),
        "scattered": evidence.digest_tensor(scattered),
        "losses": evidence.digest(repr(losses).encode()),
        "weights": evidence.digest_model(model),
    },
    "torch",
)
