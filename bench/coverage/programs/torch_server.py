"""PyTorch, a server: threads that capture graphs, replay them, allocate and copy at the same time, answers by events"""

import queue
import threading

import evidence

torch = evidence.deterministic_torch()
REQUESTS = 60
requests, answers = queue.Queue(), {}
models = [
    torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256))
    for _ in range(3)
]
inputs = torch.randn(REQUESTS, 32, 256, generator=torch.Generator().manual_seed(3)).pin_memory()
failures = []
capturing = (
    threading.Lock()
)  # torch.cuda.graph() waits for the whole GPU, which CUDA forbids while another thread captures


def serve(model):
    """Captures its graph while the others already serve, then answers what comes."""
    model = model.to("cuda").eval()
    stream = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        given = torch.zeros(32, 256, device="cuda")
        model(given)
        graph = torch.cuda.CUDAGraph()
        with capturing, torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            taken = model(given)
        while (number := requests.get()) is not None:
            given.copy_(inputs[number], non_blocking=True)
            graph.replay()
            scratch = torch.empty(1 << (10 + number % 12), device="cuda").fill_(number)
            answer = torch.empty(32, 256, pin_memory=True)
            answer.copy_(taken + scratch[0], non_blocking=True)
            done = torch.cuda.Event()
            done.record(stream)
            while not done.query():
                pass
            answers[number] = answer


def guarded(model):
    try:
        serve(model)
    except Exception as error:
        failures.append(error)


# All models are the same: it does not matter who answers.
for model in models[1:]:
    model.load_state_dict(models[0].state_dict())
threads = [threading.Thread(target=guarded, args=(model,)) for model in models]
for thread in threads:
    thread.start()
for number in range(REQUESTS):
    requests.put(number)
for _ in threads:
    requests.put(None)
for thread in threads:
    thread.join()
if failures or len(answers) != REQUESTS:
    raise SystemExit(f"{len(answers)} of {REQUESTS} answers: {failures}")
chosen = range(0, REQUESTS, 10)
evidence.report({f"request {number}": evidence.digest_tensor(answers[number]) for number in chosen}, "torch")
