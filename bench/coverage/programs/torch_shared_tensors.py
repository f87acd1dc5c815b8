"""PyTorch, multiprocessing: tensors on the GPU shared with a spawned process, both ways"""

from typing import Any

import evidence

torch = evidence.deterministic_torch()
import torch.multiprocessing as multiprocessing

SIZES = (100, 3_000, 1 << 20, 1 << 24)


def tensor_of(size: int) -> Any:
    return torch.randn(size, generator=torch.Generator().manual_seed(size)).cuda()


def work(given: Any, answers: Any, done: Any) -> None:
    """Changes what it is given in place, and gives tensors of its own."""
    for _ in SIZES:
        shared = given.get()
        shared.mul_(2).add_(shared.flip(0))
        torch.cuda.synchronize()
        answers.put(evidence.digest_tensor(shared))
        del shared
    own = [tensor_of(size).mul_(3) for size in SIZES]
    torch.cuda.synchronize()
    for one in own:
        answers.put(one)
    done.wait()  # what it has made must be there while others use it


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    given, answers, done = context.Queue(), context.Queue(), context.Event()
    worker = context.Process(target=work, args=(given, answers, done))
    worker.start()
    digests = {}
    for size in SIZES:
        tensor = tensor_of(size)
        torch.cuda.synchronize()
        given.put(tensor)
        digests[f"there {size}"] = answers.get()
        digests[f"here {size}"] = evidence.digest_tensor(tensor)
        if digests[f"there {size}"] != digests[f"here {size}"]:
            raise SystemExit("the two processes see different tensors")
    for size in SIZES:
        received = answers.get()
        received.sub_(1)
        digests[f"received {size}"] = evidence.digest_tensor(received)
        del received
    done.set()
    worker.join()
    if worker.exitcode != 0:
        raise SystemExit(f"the worker ended with {worker.exitcode}")
    evidence.report(digests, "torch")
