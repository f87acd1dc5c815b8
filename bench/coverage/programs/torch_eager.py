"""PyTorch, eager: a transformer trained with Adam, then on with SGD"""

import evidence

torch = evidence.deterministic_torch()
import training

model = training.Transformer().cuda()
losses = training.train(model, torch.optim.Adam(model.parameters(), lr=1e-3), steps=30)
losses += training.train(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), steps=20)
with torch.autocast("cuda", dtype=torch.bfloat16):
    losses.append(training.loss_of(model, 99).item())
evidence.report(
    {"losses": evidence.digest(repr(losses).encode()), "weights": evidence.digest_model(model)}, "torch"
)
