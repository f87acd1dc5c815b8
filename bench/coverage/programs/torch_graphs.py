"""PyTorch, CUDA graphs: capture and replay of a whole training step, and make_graphed_callables"""

import evidence

torch = evidence.deterministic_torch()
from torch.nn import functional


def new_model():
    torch.manual_seed(5)
    layers = [torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)]
    return torch.nn.Sequential(*layers).cuda()


def inputs(step):
    source = torch.Generator().manual_seed(step)
    return torch.randn(64, 256, generator=source).cuda(), torch.randn(64, 64, generator=source).cuda()


def captured_training():
    model = new_model()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)
    x, y = inputs(0)

    def step():
        optimiser.zero_grad(set_to_none=True)
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        optimiser.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for number in range(100):
        new_x, new_y = inputs(number)
        x.copy_(new_x)
        y.copy_(new_y)
        graph.replay()
        losses.append(loss.item())
    return losses, model


def graphed_callables():
    model = new_model()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    sample = torch.randn(64, 256, device="cuda")
    graphed = torch.cuda.make_graphed_callables(model, (sample,))
    losses = []
    for number in range(50):
        x, y = inputs(number)
        optimiser.zero_grad(set_to_none=True)
        loss = functional.mse_loss(graphed(x), y)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses, model


first_losses, first_model = captured_training()
second_losses, second_model = graphed_callables()
evidence.report(
    {
        "captured losses": evidence.digest(repr(first_losses).encode()),
        "captured weights": evidence.digest_model(first_model),
        "graphed losses": evidence.digest(repr(second_losses).encode()),
        "graphed weights": evidence.digest_model(second_model),
    },
    "torch",
)
